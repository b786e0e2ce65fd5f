//! The stages of a request, in the order in which they happen (architecture.md, "The path of one request").

/// Where in the path of a request something was decided; the `stage` of headers, logs and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Which crawler is asking.
    Identify,
    /// Is there one canonical target.
    Target,
    /// The policy at the request stage.
    Request,
    /// What the ledger knows of the URL.
    Ledger,
    /// The resolved addresses.
    Destination,
    /// The origin's robots.txt.
    Robots,
    /// The wait for the host's pace.
    Pace,
    /// A CONNECT, before its tunnel opens.
    Connect,
    /// The exchange with the origin.
    Upstream,
    /// The policy once the response head is known.
    Response,
    /// The policy once the first bytes of the document are known.
    Document,
}

impl Stage {
    /// Every stage, in order.
    pub const ALL: [Self; 11] = [
        Self::Identify,
        Self::Target,
        Self::Request,
        Self::Ledger,
        Self::Destination,
        Self::Robots,
        Self::Pace,
        Self::Connect,
        Self::Upstream,
        Self::Response,
        Self::Document,
    ];

    /// The word used in headers, logs, metrics and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Identify => "identify",
            Self::Target => "target",
            Self::Request => "request",
            Self::Ledger => "ledger",
            Self::Destination => "destination",
            Self::Robots => "robots",
            Self::Pace => "pace",
            Self::Connect => "connect",
            Self::Upstream => "upstream",
            Self::Response => "response",
            Self::Document => "document",
        }
    }
}

//! The stages of a request, in order.

/// A stage in the path of a request: the value of `stage` in headers, logs and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Identification of the crawler.
    Identify,
    /// Validation of the request target.
    Target,
    /// The policy, before the request is sent.
    Request,
    /// The ledger's knowledge of the URL.
    Ledger,
    /// Resolution of the host's addresses.
    Destination,
    /// The origin's robots.txt.
    Robots,
    /// The wait required by the host's pace.
    Pace,
    /// A CONNECT, before the tunnel opens.
    Connect,
    /// The exchange with the origin.
    Upstream,
    /// The policy, once the response head is known.
    Response,
    /// The policy, once the beginning of the document is known.
    Document,
}

impl Stage {
    /// All stages, in order.
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

    /// The word in headers, logs, metrics and JSON.
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

//! The kind of an error of a fetch.

/// CloudView's two kinds of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// Timeouts, resets, refused connections, no response from DNS, 503 with `Retry-After`, 429.
    Temporary,
    /// Other 4xx and 5xx, a name that does not exist, TLS failures, malformed redirects, an
    /// unsolicited 304.
    Permanent,
}

impl FailureKind {
    /// The value of `Crawl-Error` and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Temporary => "temporary",
            Self::Permanent => "permanent",
        }
    }
}

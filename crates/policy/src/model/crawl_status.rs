//! The outcome of a URL in the terms of Norconex: the value of `Crawl-Status` and of the ledger.

/// The outcome of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CrawlStatus {
    /// Fetched and delivered.
    Accepted,
    /// Refused by the policy.
    Filter,
    /// Forbidden by robots.txt, or robots.txt is unavailable.
    RobotsTxt,
    /// The site denies the use that the crawler declares.
    Usage,
    /// Too many links from a seed.
    TooDeep,
    /// A crawler trap: an endless URL pattern.
    Trap,
    /// The daily budget is used up.
    Budget,
    /// Requested again too soon.
    Premature,
    /// The document is the one that the crawler already has.
    Unmodified,
    /// Another URL has the same document.
    Duplicate,
    /// The document names another URL as its canonical one.
    Noncanonical,
    /// The document asks not to be indexed.
    Noindex,
    /// 404, 410, or a page that reports "not found" with another status.
    NotFound,
    /// Any other status of 400 or above.
    BadStatus,
    /// The exchange failed.
    Error,
    /// Larger than the policy allows.
    Import,
    /// The host had no capacity for the request in time.
    Politeness,
    /// The host's address is prohibited.
    Address,
    /// The request is malformed.
    Request,
    /// The client is not authorized.
    Unauthorized,
    /// The proxy is overloaded or shutting down.
    Unavailable,
}

impl CrawlStatus {
    /// All statuses, in the order of the documentation.
    pub const ALL: [Self; 21] = [
        Self::Accepted,
        Self::Filter,
        Self::RobotsTxt,
        Self::Usage,
        Self::TooDeep,
        Self::Trap,
        Self::Budget,
        Self::Premature,
        Self::Unmodified,
        Self::Duplicate,
        Self::Noncanonical,
        Self::Noindex,
        Self::NotFound,
        Self::BadStatus,
        Self::Error,
        Self::Import,
        Self::Politeness,
        Self::Address,
        Self::Request,
        Self::Unauthorized,
        Self::Unavailable,
    ];

    /// The value of `Crawl-Status`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "ACCEPTED",
            Self::Filter => "REJECTED_FILTER",
            Self::RobotsTxt => "REJECTED_ROBOTS_TXT",
            Self::Usage => "REJECTED_USAGE",
            Self::TooDeep => "REJECTED_TOO_DEEP",
            Self::Trap => "REJECTED_TRAP",
            Self::Budget => "REJECTED_BUDGET",
            Self::Premature => "REJECTED_PREMATURE",
            Self::Unmodified => "REJECTED_UNMODIFIED",
            Self::Duplicate => "REJECTED_DUPLICATE",
            Self::Noncanonical => "REJECTED_NONCANONICAL",
            Self::Noindex => "REJECTED_ROBOTS_META_NOINDEX",
            Self::NotFound => "REJECTED_NOTFOUND",
            Self::BadStatus => "REJECTED_BAD_STATUS",
            Self::Error => "REJECTED_ERROR",
            Self::Import => "REJECTED_IMPORT",
            Self::Politeness => "REJECTED_POLITENESS",
            Self::Address => "REJECTED_ADDRESS",
            Self::Request => "REJECTED_REQUEST",
            Self::Unauthorized => "REJECTED_UNAUTHORIZED",
            Self::Unavailable => "REJECTED_UNAVAILABLE",
        }
    }

    /// Parses the value of `Crawl-Status`.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }

    /// Returns the status of a URL by the origin's HTTP status alone.
    pub fn from_origin_status(status: u16) -> Self {
        match status {
            404 | 410 => Self::NotFound,
            400.. => Self::BadStatus,
            0..400 => Self::Accepted,
        }
    }

    /// Its position in [`Self::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_round_trip() {
        for (index, status) in CrawlStatus::ALL.into_iter().enumerate() {
            assert_eq!(CrawlStatus::from_word(status.as_str()), Some(status));
            assert_eq!(status.index(), index);
        }
        assert_eq!(CrawlStatus::from_word("accepted"), None);
    }
}

//! What became of a URL, in the words of Norconex's flow (seed 004): the value of `Crawl-Status`, and of the ledger.

/// One word for what became of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CrawlStatus {
    /// Fetched, and passed on.
    Accepted,
    /// The policy refuses it.
    Filter,
    /// robots.txt forbids it, or cannot be had.
    RobotsTxt,
    /// The site denies the use.
    Usage,
    /// Too many links from a start.
    TooDeep,
    /// A pattern without end.
    Trap,
    /// The day's allowance is used up.
    Budget,
    /// Asked for again too soon.
    Premature,
    /// The document is the one that the crawler has.
    Unmodified,
    /// Another URL has the same document.
    Duplicate,
    /// The document names another URL as its canonical one.
    Noncanonical,
    /// The document asks not to be indexed.
    Noindex,
    /// 404, 410, or a page that says so.
    NotFound,
    /// Any other status from 400 on.
    BadStatus,
    /// The exchange failed.
    Error,
    /// Too large to be taken in.
    Import,
    /// Its host had no turn for it in time.
    Politeness,
    /// Its host's address is prohibited.
    Address,
    /// The request cannot be taken as it is.
    Request,
    /// Who asked may not.
    Unauthorized,
    /// The proxy has no room, or goes down.
    Unavailable,
}

impl CrawlStatus {
    /// Every status, in the order of the documentation.
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

    /// The value of the header.
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

    /// Reads the value of the header.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }

    /// What an origin's status makes of a URL, as a label only (decisions.md section 2).
    pub fn from_origin_status(status: u16) -> Self {
        match status {
            404 | 410 => Self::NotFound,
            400.. => Self::BadStatus,
            0..400 => Self::Accepted,
        }
    }

    /// Its place in [`Self::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_are_written() {
        for (place, status) in CrawlStatus::ALL.into_iter().enumerate() {
            assert_eq!(CrawlStatus::from_word(status.as_str()), Some(status));
            assert_eq!(status.index(), place);
        }
        assert_eq!(CrawlStatus::from_word("accepted"), None);
    }
}

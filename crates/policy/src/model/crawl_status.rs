//! The outcome of a URL in the terms of Norconex: the value of `Crawl-Status` and of the ledger.

use super::words::words;

words! {
    /// The outcome of a URL.
    pub enum CrawlStatus {
        /// Fetched and delivered.
        Accepted = "ACCEPTED",
        /// Refused by the policy.
        Filter = "REJECTED_FILTER",
        /// Forbidden by robots.txt, or robots.txt is unavailable.
        RobotsTxt = "REJECTED_ROBOTS_TXT",
        /// The site denies the use that the crawler declares.
        Usage = "REJECTED_USAGE",
        /// Too many links from a seed.
        TooDeep = "REJECTED_TOO_DEEP",
        /// A crawler trap: an endless URL pattern.
        Trap = "REJECTED_TRAP",
        /// The daily budget is used up.
        Budget = "REJECTED_BUDGET",
        /// Requested again too soon.
        Premature = "REJECTED_PREMATURE",
        /// The document is the one that the crawler already has.
        Unmodified = "REJECTED_UNMODIFIED",
        /// Another URL has the same document.
        Duplicate = "REJECTED_DUPLICATE",
        /// The document names another URL as its canonical one.
        Noncanonical = "REJECTED_NONCANONICAL",
        /// The document asks not to be indexed.
        Noindex = "REJECTED_ROBOTS_META_NOINDEX",
        /// 404, 410, or a page that reports "not found" with another status.
        NotFound = "REJECTED_NOTFOUND",
        /// Any other status of 400 or above.
        BadStatus = "REJECTED_BAD_STATUS",
        /// The exchange failed.
        Error = "REJECTED_ERROR",
        /// Larger than the policy allows.
        Import = "REJECTED_IMPORT",
        /// The host had no capacity for the request in time.
        Politeness = "REJECTED_POLITENESS",
        /// The host's address is prohibited.
        Address = "REJECTED_ADDRESS",
        /// The request is malformed.
        Request = "REJECTED_REQUEST",
        /// The client is not authorized.
        Unauthorized = "REJECTED_UNAUTHORIZED",
        /// The proxy is overloaded or shutting down.
        Unavailable = "REJECTED_UNAVAILABLE",
    }
}

impl CrawlStatus {
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

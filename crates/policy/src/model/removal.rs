//! The outcomes after which a page may have to leave the index, and the action that the policy
//! chooses for each of them.

use super::words::words;

words! {
    /// An outcome after which a page of the index may have to leave it: a key of the option
    /// `removal`.
    pub enum RemovalOutcome {
        /// The site forbids the URL, or the use that the crawler makes of it.
        RobotsTxt = "robots_txt",
        /// The policy refuses the URL or its response.
        Rule = "rule",
        /// The document asks not to be indexed.
        Noindex = "noindex",
        /// The document names another URL as its canonical one.
        Noncanonical = "noncanonical",
        /// Another URL has the same document.
        Duplicate = "duplicate",
        /// The document is larger than the policy allows.
        TooLarge = "too_large",
        /// 404, or a page that is recognized as one.
        NotFound = "not_found",
        /// 410, or a page that is recognized as one.
        Gone = "gone",
        /// Another response that is a permanent error.
        BadStatus = "bad_status",
        /// The exchange failed, or the origin asks for patience: a temporary error, or a permanent
        /// one without a response.
        Error = "error",
    }
}

impl RemovalOutcome {
    /// Returns the outcome of a response that is a permanent error.
    pub fn from_origin_status(status: u16) -> Self {
        match status {
            404 => Self::NotFound,
            410 => Self::Gone,
            _ => Self::BadStatus,
        }
    }
}

/// The action for a page of the index after such an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RemovalAction {
    /// The page leaves the index at once.
    Remove,
    /// The page stays in the index.
    Keep,
    /// The page stays after the first such outcome, and leaves the index after a second one without
    /// a good outcome between them.
    OnceMore,
    /// The page leaves the index after a permanent error, or after too many consecutive temporary
    /// ones.
    ByCount,
}

//! Events for the maintainer of an index: removals and their end, permanent errors, and URLs that
//! moved to another crawler.

use std::sync::Arc;

use crate::model::words::words;

use super::record::UnixMillis;

words! {
    /// The value of `kind` in JSON, and of the label of the metric.
    pub enum LedgerEventKind {
        /// The URL must be removed from the index.
        Removal = "removal",
        /// The URL failed permanently and is in no index.
        PermanentError = "permanent_error",
        /// The URL is refused for this crawler but stays in the index, since it belongs to another
        /// crawler (761).
        Moved = "moved",
        /// A removal no longer applies: the URL is allowed, or was fetched, again.
        Restored = "restored",
    }

    /// The value of `why` in JSON.
    pub enum LedgerEventReason {
        /// The policy excludes the URL (760) or refuses it as gone.
        Excluded = "excluded",
        /// A permanent error, by CloudView's classification.
        PermanentError = "permanent_error",
        /// Too many consecutive temporary errors (`ledger.temporary_errors`).
        TemporaryErrors = "temporary_errors",
        /// The URL is excluded from this crawler's space and belongs to another (761).
        OtherSpace = "other_space",
        /// The site forbids the URL, or the crawler's use of it.
        RobotsTxt = "robots_txt",
        /// The document asks not to be indexed.
        Noindex = "noindex",
        /// The document names another URL as its canonical one.
        Noncanonical = "noncanonical",
        /// Another URL has the same document.
        Duplicate = "duplicate",
        /// The document is larger than the policy allows.
        TooLarge = "too_large",
        /// The policy allows a URL again that it had excluded.
        Allowed = "allowed",
        /// A document was delivered again.
        Fetched = "fetched",
    }
}

/// One entry of the event feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerEvent {
    pub at: UnixMillis,
    pub kind: LedgerEventKind,
    pub reason: LedgerEventReason,
    pub crawler: Arc<str>,
    pub url: Arc<str>,
    /// OmniFind's code, if there is one.
    pub code: Option<u16>,
    /// The origin's status, if its answer caused the event.
    pub status: Option<u16>,
    /// The rule that decided, if one did.
    pub rule: Option<Arc<str>>,
    /// The revision of the policy that decided.
    pub revision: Arc<str>,
}

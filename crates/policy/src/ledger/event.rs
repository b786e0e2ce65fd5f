//! Events for the maintainer of an index: removals and their end, permanent errors, and URLs that
//! moved to another crawler.

use std::sync::Arc;

use super::record::UnixMillis;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LedgerEventKind {
    /// The URL must be removed from the index.
    Removal,
    /// The URL failed permanently and is in no index.
    PermanentError,
    /// The URL is refused for this crawler but stays in the index, since it belongs to another
    /// crawler (761).
    Moved,
    /// A removal no longer applies: the URL is allowed, or was fetched, again.
    Restored,
}

impl LedgerEventKind {
    /// All kinds, in the order of the documentation.
    pub const ALL: [Self; 4] = [
        Self::Removal,
        Self::PermanentError,
        Self::Moved,
        Self::Restored,
    ];

    /// The value of `kind` in JSON and of the metric's label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Removal => "removal",
            Self::PermanentError => "permanent_error",
            Self::Moved => "moved",
            Self::Restored => "restored",
        }
    }

    /// Parses the value of `kind`.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LedgerEventReason {
    /// The policy excludes the URL (760) or refuses it as gone.
    Excluded,
    /// A permanent error, by CloudView's classification.
    PermanentError,
    /// Too many consecutive temporary errors (`ledger.temporary_errors`).
    TemporaryErrors,
    /// The URL is excluded from this crawler's space and belongs to another (761).
    OtherSpace,
    /// The site forbids the URL, or the crawler's use of it.
    RobotsTxt,
    /// The document asks not to be indexed.
    Noindex,
    /// The document names another URL as its canonical one.
    Noncanonical,
    /// Another URL has the same document.
    Duplicate,
    /// The document is larger than the policy allows.
    TooLarge,
    /// The policy allows a URL again that it had excluded.
    Allowed,
    /// A document was delivered again.
    Fetched,
}

impl LedgerEventReason {
    pub const ALL: [Self; 11] = [
        Self::Excluded,
        Self::PermanentError,
        Self::TemporaryErrors,
        Self::OtherSpace,
        Self::RobotsTxt,
        Self::Noindex,
        Self::Noncanonical,
        Self::Duplicate,
        Self::TooLarge,
        Self::Allowed,
        Self::Fetched,
    ];

    /// The value of `why` in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Excluded => "excluded",
            Self::PermanentError => "permanent_error",
            Self::TemporaryErrors => "temporary_errors",
            Self::OtherSpace => "other_space",
            Self::RobotsTxt => "robots_txt",
            Self::Noindex => "noindex",
            Self::Noncanonical => "noncanonical",
            Self::Duplicate => "duplicate",
            Self::TooLarge => "too_large",
            Self::Allowed => "allowed",
            Self::Fetched => "fetched",
        }
    }

    /// Parses the value of `why`.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == word)
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

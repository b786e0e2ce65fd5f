//! What is told to those who keep an index: the feed of removals, permanent errors and URLs that moved.

use std::sync::Arc;

use super::record::UnixMillis;

/// What happened to a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LedgerEventKind {
    /// It must leave the index.
    Removal,
    /// It failed for good, and no index has it.
    PermanentError,
    /// It is refused here and stays in the index: another crawler has it (761).
    Moved,
}

impl LedgerEventKind {
    /// Every kind, in the order of the documentation.
    pub const ALL: [Self; 3] = [Self::Removal, Self::PermanentError, Self::Moved];

    /// The `kind` of JSON forms and of the metric.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Removal => "removal",
            Self::PermanentError => "permanent_error",
            Self::Moved => "moved",
        }
    }

    /// Reads the word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

/// Why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LedgerEventReason {
    /// The policy excludes it (760), or refuses it as gone.
    Excluded,
    /// An error that CloudView's table calls permanent.
    PermanentError,
    /// As many temporary errors in a row as the configuration allows.
    TemporaryErrors,
    /// Excluded from this crawler's space, and in another's (761).
    OtherSpace,
}

impl LedgerEventReason {
    /// Every reason.
    pub const ALL: [Self; 4] = [
        Self::Excluded,
        Self::PermanentError,
        Self::TemporaryErrors,
        Self::OtherSpace,
    ];

    /// The `why` of JSON forms.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Excluded => "excluded",
            Self::PermanentError => "permanent_error",
            Self::TemporaryErrors => "temporary_errors",
            Self::OtherSpace => "other_space",
        }
    }

    /// Reads the word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|why| why.as_str() == word)
    }
}

/// One entry of the feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerEvent {
    /// When it happened.
    pub at: UnixMillis,
    /// What.
    pub kind: LedgerEventKind,
    /// Why.
    pub reason: LedgerEventReason,
    /// For which crawler.
    pub crawler: Arc<str>,
    /// The URL.
    pub url: Arc<str>,
    /// OmniFind's code, where there is one.
    pub code: Option<u16>,
    /// The origin's status, where its answer is why.
    pub status: Option<u16>,
    /// The rule that decided, where one did.
    pub rule: Option<Arc<str>>,
    /// The revision of the policy that it was decided under.
    pub revision: Arc<str>,
}

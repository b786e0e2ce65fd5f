//! The meaning of a refusal to the crawler, independent of the status on the wire.

/// The meaning of a refusal. The crawler's profile maps it to a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Intent {
    /// The URL must not be fetched.
    Deny,
    /// The URL must not be fetched and must leave the index (OmniFind 760).
    Gone,
    /// The URL must not be fetched now or by this crawler, and must stay in the index (OmniFind
    /// 761).
    Keep,
    /// The request may be repeated after `Retry-After`.
    Later,
}

impl Intent {
    /// All intents, in the order of the documentation.
    pub const ALL: [Self; 4] = [Self::Deny, Self::Gone, Self::Keep, Self::Later];

    /// The word in a policy and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::Gone => "gone",
            Self::Keep => "keep",
            Self::Later => "later",
        }
    }

    /// Parses the word in a policy.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|i| i.as_str() == word)
    }
}

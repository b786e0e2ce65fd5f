//! What a rejection means to the crawler, apart from any status number (decisions.md section 1).

/// The meaning of a refusal; a crawler's profile turns it into a wire status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Intent {
    /// Not to be fetched.
    Deny,
    /// Not to be fetched, and must leave the index (OmniFind 760).
    Gone,
    /// Not to be fetched now or here, and must stay in the index (OmniFind 761).
    Keep,
    /// Ask again after `Retry-After`.
    Later,
}

impl Intent {
    /// Every intent, in the order of the documentation.
    pub const ALL: [Self; 4] = [Self::Deny, Self::Gone, Self::Keep, Self::Later];

    /// The word used in a policy and in every JSON form.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::Gone => "gone",
            Self::Keep => "keep",
            Self::Later => "later",
        }
    }

    /// Reads the word used in a policy.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|i| i.as_str() == word)
    }
}

//! The default for a URL that no filter matched, after Velocity's `default-allow`.

/// The value of the option `disposition`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Disposition {
    /// The URL may be fetched.
    Allow,
    /// The URL is rejected without a record.
    Disallow,
    /// The URL is rejected and recorded.
    DisallowLog,
}

impl Disposition {
    /// All dispositions, in the order of the documentation.
    pub const ALL: [Self; 3] = [Self::Allow, Self::Disallow, Self::DisallowLog];

    /// The word in a policy.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Disallow => "disallow",
            Self::DisallowLog => "disallow-log",
        }
    }

    /// Parses the word in a policy.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|d| d.as_str() == word)
    }

    /// Returns `true` if a URL with this disposition is rejected.
    pub fn rejects(self) -> bool {
        match self {
            Self::Allow => false,
            Self::Disallow | Self::DisallowLog => true,
        }
    }
}

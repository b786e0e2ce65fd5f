//! The default for a URL that no filter matched, after Velocity's `default-allow`.

use super::words::words;

words! {
    /// The value of the option `disposition`.
    pub enum Disposition {
        /// The URL may be fetched.
        Allow = "allow",
        /// The URL is rejected without a record.
        Disallow = "disallow",
        /// The URL is rejected and recorded.
        DisallowLog = "disallow-log",
    }
}

impl Disposition {
    /// Returns `true` if a URL with this disposition is rejected.
    pub fn rejects(self) -> bool {
        match self {
            Self::Allow => false,
            Self::Disallow | Self::DisallowLog => true,
        }
    }
}

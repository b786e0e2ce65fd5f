//! Whether an origin has to prove who it is.

/// Whether the certificate that an origin shows is verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CertificateVerification {
    /// Its name, its dates and its issuer must be right.
    On,
    /// Any is taken: the bytes may come from anybody.
    Skip,
}

impl CertificateVerification {
    /// What holds where two say something: who skips, skips.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::On, Self::On) => Self::On,
            (Self::Skip, _) | (_, Self::Skip) => Self::Skip,
        }
    }
}

//! The setting that controls verification of origin certificates.

/// Controls verification of the certificate that an origin presents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CertificateVerification {
    /// The name, the dates and the issuer must be valid.
    On,
    /// Any certificate is accepted, so the content may come from anyone.
    Skip,
}

impl CertificateVerification {
    /// Combines two settings: [`Skip`](Self::Skip) wins.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::On, Self::On) => Self::On,
            (Self::Skip, _) | (_, Self::Skip) => Self::Skip,
        }
    }
}

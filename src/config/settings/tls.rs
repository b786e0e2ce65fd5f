//! Settings of `tls`: looking inside TLS, and the TLS spoken to origins.

use std::path::PathBuf;

/// How TLS is treated, towards crawlers and towards origins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfig {
    /// Whether tunnels are looked into, unless a rule says otherwise.
    pub intercept: bool,
    /// Whether a tunnel that is refused is looked into all the same, so that its client can read why.
    pub intercept_to_reject: bool,
    /// The certificate authorities; the first signs, all are given to clients.
    pub authorities: Vec<AuthorityFiles>,
    /// Whether `run` makes the first one if it is not there.
    pub create: bool,
    /// Where `run` writes the system's roots together with ours.
    pub bundle: PathBuf,
    /// Whether origins must show a certificate that their name and our roots agree with.
    pub verify_upstream: bool,
    /// Whom origins' certificates are to come from.
    pub roots: TrustRoots,
    /// More of these: files of certificates (PEM).
    pub extra_roots: Vec<PathBuf>,
    /// How many hosts' certificates are kept.
    pub leaf_cache: u64,
    /// How many certificates one client may have made in a second, at rest ten times as many at once.
    pub mints_per_client: u32,
}

/// Where a certificate authority is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorityFiles {
    /// Its certificate (PEM).
    pub cert: PathBuf,
    /// Its key (PEM, PKCS #8).
    pub key: PathBuf,
}

/// Whom origins' certificates are to come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrustRoots {
    /// Those of the operating system.
    Native,
    /// Mozilla's, as they were when this program was built.
    Webpki,
}

impl TrustRoots {
    /// Every choice, in the order of the documentation.
    pub const ALL: [Self; 2] = [Self::Native, Self::Webpki];

    /// The word of the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Webpki => "webpki",
        }
    }
}

impl TlsConfig {
    /// What holds without a file; `certs/` is in this directory.
    pub fn in_directory(directory: &std::path::Path) -> Self {
        let certs = directory.join("certs");
        Self {
            intercept: false,
            intercept_to_reject: true,
            authorities: vec![AuthorityFiles {
                cert: certs.join("ca.pem"),
                key: certs.join("ca.key"),
            }],
            create: true,
            bundle: certs.join("bundle.pem"),
            verify_upstream: true,
            roots: TrustRoots::Native,
            extra_roots: Vec::new(),
            leaf_cache: 10_000,
            mints_per_client: 200,
        }
    }
}

impl Default for TlsConfig {
    fn default() -> Self {
        Self::in_directory(std::path::Path::new(""))
    }
}

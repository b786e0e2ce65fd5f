//! Settings of TLS with crawlers and with origins.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::model::certificate_verification::CertificateVerification;
use crate::model::words::words;
use crate::proxy::intercept::RefusalDelivery;

/// Settings of `tls`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfig {
    /// If set, tunnels are intercepted unless a rule sets another action.
    pub intercept: bool,
    /// The way in which the client of a refused tunnel learns the reason.
    pub refusal_delivery: RefusalDelivery,
    /// The certificate authorities. The first signs; clients receive all.
    pub authorities: Vec<AuthorityFiles>,
    /// The file to which `run` writes the system's roots and the authorities.
    pub bundle: PathBuf,
    /// The verification of the certificates of origins.
    pub verify: CertificateVerification,
    /// The trusted roots for origins.
    pub roots: TrustRoots,
    /// Files (PEM) with additional roots.
    pub extra_roots: Vec<PathBuf>,
    /// The number of hosts whose certificates are cached.
    pub leaf_cache: u64,
    /// The number of certificates that one client may cause per second; an idle client may burst to ten times as many.
    pub mints_per_client: u32,
    /// The time that one handshake with an origin may take.
    pub handshake_timeout: Duration,
}

/// The files of a certificate authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorityFiles {
    /// The certificate (PEM).
    pub cert: PathBuf,
    /// The key (PEM, PKCS #8).
    pub key: PathBuf,
    /// If set, `run` creates both if neither exists.
    pub create: bool,
}

words! {
    /// The trusted roots for origins.
    pub enum TrustRoots {
        /// The roots of the operating system.
        Native = "native",
        /// Mozilla's roots, as of the build of this program.
        Webpki = "webpki",
    }
}

impl TlsConfig {
    /// Returns the defaults, with `certs/` in this directory.
    pub fn in_directory(directory: &Path) -> Self {
        let certs = directory.join("certs");
        Self {
            intercept: true,
            refusal_delivery: RefusalDelivery::InsideTls,
            authorities: vec![AuthorityFiles {
                cert: certs.join("ca.pem"),
                key: certs.join("ca.key"),
                create: true,
            }],
            bundle: certs.join("bundle.pem"),
            verify: CertificateVerification::On,
            roots: TrustRoots::Native,
            extra_roots: Vec::new(),
            leaf_cache: 10_000,
            mints_per_client: 200,
            handshake_timeout: Duration::from_secs(10),
        }
    }
}

//! TLS towards clients: the certificate authority, and the certificates that it issues for hosts. Also what TLS towards
//! origins (`proxy`) and towards other nodes (`fleet`) have in common.

pub mod ca;
pub mod fleet;
pub mod issuer;
pub mod listener;
pub mod maybe_tls_stream;
pub mod provider;
mod rate_limit;

pub(crate) use ca::check_key_mode;
pub use ca::{CaCertificate, CaError, CertificateAuthority};
pub use issuer::{CertificateIssuer, IssueError, LeafCertificate, SessionTickets};

//! TLS towards clients: the certificate authority, and the certificates that it issues for hosts.
//!
//! The `proxy` module uses the connections and contains TLS towards origins.

pub mod ca;
pub mod fleet;
pub mod issuer;
pub mod listener;
pub mod provider;
mod rate_limit;

pub(crate) use ca::check_key_mode;
pub use ca::{CaCertificate, CaError, CertificateAuthority};
pub use issuer::{CertificateIssuer, IssueError, LeafCertificate, SessionTickets};

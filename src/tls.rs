//! TLS towards clients: the certificate authority that they trust, and the certificates that it signs for hosts.
//!
//! What is done with a connection once its handshake is made is the proxy's business; TLS towards origins is not here.

pub mod ca;
pub mod issuer;
pub mod provider;
mod rate_limit;

pub use ca::{CaCertificate, CaError, CertificateAuthority};
pub use issuer::{CertificateIssuer, IssueError, LeafCertificate, SessionTickets};

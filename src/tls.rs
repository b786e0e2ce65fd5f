//! TLS towards clients: the certificate authority that they trust, and the certificates that it signs for hosts.
//!
//! What is done with a connection once its handshake is made is the proxy's business; TLS towards origins is not here.

pub mod ca;
pub mod leaf;
pub mod provider;
mod rate;

pub use ca::{Authority, AuthorityError, Certificate};
pub use leaf::{Leaf, MintError, Minter, Tickets};

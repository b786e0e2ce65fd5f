//! Web Bot Auth: signatures by which origins recognize a crawler whatever its address
//! (draft-meunier-webbotauth-httpsig-protocol, on RFC 9421).
//!
//! A crawler of the configuration with an `identity` has Ed25519 keys and the URL at which its operator publishes
//! them. Its requests are signed just before they are sent, after everything that changes their head.

mod directory_server;
mod key_directory;
mod message_signature;
mod request_signer;
mod signing_key;

pub use directory_server::DirectoryServer;
pub use key_directory::{KeyDirectory, WELL_KNOWN_PATH};
pub use request_signer::{CrawlerKeys, IdentityError, RequestSigner, RequestSigners};
pub use signing_key::{Ed25519Key, KeyError};

//! The certificate of a listener to which clients connect with TLS.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::ca::{CaError, check_key_mode};
use super::issuer::alpn_protocols;

/// The reason why a listener's certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ListenerTlsError {
    /// A file cannot be read, or others can read the key.
    #[error(transparent)]
    File(#[from] CaError),
    /// The file contains no certificate.
    #[error("{}: no certificate (PEM)", .0.display())]
    NoCertificate(PathBuf),
    /// The file contains no private key.
    #[error("{}: no private key (PEM, unencrypted)", .0.display())]
    NoKey(PathBuf),
    /// The key and the certificate cannot be used together.
    #[error("{} with {}: {error}", cert.display(), key.display())]
    Unusable {
        /// The certificate file.
        cert: PathBuf,
        /// The key file.
        key: PathBuf,
        /// The error of the library.
        error: rustls::Error,
    },
}

/// Loads a certificate with its chain, and its key.
///
/// # Errors
/// Returns an error if a file is missing or cannot be used, or others than the owner can read the
/// key.
pub fn load_listener_tls(
    cert: &Path,
    key: &Path,
    with_http2: bool,
) -> Result<Arc<ServerConfig>, ListenerTlsError> {
    check_key_mode(key)?;
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(cert)
        .and_then(Iterator::collect)
        .map_err(|_| ListenerTlsError::NoCertificate(cert.to_owned()))?;
    if chain.is_empty() {
        return Err(ListenerTlsError::NoCertificate(cert.to_owned()));
    }
    // The parser's error message may quote the key.
    let private =
        PrivateKeyDer::from_pem_file(key).map_err(|_| ListenerTlsError::NoKey(key.to_owned()))?;
    let unusable = |error| ListenerTlsError::Unusable {
        cert: cert.to_owned(),
        key: key.to_owned(),
        error,
    };
    let provider: Arc<CryptoProvider> = Arc::new(super::provider::crypto_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(unusable)?;
    config.alpn_protocols = alpn_protocols(with_http2);
    config.ignore_client_order = true;
    Ok(Arc::new(config))
}

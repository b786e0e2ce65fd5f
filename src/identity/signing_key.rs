//! Ed25519 keys in PEM files. No error or log message contains a key.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{KeyPair, PKCS_ED25519};
use rustls::SignatureScheme;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::sign::SigningKey;
use sha2::{Digest as _, Sha256};

use crate::tls::{CaError, check_key_mode};

/// Read and write permission for the owner only.
const KEY_MODE: u32 = 0o600;
/// The length of a public key of Ed25519.
const PUBLIC_KEY_LENGTH: usize = 32;

/// The reason why a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be read, or others can read it.
    #[error(transparent)]
    File(#[from] CaError),
    /// The file contains no private key of this kind.
    #[error(
        "{}: no Ed25519 key (PKCS #8, PEM, unencrypted); `crawlgate identity key FILE` creates one",
        .0.display()
    )]
    NoKey(PathBuf),
    /// A key cannot be created, since the file exists.
    #[error("{} exists already, and is not overwritten", .0.display())]
    Exists(PathBuf),
    /// A key cannot be created or used.
    #[error("{}: {error}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The error of the library, or of the system.
        error: String,
    },
}

/// A key that signs.
#[derive(Clone, Debug)]
pub struct Ed25519Key {
    signing: Arc<dyn SigningKey>,
    /// The public key, as base64url.
    public: Box<str>,
    thumbprint: Box<str>,
}

impl Ed25519Key {
    /// Loads a key.
    ///
    /// # Errors
    /// If the file cannot be read, others than the owner can read it, or it contains no such key.
    pub fn load(path: &Path) -> Result<Self, KeyError> {
        check_key_mode(path)?;
        // The parser's error message may quote the key.
        let der = PrivatePkcs8KeyDer::from_pem_file(path)
            .map_err(|_| KeyError::NoKey(path.to_owned()))?;
        Self::from_pkcs8(&der).ok_or_else(|| KeyError::NoKey(path.to_owned()))
    }

    /// Creates a key and writes it to a file that must not exist, accessible only to the owner.
    ///
    /// # Errors
    /// If the file exists or cannot be written.
    pub fn create(path: &Path) -> Result<Self, KeyError> {
        let unusable = |error: String| KeyError::Unusable {
            path: path.to_owned(),
            error,
        };
        let pair =
            KeyPair::generate_for(&PKCS_ED25519).map_err(|error| unusable(error.to_string()))?;
        let der = PrivatePkcs8KeyDer::from(pair.serialize_der());
        let key = Self::from_pkcs8(&der)
            .ok_or_else(|| unusable("the library cannot use the key that it made".to_owned()))?;
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(KEY_MODE)
            .open(path)
            .map_err(|error| {
                if error.kind() == io::ErrorKind::AlreadyExists {
                    KeyError::Exists(path.to_owned())
                } else {
                    unusable(error.to_string())
                }
            })?;
        file.write_all(pair.serialize_pem().as_bytes())
            .and_then(|()| file.sync_all())
            .map_err(|error| unusable(error.to_string()))?;
        Ok(key)
    }

    /// Returns `None` if these bytes are no such key.
    pub(super) fn from_pkcs8(der: &PrivatePkcs8KeyDer<'_>) -> Option<Self> {
        let signing = aws_lc_rs::sign::any_eddsa_type(der).ok()?;
        let info = signing.public_key()?;
        // SubjectPublicKeyInfo of Ed25519 ends with the key (RFC 8410 section 4).
        let raw = info.as_ref().last_chunk::<PUBLIC_KEY_LENGTH>()?;
        let public = URL_SAFE_NO_PAD.encode(raw);
        // The members in this order, without white space (RFC 7638 section 3, RFC 8037 appendix A.3).
        let members = format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{public}"}}"#);
        Some(Self {
            signing,
            thumbprint: URL_SAFE_NO_PAD.encode(Sha256::digest(members)).into(),
            public: public.into(),
        })
    }

    /// Returns the public key as base64url: the member `x` of a JSON Web Key (RFC 8037).
    pub fn public(&self) -> &str {
        &self.public
    }

    /// Returns the SHA-256 thumbprint of the public key as base64url (RFC 7638), by which verifiers find it.
    pub fn thumbprint(&self) -> &str {
        &self.thumbprint
    }

    /// Signs a message.
    ///
    /// # Errors
    /// If the library fails.
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        let signer = self.signing.choose_scheme(&[SignatureScheme::ED25519]);
        signer
            .ok_or_else(|| rustls::Error::General("the key does not sign by Ed25519".to_owned()))?
            .sign(message)
    }
}

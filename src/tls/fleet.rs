//! Certificates of the nodes of a fleet: each node shows one to the others, in both directions.
//!
//! The fleet has an authority of its own, which has nothing to do with interception. The certificate of a node is for
//! the node's name, as a DNS name.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;

use super::ca::{
    BACKDATED, CaError, CertificateAuthority, KEY_MODE, check_key_mode, random_serial,
    to_offset_date_time, write_new,
};

/// The validity of a node's certificate: two years, or as long as the authority's if that is shorter.
const NODE_VALIDITY: Duration = Duration::from_secs(2 * 365 * 24 * 60 * 60);

/// The files of `fleet.tls`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeTlsFiles {
    /// The node's certificate and its chain (PEM).
    pub cert: PathBuf,
    /// The node's key (PEM), which only its owner may read.
    pub key: PathBuf,
    /// The certificate of the fleet's authority, or several while one replaces another (PEM).
    pub ca: PathBuf,
}

/// TLS between nodes, for both sides of a link: TLS 1.3 only.
#[derive(Clone, Debug)]
pub struct NodeTls {
    pub server: Arc<ServerConfig>,
    pub client: Arc<ClientConfig>,
}

/// The reason why the files of `fleet.tls` cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NodeTlsError {
    /// A file cannot be read, or others can read the key.
    #[error(transparent)]
    File(#[from] CaError),
    #[error("{}: no certificate (PEM)", .0.display())]
    NoCertificate(PathBuf),
    #[error("{}: no private key (PEM, unencrypted)", .0.display())]
    NoKey(PathBuf),
    #[error(
        "{} is a certificate for {names}, not for this node, {node} (fleet.node); `crawlgate fleet cert {node}` issues one",
        cert.display()
    )]
    OtherNode {
        cert: PathBuf,
        node: String,
        /// The names in the certificate.
        names: String,
    },
    #[error(
        "other nodes would refuse {}: {error}, by the authority in {}; `crawlgate fleet cert {node}` issues one where \
         fleet.key of that authority is",
        cert.display(), ca.display()
    )]
    NotOfFleet {
        cert: PathBuf,
        ca: PathBuf,
        node: String,
        error: rustls::Error,
    },
    #[error("{}: {error}", path.display())]
    Unusable { path: PathBuf, error: String },
}

impl NodeTls {
    /// Loads the certificate of a node and the fleet's authorities.
    ///
    /// # Errors
    /// If a file cannot be used, or the certificate is for another node, of another authority, or not valid now.
    pub fn load(files: &NodeTlsFiles, node: &str, now: SystemTime) -> Result<Self, NodeTlsError> {
        let NodeTlsFiles { cert, key, ca } = files;
        check_key_mode(key)?;
        let chain = certificates(cert)?;
        let (own, intermediates) = chain
            .split_first()
            .ok_or_else(|| NodeTlsError::NoCertificate(cert.clone()))?;
        let names = certificate_names(own);
        if !names.iter().any(|name| name.eq_ignore_ascii_case(node)) {
            return Err(NodeTlsError::OtherNode {
                cert: cert.clone(),
                node: node.to_owned(),
                names: names.join(", "),
            });
        }
        let mut roots = RootCertStore::empty();
        for authority in certificates(ca)? {
            let added = roots.add(authority);
            added.map_err(|error| unusable(ca, error))?;
        }
        let roots = Arc::new(roots);
        let provider: Arc<CryptoProvider> = Arc::new(super::provider::crypto_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
                .build()
                .map_err(|error| unusable(ca, error))?;
        let now = UnixTime::since_unix_epoch(now.duration_since(UNIX_EPOCH).unwrap_or_default());
        verifier
            .verify_client_cert(own, intermediates, now)
            .map_err(|error| NodeTlsError::NotOfFleet {
                cert: cert.clone(),
                ca: ca.clone(),
                node: node.to_owned(),
                error,
            })?;
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| unusable(cert, error))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.clone(), private_key(key)?)
            .map_err(|error| unusable(cert, error))?;
        let client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| unusable(cert, error))?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, private_key(key)?)
            .map_err(|error| unusable(cert, error))?;
        Ok(Self {
            server: Arc::new(server),
            client: Arc::new(client),
        })
    }
}

fn unusable(path: &Path, error: impl ToString) -> NodeTlsError {
    NodeTlsError::Unusable {
        path: path.to_owned(),
        error: error.to_string(),
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, NodeTlsError> {
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|_| NodeTlsError::NoCertificate(path.to_owned()))?;
    if chain.is_empty() {
        return Err(NodeTlsError::NoCertificate(path.to_owned()));
    }
    Ok(chain)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, NodeTlsError> {
    // The parser's error message may quote the key.
    PrivateKeyDer::from_pem_file(path).map_err(|_| NodeTlsError::NoKey(path.to_owned()))
}

/// Returns the DNS names of a certificate: the node that it is for.
pub fn certificate_names(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else {
        return Vec::new();
    };
    let Ok(Some(names)) = parsed.subject_alternative_name() else {
        return Vec::new();
    };
    let names = names.value.general_names.iter();
    names
        .filter_map(|name| {
            if let GeneralName::DNSName(name) = name {
                Some((*name).to_owned())
            } else {
                None
            }
        })
        .collect()
}

impl CertificateAuthority {
    /// Issues a certificate for a node, and writes it and its key to two files that must not exist.
    ///
    /// # Errors
    /// If a file exists or cannot be written, or the name cannot be in a certificate.
    pub fn issue_node_certificate(
        &self,
        node: &str,
        cert: &Path,
        key: &Path,
        now: SystemTime,
    ) -> Result<(), CaError> {
        let failed = |error: rcgen::Error| CaError::Failed(error.to_string());
        let pair = KeyPair::generate().map_err(failed)?;
        let mut params = CertificateParams::new(vec![node.to_owned()]).map_err(failed)?;
        params.not_before = to_offset_date_time(now.checked_sub(BACKDATED).unwrap_or(now));
        params.not_after = to_offset_date_time((now + NODE_VALIDITY).min(self.not_after()));
        let serial = random_serial().map_err(|error| CaError::Failed(error.to_string()))?;
        params.serial_number = Some(serial);
        params
            .distinguished_name
            .push(DnType::CommonName, node.to_owned());
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let signed = params.signed_by(&pair, self.issuer()).map_err(failed)?;
        write_new(key, KEY_MODE, pair.serialize_pem().as_bytes())?;
        write_new(cert, 0o644, signed.pem().as_bytes())
    }
}

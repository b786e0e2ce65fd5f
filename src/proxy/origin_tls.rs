//! TLS to origins: trust, the form of the ClientHello, and the interpretation of failed handshakes.
//!
//! The module works on established TCP connections and does not read requests.

mod chain_cache;
mod error;
mod stream;
mod verifier;

use std::sync::Arc;
use std::time::Duration;

use hyper_rustls::MaybeHttpsStream;
use hyper_util::rt::TokioIo;
use moka::sync::Cache;
use rustls::client::Resumption;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::metrics::Metrics;
use crate::model::certificate_verification::CertificateVerification;
use crate::model::http_versions::OriginHttpVersions;
use crate::tls::maybe_tls_stream::MaybeTlsStream;
use crate::tls::provider::crypto_provider;
use crate::urls::target::UrlTarget;

pub use error::TlsError;
pub use stream::OriginTcp;
use verifier::{AcceptAnyVerifier, CachingVerifier};

/// A connection to an origin, with or without TLS.
pub type OriginStream = MaybeHttpsStream<TokioIo<OriginTcp>>;

/// The ALPN protocols.
const HTTP_1_1: &[u8] = b"http/1.1";
const HTTP_2: &[u8] = b"h2";
/// The number of session tickets per origin; rustls counts tickets.
const TICKETS_PER_ORIGIN: usize = 8;
/// The number of origins whose sessions are remembered.
const SESSIONS: usize = 4096;
/// The number of origins for the rarer kinds of handshakes.
const FEW_SESSIONS: usize = 512;
/// The maximum number of origins known to need a small ClientHello.
const MAX_LEGACY_ORIGINS: u64 = 10_000;
/// The time after which such an origin gets a large ClientHello again.
const LEGACY_TTL: Duration = Duration::from_hours(12);

#[derive(Clone, Debug)]
pub struct OriginTlsSettings {
    /// `Skip` if no certificate is verified.
    pub verify: CertificateVerification,
    /// The trusted root certificates.
    pub roots: RootCertStore,
    /// The longest time for one handshake.
    pub handshake_timeout: Duration,
}

/// The kind of a ClientHello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientHelloKind {
    /// With a post-quantum key share. It does not fit into one packet, which a few old origins
    /// cannot handle.
    Hybrid,
    /// Without a post-quantum key share.
    Classic,
}

/// The terms of a handshake.
#[derive(Clone, Copy, Debug)]
pub struct HandshakeTerms {
    /// The verification of the origin's certificate.
    pub verify: CertificateVerification,
    /// The versions of HTTP that are offered.
    pub versions: OriginHttpVersions,
}

/// Performs TLS handshakes with origins.
#[derive(Debug)]
pub struct OriginTls {
    /// `None` if no certificate is verified.
    verified: Option<TlsClientConfigs>,
    unverified: TlsClientConfigs,
    handshake_timeout: Duration,
    legacy_origins: Cache<Box<str>, ()>,
    metrics: Metrics,
}

/// One configuration per kind of ClientHello. Sessions belong to the configuration that created
/// them, so a session with an unverified origin never replaces a verification.
#[derive(Debug)]
struct TlsClientConfigs {
    hybrid: AlpnConfigs,
    classic: AlpnConfigs,
}

/// One configuration per offer of versions. They share their sessions: the origin selects a version
/// in each handshake.
#[derive(Debug)]
struct AlpnConfigs {
    http1: Arc<ClientConfig>,
    http1_and_2: Arc<ClientConfig>,
}

impl AlpnConfigs {
    fn new(mut config: ClientConfig) -> Self {
        config.alpn_protocols = vec![HTTP_1_1.to_vec()];
        let http1 = Arc::new(config.clone());
        config.alpn_protocols = vec![HTTP_2.to_vec(), HTTP_1_1.to_vec()];
        Self {
            http1,
            http1_and_2: Arc::new(config),
        }
    }
}

impl OriginTls {
    /// Creates the client with these settings.
    ///
    /// # Errors
    /// Returns a message if certificates must be verified and there are no roots.
    pub fn new(settings: OriginTlsSettings, metrics: Metrics) -> Result<Self, String> {
        let OriginTlsSettings {
            verify,
            roots,
            handshake_timeout,
        } = settings;
        let verified = match verify {
            CertificateVerification::On => {
                let trusted: Arc<dyn ServerCertVerifier> = Arc::new(CachingVerifier::new(roots)?);
                Some(TlsClientConfigs::new(&trusted, SESSIONS)?)
            }
            CertificateVerification::Skip => None,
        };
        let accept_any: Arc<dyn ServerCertVerifier> =
            Arc::new(AcceptAnyVerifier::new(&crypto_provider()));
        Ok(Self {
            verified,
            unverified: TlsClientConfigs::new(&accept_any, FEW_SESSIONS)?,
            handshake_timeout,
            legacy_origins: Cache::builder()
                .max_capacity(MAX_LEGACY_ORIGINS)
                .time_to_live(LEGACY_TTL)
                .build(),
            metrics,
        })
    }

    /// Returns the verification that applies to a request, given the configuration.
    pub fn effective_verify(&self, requested: CertificateVerification) -> CertificateVerification {
        requested.and(if self.verified.is_some() {
            CertificateVerification::On
        } else {
            CertificateVerification::Skip
        })
    }

    /// Returns the kind of ClientHello for an origin, given the start of its URLs
    /// (`https://host/`).
    pub fn hello_kind(&self, base: &str) -> ClientHelloKind {
        if self.legacy_origins.contains_key(base) {
            ClientHelloKind::Classic
        } else {
            ClientHelloKind::Hybrid
        }
    }

    /// Performs a TLS handshake on a connection, and remembers which kind of ClientHello the origin
    /// accepts.
    ///
    /// # Errors
    /// Returns an error if the handshake fails, the certificate is not trusted, or the time is up.
    pub async fn handshake(
        &self,
        stream: MaybeTlsStream,
        target: &UrlTarget,
        terms: HandshakeTerms,
        hello: ClientHelloKind,
    ) -> Result<OriginStream, TlsError> {
        let verify = self.effective_verify(terms.verify);
        let configs = self.configs(verify, hello);
        let config = Arc::clone(match terms.versions {
            OriginHttpVersions::Http1 => &configs.http1,
            OriginHttpVersions::Http1And2 => &configs.http1_and_2,
        });
        let result =
            tokio::time::timeout(self.handshake_timeout, connect_tls(stream, target, config));
        let result = result.await.unwrap_or(Err(TlsError::timeout()));
        self.remember_hello(target.base(), hello, result.as_ref().err());
        if result.is_ok() && verify == CertificateVerification::Skip {
            self.metrics.record_unverified_upstream();
        }
        result
    }

    /// Performs a TLS handshake with an HTTPS proxy. Its certificate is verified like those of origins.
    ///
    /// # Errors
    /// Returns an error if the handshake fails, the certificate is not trusted, or the time is up.
    pub async fn connect_proxy(
        &self,
        tcp: TcpStream,
        host: &str,
    ) -> Result<TlsStream<TcpStream>, TlsError> {
        let verify = self.effective_verify(CertificateVerification::On);
        let config = &self.configs(verify, ClientHelloKind::Hybrid).http1;
        let connector = TlsConnector::from(Arc::clone(config));
        let connecting = connector.connect(server_name(host)?, tcp);
        match tokio::time::timeout(self.handshake_timeout, connecting).await {
            Ok(connected) => connected.map_err(|error| TlsError::from_handshake_error(&error)),
            Err(_) => Err(TlsError::timeout()),
        }
    }

    /// Records an established TLS connection and the time that it took, including a second attempt.
    pub fn record_handshake(&self, duration: Duration) {
        self.metrics.record_origin_handshake(duration);
    }

    /// Returns the metrics.
    pub(super) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    fn configs(&self, verify: CertificateVerification, hello: ClientHelloKind) -> &AlpnConfigs {
        let configs = match (verify, &self.verified) {
            (CertificateVerification::On, Some(verified)) => verified,
            (CertificateVerification::On, None) | (CertificateVerification::Skip, _) => {
                &self.unverified
            }
        };
        match hello {
            ClientHelloKind::Hybrid => &configs.hybrid,
            ClientHelloKind::Classic => &configs.classic,
        }
    }

    /// Remembers an origin as old only if a classic ClientHello succeeds. If one fails too, the
    /// cause is unknown, so the large one is tried first the next time. Existing entries are left
    /// to expire.
    fn remember_hello(&self, base: &str, hello: ClientHelloKind, error: Option<&TlsError>) {
        match (hello, error) {
            (ClientHelloKind::Classic, None)
                if self.hello_kind(base) == ClientHelloKind::Hybrid =>
            {
                self.legacy_origins.insert(base.into(), ())
            }
            (ClientHelloKind::Classic, Some(error)) if error.may_be_caused_by_hello() => {
                self.legacy_origins.invalidate(base)
            }
            (ClientHelloKind::Classic | ClientHelloKind::Hybrid, _) => {}
        }
    }
}

impl TlsClientConfigs {
    fn new(verifier: &Arc<dyn ServerCertVerifier>, sessions: usize) -> Result<Self, String> {
        let hybrid = crypto_provider();
        let classic = CryptoProvider {
            kx_groups: classic_groups(),
            ..hybrid.clone()
        };
        Ok(Self {
            hybrid: client_config(hybrid, Arc::clone(verifier), sessions)?,
            classic: client_config(classic, Arc::clone(verifier), sessions.min(FEW_SESSIONS))?,
        })
    }
}

fn classic_groups() -> Vec<&'static dyn rustls::crypto::SupportedKxGroup> {
    use rustls::crypto::aws_lc_rs::kx_group::{SECP256R1, SECP384R1, X25519};
    vec![X25519, SECP256R1, SECP384R1]
}

fn client_config(
    provider: CryptoProvider,
    verifier: Arc<dyn ServerCertVerifier>,
    sessions: usize,
) -> Result<AlpnConfigs, String> {
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    config.resumption = Resumption::in_memory_sessions(sessions * TICKETS_PER_ORIGIN);
    Ok(AlpnConfigs::new(config))
}

/// Returns `true` if the origin has selected HTTP/2.
pub(super) fn has_selected_http2(stream: &OriginStream) -> bool {
    match stream {
        MaybeHttpsStream::Http(_) => false,
        MaybeHttpsStream::Https(tls) => tls.inner().get_ref().1.alpn_protocol() == Some(HTTP_2),
    }
}

/// Performs the handshake. The requested name, which the certificate must contain, is the target's
/// host.
async fn connect_tls(
    stream: MaybeTlsStream,
    target: &UrlTarget,
    config: Arc<ClientConfig>,
) -> Result<OriginStream, TlsError> {
    let name = server_name(target.host())?;
    let tcp = TokioIo::new(TokioIo::new(OriginTcp::for_handshake(stream)));
    let connected = TlsConnector::from(config).connect(name, tcp).await;
    let connected = connected.map_err(|error| TlsError::from_handshake_error(&error))?;
    let mut connected = MaybeHttpsStream::Https(TokioIo::new(connected));
    stream::stop_coalescing(&mut connected);
    Ok(connected)
}

/// Returns the name that the certificate of a canonical host must contain.
fn server_name(host: &str) -> Result<ServerName<'static>, TlsError> {
    let bare = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(host);
    ServerName::try_from(bare)
        .map(|name| name.to_owned())
        .map_err(|_| TlsError::invalid_name())
}

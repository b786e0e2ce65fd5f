//! TLS to origins: whom to trust, how to say hello, and what a handshake that fails means.
//!
//! It is given connections that stand: who dials, and where to, is not decided here. Nothing of a request is read.

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

use crate::metrics::Metrics;
use crate::model::certificate_verification::CertificateVerification;
use crate::tls::provider::crypto_provider;
use crate::urls::target::UrlTarget;

pub use error::TlsError;
pub use stream::OriginTcp;
use verifier::{AcceptAnyVerifier, CachingVerifier};

/// A connection to an origin, with TLS or without.
pub type OriginStream = MaybeHttpsStream<TokioIo<OriginTcp>>;

/// What is spoken inside. HTTP/2 would be offered here, once the pool can share a connection.
const ALPN_PROTOCOLS: [&[u8]; 1] = [b"http/1.1"];
/// Tickets that one origin may give; the library counts in tickets.
const TICKETS_PER_ORIGIN: usize = 8;
/// Origins whose sessions are remembered.
const SESSIONS: usize = 4096;
/// The same for the kinds of handshakes that are rare.
const FEW_SESSIONS: usize = 512;
/// Origins that are known to need a small hello.
const MAX_LEGACY_ORIGINS: u64 = 10_000;
/// After which time one is tried with a large hello again.
const LEGACY_TTL: Duration = Duration::from_hours(12);

/// How TLS is spoken to origins.
#[derive(Clone, Debug)]
pub struct OriginTlsSettings {
    /// Whether certificates are verified at all.
    pub verify: CertificateVerification,
    /// Whom they must come from.
    pub roots: RootCertStore,
    /// How long one handshake may take.
    pub handshake_timeout: Duration,
}

/// How a handshake begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientHelloKind {
    /// With a post-quantum key share: more than fits into one packet, which a few old origins cannot read.
    Hybrid,
    /// Without one.
    Classic,
}

/// Speaks TLS to origins.
#[derive(Debug)]
pub struct OriginTls {
    /// None if certificates are not verified at all.
    verified: Option<TlsClientConfigs>,
    unverified: TlsClientConfigs,
    handshake_timeout: Duration,
    legacy_origins: Cache<Box<str>, ()>,
    metrics: Metrics,
}

/// One configuration for each hello. A session is remembered by the configuration that made it, so that none of an
/// origin that has proved nothing can stand for a proof.
#[derive(Debug)]
struct TlsClientConfigs {
    hybrid: Arc<ClientConfig>,
    classic: Arc<ClientConfig>,
}

impl OriginTls {
    /// TLS by these settings.
    ///
    /// # Errors
    /// If certificates are to be verified and there is no root, in words.
    pub fn new(settings: OriginTlsSettings, metrics: Metrics) -> Result<Self, String> {
        let OriginTlsSettings {
            verify,
            roots,
            handshake_timeout: handshake,
        } = settings;
        let verified = match verify {
            CertificateVerification::On => {
                let trusted: Arc<dyn ServerCertVerifier> = Arc::new(CachingVerifier::new(roots)?);
                Some(TlsClientConfigs::new(&trusted, SESSIONS)?)
            }
            CertificateVerification::Skip => None,
        };
        let anybody: Arc<dyn ServerCertVerifier> =
            Arc::new(AcceptAnyVerifier::new(&crypto_provider()));
        let old = Cache::builder()
            .max_capacity(MAX_LEGACY_ORIGINS)
            .time_to_live(LEGACY_TTL)
            .build();
        Ok(Self {
            verified,
            unverified: TlsClientConfigs::new(&anybody, FEW_SESSIONS)?,
            handshake_timeout: handshake,
            legacy_origins: old,
            metrics,
        })
    }

    /// What holds for a request of which this is asked.
    pub fn effective_verify(&self, requested: CertificateVerification) -> CertificateVerification {
        requested.and(if self.verified.is_some() {
            CertificateVerification::On
        } else {
            CertificateVerification::Skip
        })
    }

    /// How to begin with the origin whose URLs begin so (`https://host/`).
    pub fn hello_kind(&self, base: &str) -> ClientHelloKind {
        if self.legacy_origins.contains_key(base) {
            ClientHelloKind::Classic
        } else {
            ClientHelloKind::Hybrid
        }
    }

    /// Speaks TLS on a connection. What is learnt of the hello that the origin can read is remembered.
    ///
    /// # Errors
    /// If there is no connection that can be trusted, or not in time.
    pub async fn handshake(
        &self,
        stream: TcpStream,
        target: &UrlTarget,
        verify: CertificateVerification,
        hello: ClientHelloKind,
    ) -> Result<OriginStream, TlsError> {
        let verify = self.effective_verify(verify);
        let config = Arc::clone(self.config(verify, hello));
        let secured =
            tokio::time::timeout(self.handshake_timeout, connect_tls(stream, target, config));
        let secured = secured.await.unwrap_or(Err(TlsError::timeout()));
        self.remember_hello(target.base(), hello, secured.as_ref().err());
        if secured.is_ok() && verify == CertificateVerification::Skip {
            self.metrics.record_unverified_upstream();
        }
        secured
    }

    /// Counts a connection on which TLS stands, with the time that took, a second try included.
    pub fn record_handshake(&self, took: Duration) {
        self.metrics.record_origin_handshake(took);
    }

    fn config(
        &self,
        verify: CertificateVerification,
        hello: ClientHelloKind,
    ) -> &Arc<ClientConfig> {
        let hellos = match (verify, &self.verified) {
            (CertificateVerification::On, Some(verified)) => verified,
            (CertificateVerification::On, None) | (CertificateVerification::Skip, _) => {
                &self.unverified
            }
        };
        match hello {
            ClientHelloKind::Hybrid => &hellos.hybrid,
            ClientHelloKind::Classic => &hellos.classic,
        }
    }

    /// Only a classic hello that is read tells an old origin; one that is not read tells nothing, and so the large one is
    /// tried first the next time. What is remembered already is left to expire.
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
) -> Result<Arc<ClientConfig>, String> {
    let builder = ClientConfig::builder_with_provider(Arc::new(provider));
    let builder = builder
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = builder
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = builder.with_no_client_auth();
    config.alpn_protocols = ALPN_PROTOCOLS.map(<[u8]>::to_vec).into();
    config.resumption = Resumption::in_memory_sessions(sessions * TICKETS_PER_ORIGIN);
    Ok(Arc::new(config))
}

/// The name that is asked for and that must be in the certificate is the target's host.
async fn connect_tls(
    stream: TcpStream,
    target: &UrlTarget,
    config: Arc<ClientConfig>,
) -> Result<OriginStream, TlsError> {
    let host = target.host();
    let bare = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(host);
    let name = ServerName::try_from(bare)
        .map_err(|_| TlsError::invalid_name())?
        .to_owned();
    let tcp = TokioIo::new(TokioIo::new(OriginTcp::for_handshake(stream)));
    let secured = TlsConnector::from(config).connect(name, tcp).await;
    let secured = secured.map_err(|error| TlsError::from_handshake_error(&error))?;
    let mut secured = MaybeHttpsStream::Https(TokioIo::new(secured));
    stream::stop_coalescing(&mut secured);
    Ok(secured)
}

//! TLS interception: certificates for hosts, and the configured handling of tunnels.

use std::error::Error;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustls::AlertDescription;

use crate::model::reason::Reason;
use crate::model::stage::Stage;
use crate::pipeline::refusal::Refusal;
use crate::pipeline::snapshot::PolicySnapshot;
use crate::pipeline::tunnel::TunnelFacts;
use crate::pipeline::tunnel_tls::{TlsHandling, tls_handling};
use crate::tls::issuer::{CertificateIssuer, IssueError, LeafCertificate};

/// The shortest time between two log messages about clients that do not trust the certificates.
const WARN_INTERVAL: Duration = Duration::from_secs(60);

/// The way in which a client learns that its tunnel is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalDelivery {
    /// Inside TLS, where the client can read the reason (`intercept_to_reject`).
    InsideTls,
    /// With the response to the CONNECT, of which clients show at most the reason phrase.
    AtConnect,
}

/// Intercepts TLS.
#[derive(Debug)]
pub struct Interceptor {
    issuer: CertificateIssuer,
    refusal_delivery: RefusalDelivery,
    last_warning: Mutex<Option<Instant>>,
}

impl Interceptor {
    /// Creates an interceptor that uses certificates of this issuer.
    pub fn new(issuer: CertificateIssuer, refusal_delivery: RefusalDelivery) -> Self {
        Self {
            issuer,
            refusal_delivery,
            last_warning: Mutex::default(),
        }
    }

    /// Returns the way in which refusals are delivered.
    pub fn refusal_delivery(&self) -> RefusalDelivery {
        self.refusal_delivery
    }

    /// Returns the certificate for a host, on behalf of a client.
    ///
    /// # Errors
    /// Returns an error if no certificate can be issued, or if the client's certificate rate is
    /// used up.
    pub async fn certificate(
        &self,
        host: &str,
        client: IpAddr,
        timeout: Duration,
    ) -> Result<Arc<LeafCertificate>, IssueError> {
        self.issuer.get_or_issue(host, client, timeout).await
    }

    /// Returns `true` if another client that does not trust the certificates should be logged: at
    /// most once a minute.
    pub fn should_warn(&self, now: Instant) -> bool {
        let mut last_warning = self.last_warning.lock();
        let next_warning =
            last_warning.is_none_or(|last| now.saturating_duration_since(last) >= WARN_INTERVAL);
        if next_warning {
            *last_warning = Some(now);
        }
        next_warning
    }
}

/// Decides the handling of a tunnel's TLS: by a rule, else by the configuration. Without a
/// certificate authority no tunnel can be intercepted, and one that a rule wants intercepted is
/// refused: it must not become opaque.
pub fn tls_action(
    interceptor: Option<&Interceptor>,
    facts: &TunnelFacts,
    snapshot: &PolicySnapshot,
) -> TlsHandling {
    match (interceptor, tls_handling(facts, snapshot)) {
        (None, Some(TlsHandling::Intercept)) => {
            TlsHandling::Reject(Box::new(interception_unavailable()))
        }
        (_, Some(handling)) => handling,
        (None, None) => TlsHandling::Tunnel,
        (Some(_), None) => TlsHandling::Intercept,
    }
}

pub(crate) fn interception_unavailable() -> Refusal {
    Refusal::new(Reason::Undecided, Stage::Connect).with_detail(
        "a rule requires this host's tunnels to be intercepted (tls: intercept), but no certificate authority is \
         configured (tls.intercept)",
    )
}

/// Returns the logged word for a failed handshake.
pub fn handshake_failure(error: &io::Error) -> &'static str {
    use AlertDescription as A;
    use io::ErrorKind as K;
    let tls = error
        .get_ref()
        .and_then(|inner| (inner as &dyn Error).downcast_ref::<rustls::Error>());
    match tls {
        Some(rustls::Error::AlertReceived(A::UnknownCA)) => "client_tls_unknown_ca",
        Some(rustls::Error::AlertReceived(A::BadCertificate)) => "client_tls_bad_certificate",
        Some(rustls::Error::AlertReceived(A::CertificateUnknown)) => {
            "client_tls_certificate_unknown"
        }
        Some(rustls::Error::AlertReceived(A::CertificateExpired)) => {
            "client_tls_certificate_expired"
        }
        Some(rustls::Error::AlertReceived(_)) => "client_tls_alert",
        Some(_) => "client_tls_protocol",
        None if matches!(
            error.kind(),
            K::UnexpectedEof | K::ConnectionReset | K::BrokenPipe
        ) =>
        {
            "client_tls_left"
        }
        None => "client_tls_io",
    }
}

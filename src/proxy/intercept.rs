//! What looking into TLS takes: certificates for hosts, and what the configuration says of tunnels.

use std::error::Error;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustls::AlertDescription;

use crate::model::reason::Reason;
use crate::model::stage::Stage;
use crate::pipeline::refusal::Refusal;
use crate::pipeline::snapshot::PolicySnapshot;
use crate::pipeline::tunnel::TunnelFacts;
use crate::pipeline::tunnel_tls::{TlsHandling, tls_handling};
use crate::tls::issuer::{CertificateIssuer, IssueError, LeafCertificate};

/// How often the operator is told of clients that do not trust the certificates.
const WARN_INTERVAL: Duration = Duration::from_secs(60);

/// How a client learns that its tunnel is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalDelivery {
    /// Inside TLS, where it can read why (`intercept_to_reject`).
    InsideTls,
    /// By the answer to its CONNECT, of which clients show the phrase at most.
    AtConnect,
}

/// Looks into TLS.
#[derive(Debug)]
pub struct Interceptor {
    issuer: CertificateIssuer,
    refusal_delivery: RefusalDelivery,
    last_warning: Mutex<Option<Instant>>,
}

impl Interceptor {
    /// Looks into TLS by certificates of this minter.
    pub fn new(issuer: CertificateIssuer, refusal_delivery: RefusalDelivery) -> Self {
        Self {
            issuer,
            refusal_delivery,
            last_warning: Mutex::default(),
        }
    }

    /// How refusals are told.
    pub fn refusal_delivery(&self) -> RefusalDelivery {
        self.refusal_delivery
    }

    /// The certificate of a host, for a client.
    ///
    /// # Errors
    /// If this client has had too many made.
    pub async fn certificate(
        &self,
        host: &str,
        client: IpAddr,
        patience: Duration,
    ) -> Result<Arc<LeafCertificate>, IssueError> {
        self.issuer.get_or_issue(host, client, patience).await
    }

    /// Whether the operator is to be told of another client that does not trust the certificates: once a minute.
    pub fn should_warn(&self, now: Instant) -> bool {
        let mut told = self
            .last_warning
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let due = told.is_none_or(|last| now.saturating_duration_since(last) >= WARN_INTERVAL);
        if due {
            *told = Some(now);
        }
        due
    }
}

/// What becomes of a tunnel's TLS: what a rule says, else the configuration. Without an authority nothing can be looked
/// into, and what a rule wants looked into is refused: it must not pass unseen.
pub fn tls_action(
    interceptor: Option<&Interceptor>,
    facts: &TunnelFacts,
    snapshot: &PolicySnapshot,
) -> TlsHandling {
    match (interceptor, tls_handling(facts, snapshot)) {
        (None, Some(TlsHandling::Intercept)) => {
            TlsHandling::Reject(Box::new(interception_unavailable()))
        }
        (_, Some(said)) => said,
        (None, None) => TlsHandling::Tunnel,
        (Some(_), None) => TlsHandling::Intercept,
    }
}

pub(crate) fn interception_unavailable() -> Refusal {
    Refusal::new(Reason::Undecided, Stage::Connect).with_detail(
        "a rule wants this host's tunnels looked into (tls: intercept), but this proxy has no certificate authority \
         (tls.intercept in the configuration)",
    )
}

/// Why a client did not finish a handshake: a word for the log.
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

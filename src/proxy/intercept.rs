//! TLS interception: certificates for hosts, and the configured handling of tunnels.

use std::error::Error;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use moka::sync::Cache;
use parking_lot::Mutex;
use rustls::AlertDescription;

use crate::metrics::CrawlerIndex;
use crate::metrics::labels::ClientTlsFailureCause;
use crate::model::reason::Reason;
use crate::model::stage::Stage;
use crate::pipeline::refusal::Refusal;
use crate::pipeline::snapshot::PolicySnapshot;
use crate::pipeline::tunnel::TunnelFacts;
use crate::pipeline::tunnel_tls::{TlsHandling, tls_handling};
use crate::tls::issuer::{CertificateIssuer, IssueError, LeafCertificate};

/// The shortest time between two log messages about clients that do not trust the certificates.
const WARN_INTERVAL: Duration = Duration::from_secs(60);

/// The number of clients that are known to trust the certificates.
const MAX_TRUSTING_CLIENTS: u64 = 4096;
/// The time after a client's last completed handshake for which it is known to trust the certificates.
const TRUST_MEMORY: Duration = Duration::from_secs(600);

/// The alerts about a certificate (RFC 8446 section 6.2), and their logged words.
const DISTRUST_ALERTS: [(AlertDescription, &str); 7] = [
    (AlertDescription::UnknownCA, "client_tls_unknown_ca"),
    (
        AlertDescription::BadCertificate,
        "client_tls_bad_certificate",
    ),
    (
        AlertDescription::CertificateUnknown,
        "client_tls_certificate_unknown",
    ),
    (
        AlertDescription::CertificateExpired,
        "client_tls_certificate_expired",
    ),
    (AlertDescription::CertificateRevoked, "client_tls_alert"),
    (AlertDescription::UnsupportedCertificate, "client_tls_alert"),
    (AlertDescription::AccessDenied, "client_tls_alert"),
];

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
    trusting_clients: Cache<(CrawlerIndex, IpAddr), ()>,
}

/// A failure of the client in a handshake: the logged word and the cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientTlsFailure {
    pub log_word: &'static str,
    pub cause: ClientTlsFailureCause,
}

impl Interceptor {
    /// Creates an interceptor that uses certificates of this issuer.
    pub fn new(issuer: CertificateIssuer, refusal_delivery: RefusalDelivery) -> Self {
        Self {
            issuer,
            refusal_delivery,
            last_warning: Mutex::default(),
            trusting_clients: Cache::builder()
                .max_capacity(MAX_TRUSTING_CLIENTS)
                .time_to_live(TRUST_MEMORY)
                .build(),
        }
    }

    /// Records that a client has completed a handshake, which it does only if it trusts the certificate.
    pub(super) fn record_trust(&self, crawler: CrawlerIndex, client: IpAddr) {
        self.trusting_clients.insert((crawler, client), ());
    }

    /// Returns the failure of a client, given the error of the handshake. A client that leaves without an alert either
    /// does not trust the certificate (Node, Java, aiohttp) or needs no more than the handshake (the ALPN probe of
    /// got-scraping). It is taken for the former unless it has completed a handshake before.
    pub(super) fn classify_failure(
        &self,
        error: &io::Error,
        crawler: CrawlerIndex,
        client: IpAddr,
    ) -> ClientTlsFailure {
        let mut failure = handshake_failure(error);
        if failure.cause == ClientTlsFailureCause::Left
            && !self.trusting_clients.contains_key(&(crawler, client))
        {
            failure.cause = ClientTlsFailureCause::Distrust;
        }
        failure
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

/// Returns the failure of a client by the error of the handshake alone.
fn handshake_failure(error: &io::Error) -> ClientTlsFailure {
    use ClientTlsFailureCause as C;
    use io::ErrorKind as K;
    let tls = error
        .get_ref()
        .and_then(|inner| (inner as &dyn Error).downcast_ref::<rustls::Error>());
    let (log_word, cause) = match tls {
        Some(rustls::Error::AlertReceived(alert)) => DISTRUST_ALERTS
            .iter()
            .find(|(distrust, _)| distrust == alert)
            .map_or(("client_tls_alert", C::Alert), |(_, log_word)| {
                (log_word, C::Distrust)
            }),
        Some(_) => ("client_tls_protocol", C::Protocol),
        None if matches!(
            error.kind(),
            K::UnexpectedEof | K::ConnectionReset | K::BrokenPipe
        ) =>
        {
            ("client_tls_left", C::Left)
        }
        None => ("client_tls_io", C::Io),
    };
    ClientTlsFailure { log_word, cause }
}

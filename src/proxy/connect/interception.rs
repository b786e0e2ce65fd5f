//! Handles an intercepted tunnel after the 200 to the CONNECT: the proxy terminates TLS, or reads
//! cleartext HTTP. The requests inside are evaluated like any other.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::metrics::labels::{ClientTlsFailureCause, ForeignBytesKind, SniCheck};
use crate::metrics::record::{RequestRecord, UrlRetention};
use crate::model::reason::Reason;
use crate::model::stage::Stage;
use crate::pipeline::crawlers::{ConnectedClient, CrawlerIdentity};
use crate::pipeline::refusal::Refusal;
use crate::pipeline::snapshot::PolicySnapshot;
use crate::proxy::drain::DrainWatch;
use crate::proxy::head::{ClientSocket, client_tls};
use crate::proxy::http::ProxyService;
use crate::proxy::intercept::{ClientTlsFailure, Interceptor};
use crate::proxy::request_target::{EnclosingTunnel, RefusedTunnel};
use crate::proxy::sniff::SniffResult;
use crate::proxy::tunnel::wait_cut_off;
use crate::tls::issuer::{IssueError, SessionTickets};
use crate::urls::target::HostTarget;

use super::ConnectionContext;
use super::after_connect::{FirstBytes, record_rejected, starts_http};

/// The failure of a client that does not complete the handshake in time.
const TIMED_OUT: ClientTlsFailure = ClientTlsFailure {
    log_word: "client_tls_timeout",
    cause: ClientTlsFailureCause::Timeout,
};

/// A granted CONNECT whose contents are intercepted.
#[derive(Debug)]
pub(super) struct InterceptedTunnel {
    /// The crawler that opened it: its credentials apply to the requests inside.
    pub(super) identity: CrawlerIdentity,
    /// The reason for refusing every request inside, if there is one.
    pub(super) refusal: Option<Box<Refusal>>,
    pub(super) interceptor: Arc<Interceptor>,
    /// The policy that evaluated the CONNECT.
    pub(super) policy: Arc<PolicySnapshot>,
}

/// The cause of a failed handshake.
enum HandshakeFailure {
    /// The client failed.
    Client(ClientTlsFailure),
    /// The client has used up its certificate rate and would have to wait too long.
    RateLimited,
    /// No certificate can be issued.
    Internal(String),
    /// The proxy is shutting down.
    ShuttingDown,
}

impl ProxyService {
    /// Prepares the connection until HTTP can be read from it: reads the first bytes, and terminates TLS if there is any.
    pub(super) async fn start_interception(
        &self,
        mut client: ClientSocket,
        (mut record, host): (RequestRecord, HostTarget),
        mut tunnel: InterceptedTunnel,
        context: &mut ConnectionContext,
        drain: &mut DrainWatch,
    ) -> Option<ClientSocket> {
        let first = self.sniff_first_bytes(&mut client, drain).await;
        let (client, inside) = if is_plain_http(&first, &client) {
            record.discard();
            (client, EnclosingTunnel::plain(&host))
        } else {
            let check = self.check_sni(first, &host)?;
            let refused = match check {
                SniCheck::Match | SniCheck::Ech | SniCheck::None => tunnel.refusal.take(),
                SniCheck::Mismatch => Some(Box::new(sni_mismatch())),
                SniCheck::NotTls | SniCheck::Malformed | SniCheck::Timeout => {
                    self.close_unrecognized(check, &client, record);
                    return None;
                }
            };
            let tickets = if matches!(check, SniCheck::Match | SniCheck::Ech) && refused.is_none() {
                SessionTickets::Stateless
            } else {
                SessionTickets::None
            };
            if let Some(refusal) = &refused {
                record.set_policy(&tunnel.policy.counters);
                refusal.record_in(&mut record);
            }
            let hello = (&host, tickets, context.caller.address());
            match self.handshake(client, &tunnel, hello, drain).await {
                Ok(client) => (client, tls_tunnel(&host, refused, &tunnel, record)),
                Err(HandshakeFailure::Client(failure))
                    if failure.cause == ClientTlsFailureCause::Left && refused.is_none() =>
                {
                    // A probe by a client that trusts the authority is no event of its own.
                    self.count_client_failure(failure, &tunnel);
                    record.discard();
                    return None;
                }
                Err(failure) => {
                    self.close_failed_handshake(failure, &tunnel, &host, record);
                    return None;
                }
            }
        };
        context.caller = ConnectedClient::for_tunnel(context.caller.address(), tunnel.identity);
        context.enclosing_tunnel = Some((inside, None));
        Some(client)
    }

    async fn handshake(
        &self,
        client: ClientSocket,
        tunnel: &InterceptedTunnel,
        (host, tickets, address): (&HostTarget, SessionTickets, std::net::IpAddr),
        drain: &mut DrainWatch,
    ) -> Result<ClientSocket, HandshakeFailure> {
        let timeout: Duration = self.tunnels.settings.hello;
        let InterceptedTunnel {
            interceptor,
            identity,
            ..
        } = tunnel;
        let clock = self.recorder.clock();
        let handshake = async {
            let leaf = interceptor
                .certificate(host.host(), address, timeout)
                .await
                .map_err(HandshakeFailure::from_issue_error)?;
            let began = clock.now();
            // The wait for a certificate does not count against the client's timeout.
            let handshake = tokio::time::timeout(
                timeout,
                client_tls::accept(client, leaf.server_config(tickets)),
            )
            .await;
            let handshake = handshake.map_err(|_| HandshakeFailure::Client(TIMED_OUT))?;
            let client = handshake.map_err(|error: io::Error| {
                let failure = interceptor.classify_failure(&error, identity.index, address);
                HandshakeFailure::Client(failure)
            })?;
            interceptor.record_trust(identity.index, address);
            let metrics = self.recorder.metrics();
            metrics.record_client_handshake(clock.now().saturating_duration_since(began));
            metrics.record_crawler_handshake(identity.index, clock.wall_time());
            Ok(client)
        };
        tokio::select! {
            result = handshake => result,
            () = wait_cut_off(drain) => Err(HandshakeFailure::ShuttingDown),
        }
    }

    /// Closes a tunnel whose first bytes are neither TLS nor HTTP.
    fn close_unrecognized(&self, check: SniCheck, client: &ClientSocket, record: RequestRecord) {
        let (reason, close_reason) = match (check, client.unread.is_empty()) {
            (SniCheck::Timeout, true) => (Reason::RequestTimeout, "tunnel_silent"),
            (SniCheck::Timeout, false) => (Reason::RequestTimeout, "client_hello_timeout"),
            (SniCheck::Malformed, _) => (Reason::BadRequest, "client_hello_malformed"),
            (
                SniCheck::NotTls
                | SniCheck::Match
                | SniCheck::Mismatch
                | SniCheck::None
                | SniCheck::Ech,
                _,
            ) => {
                self.recorder
                    .metrics()
                    .record_foreign_bytes(ForeignBytesKind::Unknown);
                (Reason::BadRequest, "not_http")
            }
        };
        record_rejected(record, reason, UrlRetention::Full, close_reason);
    }

    fn close_failed_handshake(
        &self,
        failure: HandshakeFailure,
        tunnel: &InterceptedTunnel,
        host: &HostTarget,
        record: RequestRecord,
    ) {
        match failure {
            HandshakeFailure::ShuttingDown => record.discard(),
            HandshakeFailure::RateLimited => {
                record_rejected(record, Reason::Overloaded, UrlRetention::Full, "mint_rate")
            }
            HandshakeFailure::Internal(error) => {
                tracing::error!(host = host.host(), error, "cannot issue a certificate");
                record_rejected(
                    record,
                    Reason::InternalError,
                    UrlRetention::Full,
                    "mint_failed",
                );
            }
            HandshakeFailure::Client(failure) => {
                let mut record = record;
                record.set_close_reason(failure.log_word);
                self.count_client_failure(failure, tunnel);
                if failure.cause == ClientTlsFailureCause::Distrust
                    && tunnel.interceptor.should_warn(self.recorder.clock().now())
                {
                    tracing::warn!(
                        crawler = tunnel.identity.crawler.as_str(),
                        host = host.host(),
                        why = failure.log_word,
                        "a client aborted its TLS handshake: does it trust the CA? `crawlgate env` prints the \
                         settings for common clients. Logged at most once a minute; \
                         crawlgate_client_tls_failures_total{{cause=\"distrust\"}} counts all such clients"
                    );
                }
            }
        }
    }

    fn count_client_failure(&self, failure: ClientTlsFailure, tunnel: &InterceptedTunnel) {
        self.recorder.metrics().record_client_handshake_failure(
            tunnel.identity.index,
            failure.cause,
            self.recorder.clock().wall_time(),
        );
    }
}

impl HandshakeFailure {
    fn from_issue_error(error: IssueError) -> Self {
        match error {
            IssueError::RateLimited => Self::RateLimited,
            IssueError::Failed(error) => Self::Internal(error),
        }
    }
}

/// Returns an established TLS tunnel. The CONNECT of a refused tunnel is recorded as refused,
/// unless a request follows inside.
fn tls_tunnel(
    host: &HostTarget,
    refusal: Option<Box<Refusal>>,
    tunnel: &InterceptedTunnel,
    record: RequestRecord,
) -> EnclosingTunnel {
    let Some(refusal) = refusal else {
        record.discard();
        return EnclosingTunnel::tls(host, None);
    };
    EnclosingTunnel::tls(
        host,
        Some(RefusedTunnel::new(
            refusal,
            Arc::clone(&tunnel.policy),
            tunnel.identity.crawler.clone(),
            record,
        )),
    )
}

/// Returns `true` if the client begins with cleartext HTTP, as undici, linkinator and ureq do after
/// `CONNECT host:80`.
fn is_plain_http(first: &FirstBytes, client: &ClientSocket) -> bool {
    matches!(first, FirstBytes::Sniffed(SniffResult::NotTls))
        && client.unread.first().is_some_and(|byte| starts_http(*byte))
}

/// Returns the refusal of a tunnel with a wrong server name. Its certificate is for the host of the
/// CONNECT, and the first request inside is answered with this refusal.
fn sni_mismatch() -> Refusal {
    Refusal::new(Reason::HostMismatch, Stage::Target)
        .with_detail("the server name in the ClientHello is not the host of the CONNECT")
}

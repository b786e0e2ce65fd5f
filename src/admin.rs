//! The admin listener: metrics, health, the API and the admin page. It is never reachable through the proxy.
//!
//! It is a small HTTP/1.1 server. Each connection carries one request and has a time limit, except for streams. [`guard`]
//! decides first which requests are answered at all, and `connections` which connection makes room under a flood.

mod api_request;
pub mod body;
pub mod config;
mod connections;
mod crawlers;
pub mod decisions;
mod explain;
pub mod fleet;
pub mod guard;
pub mod health;
mod history;
pub mod hosts;
pub mod ledger;
mod messages;
mod policy;
pub mod policy_api;
mod policy_diff;
mod policy_rules;
mod query;
mod response;
pub mod rollout;
mod route;
mod rule_trends;
mod shadow;
pub mod status;
pub mod stops;
pub mod ui;

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};

use crate::metrics::Metrics;

use body::StreamEnd;
pub use connections::{AdminConnection, AdminConnections, Eviction};
use decisions::DecisionsApi;
use fleet::FleetApi;
use guard::AdminGuard;
use health::Readiness;
use history::CounterHistory;
use hosts::HostsApi;
use ledger::LedgerApi;
use policy_api::PolicyApi;
use rollout::RolloutApi;
use rule_trends::RuleTrends;
use status::ProcessInfo;
use stops::StopsApi;

/// The time limit for a request's head, which probes and scrapers send at once.
const HEAD_TIMEOUT: Duration = Duration::from_secs(3);
/// The time limit for a whole connection, so that a client that does not read its response frees its slot.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);
/// The time limit for the last chunks of a stream, after its source has ended.
const STREAM_FLUSH_TIMEOUT: Duration = Duration::from_secs(30);
/// The largest head.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// The pause after a failed accept (out of file descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub struct AdminServer {
    guard: AdminGuard,
    apis: AdminApis,
    connections: AdminConnections,
    history: CounterHistory,
    rule_trends: Arc<RuleTrends>,
}

/// The parts of a proxy that the admin server shows and controls.
#[derive(Debug)]
pub struct AdminApis {
    /// The metrics of `/metrics` and of the status.
    pub metrics: Metrics,
    /// The checks of `/readyz`.
    pub readiness: Readiness,
    pub policy: PolicyApi,
    /// Changes of the policy, and earlier policies.
    pub rollout: RolloutApi,
    /// Emergency stops.
    pub stops: StopsApi,
    /// The process that the status describes.
    pub process: ProcessInfo,
    /// The certificates (PEM) that clients have to trust, if TLS is intercepted.
    pub authorities: Option<String>,
    /// The latest decisions.
    pub decisions: DecisionsApi,
    /// The tracked hosts.
    pub hosts: HostsApi,
    /// The URL ledger.
    pub ledger: LedgerApi,
    /// The fleet that this proxy is a node of.
    pub fleet: Option<FleetApi>,
}

impl AdminServer {
    /// The most connections at once, if there are enough file descriptors.
    pub const MAX_CONNECTIONS: usize = 128;

    /// Creates a server that answers the requests that `guard` admits, on at most this number of connections at once.
    pub fn new(guard: AdminGuard, apis: AdminApis, max_connections: usize) -> Self {
        Self {
            guard,
            apis,
            connections: AdminConnections::new(max_connections),
            history: CounterHistory::default(),
            rule_trends: Arc::default(),
        }
    }

    /// Returns a handle to wait for the open connections after the server has stopped.
    pub fn connections(&self) -> AdminConnections {
        self.connections.clone()
    }

    /// Serves until `stop` is ready. Open connections are finished in the background.
    pub async fn serve(self, listener: TcpListener, stop: impl Future<Output = ()>) {
        let admin = Arc::new(self);
        let mut stop = std::pin::pin!(stop);
        // Polled beside the accepts, none of which it cancels.
        let sampler = Arc::clone(&admin);
        let mut sampling = std::pin::pin!(async {
            tokio::join!(sampler.sample_history(), sampler.sample_rules());
        });
        loop {
            tokio::select! {
                biased;
                () = &mut stop => return,
                () = &mut sampling => return,
                accepted = accept(&listener, &admin.connections) => {
                    if let Some((stream, connection, eviction)) = accepted {
                        let admin = Arc::clone(&admin);
                        tokio::spawn(serve_until_evicted(admin, stream, connection, eviction));
                    }
                    // A flood of connections must not keep the thread.
                    tokio::task::yield_now().await;
                }
            }
        }
    }
}

async fn accept(
    listener: &TcpListener,
    connections: &AdminConnections,
) -> Option<(TcpStream, AdminConnection, Eviction)> {
    match listener.accept().await {
        Ok((stream, peer)) => {
            let local = stream.local_addr().ok()?;
            let (connection, eviction) = connections.admit(peer.ip(), local).await?;
            Some((stream, connection, eviction))
        }
        Err(error) => {
            tracing::warn!(%error, "admin listener cannot accept");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

async fn serve_until_evicted(
    admin: Arc<AdminServer>,
    stream: TcpStream,
    connection: AdminConnection,
    eviction: Eviction,
) {
    tokio::select! {
        () = serve_connection(&admin, stream, &connection) => {}
        Ok(()) = eviction => {}
    }
}

async fn serve_connection(admin: &AdminServer, stream: TcpStream, connection: &AdminConnection) {
    // Set if the connection's one response is a stream.
    let stream_end: Mutex<Option<StreamEnd>> = Mutex::default();
    let service = service_fn(async |request: Request<Incoming>| {
        connection.begin_response();
        let request = request.map(Incoming::boxed_unsync);
        let mut response = admin.handle(request, connection).await;
        *stream_end.lock() = response.body_mut().take_stream_end();
        Ok::<_, Infallible>(response)
    });
    // Errors are those of the client, or its disconnect: there is nothing to report.
    let mut serving = std::pin::pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(MAX_HEAD_BYTES)
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), service)
    );
    let in_time = tokio::time::timeout(CONNECTION_TIMEOUT, &mut serving)
        .await
        .is_ok();
    let stream_end = stream_end.lock().take();
    if let (false, Some(stream_end)) = (in_time, stream_end) {
        tokio::select! {
            _ = &mut serving => {}
            _ = stream_end => drop(tokio::time::timeout(STREAM_FLUSH_TIMEOUT, serving).await),
        }
    }
}

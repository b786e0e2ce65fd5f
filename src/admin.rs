//! The admin listener: metrics, health and the API; never reachable through the proxy.
//!
//! A small HTTP/1.1 server of its own: one request a connection, within a time, but for streams. Who may ask is decided in
//! [`guard`], before anything else is looked at. It names no part of the proxy: what it shows is handed to it.

mod api_request;
pub mod body;
pub mod decisions;
mod explain;
pub mod guard;
pub mod health;
pub mod hosts;
pub mod ledger;
mod openapi;
mod policy;
pub mod policy_api;
mod policy_diff;
mod query;
mod response;
mod route;
mod shadow;
pub mod status;
pub mod stops;
pub mod ui;

use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::clock::Clock;
use crate::metrics::Metrics;

use body::{AdminBody, StreamEnd};
use decisions::DecisionsApi;
use guard::AdminGuard;
use health::Readiness;
use hosts::HostsApi;
use ledger::LedgerApi;
use policy_api::PolicyApi;
use status::ProcessInfo;
use stops::StopsApi;

/// Connections at once; more wait in the socket's queue.
const MAX_CONNECTIONS: usize = 64;
/// For a request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// For a whole connection: a client that does not read its answer holds no place for longer.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);
/// For the last pieces of a stream, once its source has ended.
const STREAM_FLUSH_TIMEOUT: Duration = Duration::from_secs(30);
/// The largest head.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// After a failed accept (out of file descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The admin server.
#[derive(Debug)]
pub struct AdminServer {
    guard: AdminGuard,
    metrics: Metrics,
    readiness: Readiness,
    policy: PolicyApi,
    stops: StopsApi,
    process: ProcessInfo,
    authorities: Option<String>,
    decisions: Option<DecisionsApi>,
    hosts: Option<HostsApi>,
    ledger: Option<LedgerApi>,
    connection_permits: Arc<Semaphore>,
}

/// The connections of an admin server.
#[derive(Clone, Debug)]
pub struct AdminConnections(Arc<Semaphore>);

impl AdminConnections {
    /// Waits until there is none. Of use once the server takes no more.
    pub async fn wait_until_closed(&self) {
        let all = u32::try_from(MAX_CONNECTIONS).unwrap_or(u32::MAX);
        let _ = self.0.acquire_many(all).await;
    }
}

impl AdminServer {
    /// A server that lets in whom the guard admits.
    pub fn new(
        guard: AdminGuard,
        metrics: Metrics,
        readiness: Readiness,
        policy: PolicyApi,
        stops: StopsApi,
    ) -> Self {
        let process = ProcessInfo::without_instance(Clock::system());
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let (authorities, live, hosts, ledger) = (None, None, None, None);
        Self {
            guard,
            metrics,
            readiness,
            policy,
            stops,
            process,
            authorities,
            decisions: live,
            hosts,
            ledger,
            connection_permits: places,
        }
    }

    /// Says of which process all this is.
    pub fn with_process(self, process: ProcessInfo) -> Self {
        Self { process, ..self }
    }

    /// Shows these certificates (PEM) to clients that shall trust them.
    pub fn with_authorities(self, pem: String) -> Self {
        Self {
            authorities: Some(pem),
            ..self
        }
    }

    /// Shows decisions as they come.
    pub fn with_decisions(self, live: DecisionsApi) -> Self {
        Self {
            decisions: Some(live),
            ..self
        }
    }

    /// Shows the hosts that are tracked.
    pub fn with_hosts(self, hosts: HostsApi) -> Self {
        Self {
            hosts: Some(hosts),
            ..self
        }
    }

    /// Shows the URLs that are remembered.
    pub fn with_ledger(self, ledger: LedgerApi) -> Self {
        Self {
            ledger: Some(ledger),
            ..self
        }
    }

    /// Its connections, to be waited for behind its end.
    pub fn connections(&self) -> AdminConnections {
        AdminConnections(Arc::clone(&self.connection_permits))
    }

    /// Serves until `stop` is ready; connections under way are finished in the background.
    pub async fn serve(self, listener: TcpListener, stop: impl Future<Output = ()>) {
        let admin = Arc::new(self);
        let places = Arc::clone(&admin.connection_permits);
        let mut stop = std::pin::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => return,
                accepted = accept(&listener, &places) => {
                    if let Some((stream, place)) = accepted {
                        tokio::spawn(serve_connection(Arc::clone(&admin), stream, place));
                    }
                }
            }
        }
    }

    /// Answers one request that came in on a connection to `local`.
    pub async fn handle<B>(&self, request: Request<B>, local: SocketAddr) -> Response<AdminBody>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        if let Err(refused) = self.guard.check(&request, local) {
            return refused.into_response().map(AdminBody::from);
        }
        self.dispatch(request).await
    }
}

async fn accept(
    listener: &TcpListener,
    permits: &Arc<Semaphore>,
) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    let place = Arc::clone(permits).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, place)),
        Err(error) => {
            tracing::warn!(%error, "admin listener cannot accept");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

async fn serve_connection(
    admin: Arc<AdminServer>,
    stream: TcpStream,
    permit: OwnedSemaphorePermit,
) {
    let Ok(local) = stream.local_addr() else {
        return;
    };
    let stream_over = StreamEndSlot::default();
    let service = service_fn(|request| {
        let (admin, stream_over) = (Arc::clone(&admin), &stream_over);
        async move {
            let mut answer = admin.handle(request, local).await;
            stream_over.set(answer.body_mut().take_stream_end());
            Ok::<_, Infallible>(answer)
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    // A client's mistake or its leaving is its own affair.
    let mut served = std::pin::pin!(served);
    let in_time = tokio::time::timeout(CONNECTION_TIMEOUT, &mut served)
        .await
        .is_ok();
    if let (false, Some(over)) = (in_time, stream_over.take()) {
        tokio::select! {
            _ = &mut served => {}
            _ = over => drop(tokio::time::timeout(STREAM_FLUSH_TIMEOUT, served).await),
        }
    }
    drop(permit);
}

/// Where a connection's one answer leaves word of when its stream is over.
#[derive(Debug, Default)]
struct StreamEndSlot(Mutex<Option<StreamEnd>>);

impl StreamEndSlot {
    fn set(&self, over: Option<StreamEnd>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = over;
    }

    fn take(&self) -> Option<StreamEnd> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

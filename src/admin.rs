//! The admin listener: metrics, health and the API; never reachable through the proxy.
//!
//! A small HTTP/1.1 server of its own: one request a connection. Who may ask is decided in
//! [`guard`], before anything else is looked at. It names no part of the proxy: what it shows is handed to it.

pub mod api;
pub mod guard;
pub mod health;
mod page;
mod shadow;

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::metrics::{Metrics, TEXT_FORMAT};

use api::PolicyApi;
use guard::{Access, Guard};
use health::Readiness;
use page::{PLAIN, page, problem};

/// Connections at once; more wait in the socket's queue.
const CONNECTIONS: usize = 64;
/// For a request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// For a whole connection: a client that does not read its answer holds no place for longer.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);
/// The largest head.
const HEAD_BYTES: usize = 16 << 10;
/// After a failed accept (out of file descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What clients import as a certificate.
const PEM: &str = "application/x-pem-file";

type Answer = Response<Full<Bytes>>;

/// The admin server.
#[derive(Debug)]
pub struct Admin {
    guard: Guard,
    metrics: Metrics,
    readiness: Readiness,
    policy: PolicyApi,
    authorities: Option<String>,
}

impl Admin {
    /// A server that lets in whom the guard admits.
    pub fn new(guard: Guard, metrics: Metrics, readiness: Readiness, policy: PolicyApi) -> Self {
        Self { guard, metrics, readiness, policy, authorities: None }
    }

    /// Shows these certificates (PEM) to clients that shall trust them.
    pub fn authorities(self, pem: String) -> Self {
        Self { authorities: Some(pem), ..self }
    }

    /// Serves until `stop` is ready; connections under way are finished in the background.
    pub async fn serve(self, listener: TcpListener, stop: impl Future<Output = ()>) {
        let admin = Arc::new(self);
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        let mut stop = std::pin::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => return,
                accepted = accept(&listener, &places) => {
                    if let Some((stream, place)) = accepted {
                        tokio::spawn(connection(Arc::clone(&admin), stream, place));
                    }
                }
            }
        }
    }

    /// Answers one request that came in on a connection to `local`.
    pub async fn answer<B>(&self, request: &Request<B>, local: SocketAddr) -> Answer {
        match self.guard.admits(request, local) {
            Ok(()) => self.route(request.method(), request.uri().path()).await,
            Err(refused) => refused.answer(),
        }
    }

    async fn route(&self, method: &Method, path: &str) -> Answer {
        let Some(route) = Route::of(path) else {
            return problem(StatusCode::NOT_FOUND, "there is nothing at this path");
        };
        match (route, route.takes(method)) {
            (Route::Reload, Takes::This) => self.policy.reload().await,
            (_, Takes::Only(allowed)) => page::only(allowed),
            (Route::Metrics, Takes::This) => page(StatusCode::OK, TEXT_FORMAT, self.metrics.render()),
            (Route::Health, Takes::This) => page(StatusCode::OK, PLAIN, "ok\n".into()),
            (Route::Ready, Takes::This) => health::answer(&self.readiness),
            (Route::Policy, Takes::This) => self.policy.show(),
            (Route::Shadow, Takes::This) => self.policy.show_shadow(),
            (Route::Authorities, Takes::This) => self.show_authorities(),
        }
    }

    fn show_authorities(&self) -> Answer {
        match &self.authorities {
            Some(pem) => page(StatusCode::OK, PEM, pem.clone()),
            None => problem(
                StatusCode::NOT_FOUND,
                "there is no certificate authority to trust: this proxy does not look into TLS (tls.intercept)",
            ),
        }
    }
}

/// The pages that exist.
#[derive(Clone, Copy, Debug)]
enum Route {
    Metrics,
    Health,
    Ready,
    Policy,
    Shadow,
    Reload,
    Authorities,
}

/// Whether a method is one that a route takes.
#[derive(Clone, Copy, Debug)]
enum Takes {
    This,
    Only(&'static str),
}

impl Route {
    fn of(path: &str) -> Option<Self> {
        match path {
            "/metrics" => Some(Self::Metrics),
            "/healthz" => Some(Self::Health),
            "/readyz" => Some(Self::Ready),
            "/ca.pem" => Some(Self::Authorities),
            "/api/v1/policy" => Some(Self::Policy),
            "/api/v1/shadow" => Some(Self::Shadow),
            "/api/v1/reload" => Some(Self::Reload),
            _ => None,
        }
    }

    fn takes(self, method: &Method) -> Takes {
        match self {
            Self::Reload if *method == Method::POST => Takes::This,
            Self::Reload => Takes::Only("POST"),
            Self::Metrics | Self::Health | Self::Ready | Self::Policy | Self::Shadow | Self::Authorities => {
                match *method {
                    Method::GET | Method::HEAD => Takes::This,
                    _ => Takes::Only("GET, HEAD"),
                }
            }
        }
    }
}

/// Which paths are open to those without a token: what probes and scrapers ask for, and the CA that clients need.
fn access(path: &str) -> Access {
    match path {
        "/metrics" | "/healthz" | "/readyz" | "/ca.pem" => Access::Open,
        _ => Access::Token,
    }
}

async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, place)),
        Err(error) => {
            tracing::warn!(%error, "admin listener cannot accept");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

async fn connection(admin: Arc<Admin>, stream: TcpStream, place: OwnedSemaphorePermit) {
    let Ok(local) = stream.local_addr() else { return };
    let service = service_fn(|request| {
        let admin = Arc::clone(&admin);
        async move { Ok::<_, Infallible>(admin.answer(&request, local).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    // A client's mistake or its leaving is its own affair.
    let _ = tokio::time::timeout(CONNECTION_TIMEOUT, served).await;
    drop(place);
}

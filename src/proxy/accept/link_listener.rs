//! The listener for the other nodes of a fleet: each request on it was forwarded by its entry.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use crawlgate_fleet::node::NodeName;
use crawlgate_fleet::view::Owner;
use hyper::http::uri::{InvalidUriParts, PathAndQuery};
use hyper::{Method, Request, Response, StatusCode, Uri};
use parking_lot::Mutex;
use rustls::ServerConfig;

use crate::clock::Clock;
use crate::fleet::forward_header::{
    CRAWL_FLEET, ForwardHeader, ForwardHeaderError, TargetForm, set_close_connection,
};
use crate::metrics::labels::{Http2ErrorCode, Http2ErrorScope, Http2Limit, ProxyHeaderFailure};
use crate::proxy::body::{ClientBody, ResponseBody};
use crate::proxy::connect::{ConnectionContext, RequestEntry};
use crate::proxy::drain::DrainWatch;
use crate::proxy::forward::not_owner_response;
use crate::proxy::head::{ClientSocket, ForeignProtocol, HeadError, HeadEvents, ServiceGuard};
use crate::proxy::http::ProxyService;
use crate::proxy::service_response::{CloseConnection, ResponseObserver, unrecorded_response};
use crate::tls::fleet::certificate_names;

use super::{ClientConnection, ConnectionHandler, ProxyListener, StreamRefusal};

/// A listener for the other nodes of the fleet.
#[derive(Debug)]
pub struct LinkListener {
    /// Answers the requests, and has the node's TLS configuration.
    inner: ProxyListener,
}

/// The state of a link at the node that has accepted it.
#[derive(Debug, Default)]
pub struct LinkState {
    /// The names in the certificate of the other node; none without TLS.
    peer_names: OnceLock<Vec<String>>,
    /// The tunnel that the connection has become.
    tunnel: Mutex<Option<Arc<ConnectionContext>>>,
}

/// The reason why a request on a link is refused.
#[derive(Debug, thiserror::Error)]
enum LinkRequestError {
    #[error(transparent)]
    Header(#[from] ForwardHeaderError),
    #[error("the certificate of the link is not that of {0}")]
    OtherNode(NodeName),
    #[error(transparent)]
    Target(#[from] InvalidUriParts),
}

impl LinkListener {
    /// Creates a listener. Without `tls`, any process that reaches it can act as a node.
    pub fn new(service: Arc<ProxyService>, tls: Option<Arc<ServerConfig>>) -> Self {
        let inner = ProxyListener {
            service,
            crawler: None,
            tls,
            proxy_protocol: Box::default(),
        };
        Self { inner }
    }

    /// Reads what the entry says about a request, and makes the request the one that the crawler sent.
    ///
    /// # Errors
    /// If it is no request of an entry.
    fn accept_forwarded(
        &self,
        request: &mut Request<ClientBody>,
        link: &LinkState,
    ) -> Result<ConnectionContext, LinkRequestError> {
        let header = ForwardHeader::read(request.headers())?;
        let entry = header.entry.as_str();
        // Without a certificate only on a listener without TLS: streams inside a tunnel have none of their own.
        let is_that_node = match link.peer_names.get() {
            Some(names) => names.iter().any(|name| name.eq_ignore_ascii_case(entry)),
            None => self.inner.tls.is_none(),
        };
        if !is_that_node {
            return Err(LinkRequestError::OtherNode(header.entry));
        }
        let crawlers = &self.inner.service.crawlers;
        let caller = crawlers.forwarded_client(header.client, &header.crawler);
        let entry = RequestEntry {
            node: entry.into(),
            deadline: header.deadline,
            is_traced: header.is_traced,
        };
        let (version, form) = (header.version, header.form);
        request.headers_mut().remove(CRAWL_FLEET);
        *request.version_mut() = version;
        if form == TargetForm::Server {
            let mut parts = request.uri().clone().into_parts();
            parts.path_and_query = Some(PathAndQuery::from_static("*"));
            *request.uri_mut() = Uri::from_parts(parts)?;
        }
        Ok(ConnectionContext::for_forwarded(caller, entry))
    }

    async fn serve_forwarded(
        &self,
        mut request: Request<ClientBody>,
        service_guard: ServiceGuard,
        connection: &ClientConnection<LinkState>,
    ) -> Response<ResponseBody<ResponseObserver>> {
        let link = &connection.state;
        let method = request.method().clone();
        let context = match self.accept_forwarded(&mut request, link) {
            Ok(context) => Arc::new(context),
            Err(error) => {
                tracing::warn!(peer = %connection.peer, %error, "a request on a link was refused");
                return unrecorded_response(error.to_response(), &method, Some(service_guard));
            }
        };
        let service = &self.inner.service;
        let answered = if method == Method::CONNECT {
            let answered = service
                .handle_connect(request, service_guard, &context)
                .await;
            if context.has_granted_tunnel() {
                *link.tunnel.lock() = Some(context);
            }
            answered
        } else {
            service
                .handle_request(request, service_guard, &context)
                .await
        };
        answered.unwrap_or_else(|CloseConnection| {
            let mut response = Response::new(Bytes::new());
            *response.status_mut() = StatusCode::NO_CONTENT;
            set_close_connection(response.headers_mut());
            unrecorded_response(response, &method, None)
        })
    }
}

impl LinkRequestError {
    /// Returns the answer. An entry with another protocol looks for another owner, as long as its crawler waits.
    fn to_response(&self) -> Response<Bytes> {
        match self {
            Self::Header(ForwardHeaderError::OtherProtocol(_)) => {
                not_owner_response(&Owner::Unknown)
            }
            Self::Header(ForwardHeaderError::Missing | ForwardHeaderError::Invalid(_))
            | Self::OtherNode(_)
            | Self::Target(_) => {
                let mut response = Response::new(Bytes::from(self.to_string()));
                *response.status_mut() = StatusCode::FORBIDDEN;
                response
            }
        }
    }
}

impl ConnectionHandler for LinkListener {
    type ConnectionState = LinkState;
    type ResBody = ResponseBody<ResponseObserver>;
    type Error = CloseConnection;

    fn clock(&self) -> &Clock {
        self.inner.clock()
    }

    /// Nodes connect to each other without a load balancer.
    fn expects_proxy_header(&self, _peer: IpAddr) -> bool {
        false
    }

    fn record_proxy_header_failure(&self, failure: ProxyHeaderFailure) {
        self.inner.record_proxy_header_failure(failure);
    }

    fn on_connect(&self, _peer: SocketAddr) -> LinkState {
        LinkState::default()
    }

    async fn open(
        &self,
        client: ClientSocket,
        link: &LinkState,
        drain: &mut DrainWatch,
    ) -> Option<ClientSocket> {
        let client = self.inner.accept(client, drain).await?;
        if let Some(certificate) = client.peer_certificate() {
            // Set once: a connection is opened once.
            let _ = link.peer_names.set(certificate_names(certificate));
        }
        Some(client)
    }

    /// A CONNECT in a stream inside a tunnel stays inside it: what a crawler sends there is no node's word.
    fn on_tunnel(&self, link: &LinkState) -> LinkState {
        let tunnel = link.tunnel.lock();
        LinkState {
            peer_names: link.peer_names.clone(),
            tunnel: Mutex::new(
                tunnel
                    .as_ref()
                    .map(|context| Arc::new(context.for_stream())),
            ),
        }
    }

    async fn handle_request(
        &self,
        request: Request<ClientBody>,
        service_guard: ServiceGuard,
        connection: &ClientConnection<LinkState>,
    ) -> Result<Response<ResponseBody<ResponseObserver>>, CloseConnection> {
        // A tunnel of a host that the owner intercepts, for example to explain a refusal.
        let tunnel = connection.state.tunnel.lock().clone();
        match tunnel {
            Some(context) => self.inner.serve(request, service_guard, &context).await,
            None => Ok(self
                .serve_forwarded(request, service_guard, connection)
                .await),
        }
    }

    async fn continue_after_connect(
        &self,
        client: ClientSocket,
        connection: &mut ClientConnection<LinkState>,
        drain: &mut DrainWatch,
    ) -> Option<ClientSocket> {
        let mut tunnel = connection.state.tunnel.get_mut().take()?;
        // No request is in service, so nothing else refers to the tunnel.
        let context = Arc::get_mut(&mut tunnel)?;
        let service = &self.inner.service;
        let next = service.continue_after_connect(client, context, drain).await;
        *connection.state.tunnel.get_mut() = Some(tunnel);
        next
    }

    fn overload_response(&self, peer: SocketAddr) -> Bytes {
        self.inner.overload_response(peer)
    }

    fn refuse_stream(&self, refusal: StreamRefusal, peer: SocketAddr) -> Option<Response<Bytes>> {
        self.inner.refuse_stream(refusal, peer)
    }

    fn is_exhausted(&self, link: &LinkState) -> bool {
        let tunnel = link.tunnel.lock();
        tunnel
            .as_ref()
            .is_some_and(|context| self.inner.is_exhausted(context))
    }

    fn record_http2_limit(&self, limit: Http2Limit) {
        self.inner.record_http2_limit(limit);
    }

    fn record_http2_error(&self, scope: Http2ErrorScope, code: Http2ErrorCode) {
        self.inner.record_http2_error(scope, code);
    }
}

impl HeadEvents for LinkListener {
    fn refusal_response(&self, error: HeadError, partial: &[u8]) -> Bytes {
        self.inner.refusal_response(error, partial)
    }

    fn record_foreign(&self, foreign: ForeignProtocol) {
        self.inner.record_foreign(foreign);
    }
}

//! The proxy's listeners: the proxy service answers the requests, and input that is not a valid
//! request gets refusals of the same form.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONNECTION, HeaderValue};
use hyper::{HeaderMap, Method, Request, Response};
use ipnet::IpNet;
use rustls::ServerConfig;

use crate::clock::Clock;
use crate::metrics::labels::{
    ForeignBytesKind, Http2ErrorCode, Http2ErrorScope, Http2Limit, ProxyHeaderFailure,
    ResponseSource,
};
use crate::model::reason::Reason;
use crate::model::rule_id::Slug;
use crate::model::stage::Stage;
use crate::pipeline::refusal::Refusal;
use crate::proxy::body::{ClientBody, ResponseBody};
use crate::proxy::connect::ConnectionContext;
use crate::proxy::drain::DrainWatch;
use crate::proxy::head::{
    ClientSocket, ForeignProtocol, HeadError, HeadEvents, ServiceGuard, client_tls,
};
use crate::proxy::http::ProxyService;
use crate::proxy::local_reply::{self, PolicyLabel, ReplyPreferences};
use crate::proxy::request_target::RefusedTunnel;
use crate::proxy::service_response::{CloseConnection, ResponseObserver, ServiceResult};
use crate::proxy::tunnel::wait_cut_off;

use super::{ClientConnection, ConnectionHandler, StreamRefusal};

/// A listener of the proxy. All listeners share one service; a listener may be reserved for one
/// crawler.
#[derive(Debug)]
pub struct ProxyListener {
    /// The service that answers the requests.
    pub service: Arc<ProxyService>,
    /// The crawler that the listener is reserved for.
    pub crawler: Option<Slug>,
    /// The certificate, if clients connect with TLS.
    pub tls: Option<Arc<ServerConfig>>,
    /// The networks of load balancers, whose connections begin with a header of the PROXY protocol.
    pub proxy_protocol: Box<[IpNet]>,
}

impl ConnectionHandler for ProxyListener {
    type ConnectionState = ConnectionContext;
    type ResBody = ResponseBody<ResponseObserver>;
    type Error = CloseConnection;

    fn clock(&self) -> &Clock {
        self.service.recorder.clock()
    }

    fn expects_proxy_header(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        self.proxy_protocol
            .iter()
            .any(|network| network.contains(&peer))
    }

    fn record_proxy_header_failure(&self, failure: ProxyHeaderFailure) {
        let metrics = self.service.recorder.metrics();
        metrics.record_proxy_header_failure(failure);
    }

    async fn open(
        &self,
        client: ClientSocket,
        _context: &ConnectionContext,
        drain: &mut DrainWatch,
    ) -> Option<ClientSocket> {
        self.accept(client, drain).await
    }

    fn on_tunnel(&self, connection: &ConnectionContext) -> ConnectionContext {
        connection.for_stream()
    }

    fn on_connect(&self, peer: SocketAddr) -> ConnectionContext {
        let service = &self.service;
        let caller = service
            .crawlers
            .new_client(peer.ip(), self.crawler.as_ref());
        ConnectionContext::new(caller, service.recorder.metrics().track_connection())
    }

    fn handle_request(
        &self,
        request: Request<ClientBody>,
        service_guard: ServiceGuard,
        connection: &ClientConnection<ConnectionContext>,
    ) -> impl Future<Output = Result<Response<ResponseBody<ResponseObserver>>, CloseConnection>> + Send
    {
        self.serve(request, service_guard, &connection.state)
    }

    async fn continue_after_connect(
        &self,
        client: ClientSocket,
        connection: &mut ClientConnection<ConnectionContext>,
        drain: &mut DrainWatch,
    ) -> Option<ClientSocket> {
        self.service
            .continue_after_connect(client, &mut connection.state, drain)
            .await
    }

    fn overload_response(&self, peer: SocketAddr) -> Bytes {
        self.overloaded(peer)
            .as_ref()
            .map_or_else(Bytes::new, to_http1_bytes)
    }

    fn refuse_stream(&self, refusal: StreamRefusal, peer: SocketAddr) -> Option<Response<Bytes>> {
        match refusal {
            StreamRefusal::Head(error) => self.head_refusal(error, Some(peer.ip())),
            StreamRefusal::Overloaded => self.overloaded(peer),
        }
    }

    fn is_exhausted(&self, connection: &ConnectionContext) -> bool {
        // Another CONNECT may be decided differently.
        connection
            .enclosing_tunnel()
            .is_some_and(|tunnel| tunnel.refused().is_some_and(RefusedTunnel::is_reported))
    }

    fn record_http2_limit(&self, limit: Http2Limit) {
        self.service.recorder.metrics().record_http2_limit(limit);
    }

    fn record_http2_error(&self, scope: Http2ErrorScope, code: Http2ErrorCode) {
        let metrics = self.service.recorder.metrics();
        metrics.record_http2_error(scope, code);
    }
}

impl HeadEvents for ProxyListener {
    fn refusal_response(&self, error: HeadError, _partial: &[u8]) -> Bytes {
        let refused = self.head_refusal(error, None);
        refused.as_ref().map_or_else(Bytes::new, to_http1_bytes)
    }

    fn record_foreign(&self, foreign: ForeignProtocol) {
        let kind = match foreign {
            ForeignProtocol::ClientHello => ForeignBytesKind::ClientHello,
            ForeignProtocol::Http2 => ForeignBytesKind::Http2Preface,
        };
        self.service.recorder.metrics().record_foreign_bytes(kind);
    }
}

impl ProxyListener {
    /// Performs the handshake of a listener with TLS, if it is one.
    pub(super) async fn accept(
        &self,
        client: ClientSocket,
        drain: &mut DrainWatch,
    ) -> Option<ClientSocket> {
        match &self.tls {
            None => Some(client),
            Some(config) => Box::pin(self.accept_tls(client, config, drain)).await,
        }
    }

    /// Answers a request of a client.
    #[expect(
        clippy::manual_async_fn,
        reason = "the future of an `async fn` would hold the request twice"
    )]
    pub(super) fn serve(
        &self,
        request: Request<ClientBody>,
        service_guard: ServiceGuard,
        context: &ConnectionContext,
    ) -> impl Future<Output = ServiceResult> + Send {
        async move {
            if request.method() == Method::CONNECT {
                return Box::pin(self.service.handle_connect(request, service_guard, context))
                    .await;
            }
            let mut response = self
                .service
                .handle_request(request, service_guard, context)
                .await?;
            if context
                .enclosing_tunnel()
                .is_some_and(|tunnel| tunnel.refused().is_some())
            {
                // Another CONNECT may be decided differently.
                response
                    .headers_mut()
                    .insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok(response)
        }
    }

    /// Performs the handshake of a listener with TLS.
    async fn accept_tls(
        &self,
        client: ClientSocket,
        config: &Arc<ServerConfig>,
        drain: &mut DrainWatch,
    ) -> Option<ClientSocket> {
        let timeout = self.service.tunnels.settings.hello;
        let handshake = client_tls::accept(client, Arc::clone(config));
        tokio::select! {
            result = tokio::time::timeout(timeout, handshake) => match result {
                Ok(Ok(client)) => Some(client),
                Ok(Err(error)) => {
                    tracing::debug!(%error, "TLS handshake with a client failed");
                    None
                }
                Err(_) => None,
            },
            () = wait_cut_off(drain) => None,
        }
    }

    fn overloaded(&self, peer: SocketAddr) -> Option<Response<Bytes>> {
        let refusal = Refusal::new(Reason::Overloaded, Stage::Identify);
        self.refuse(&refusal, Some(peer.ip()))
    }

    /// Records a head that is refused, and returns the response.
    fn head_refusal(&self, error: HeadError, client: Option<IpAddr>) -> Option<Response<Bytes>> {
        let (reason, status, detail) = describe_head_error(error);
        self.service
            .recorder
            .metrics()
            .record_head_rejection(reason);
        let refusal = Refusal {
            status,
            ..Refusal::new(reason, Stage::Target).with_detail(detail)
        };
        self.refuse(&refusal, client)
    }

    /// Records a refusal without a request, and returns the response, unless the client is
    /// answered by closing its connection.
    fn refuse(&self, refusal: &Refusal, client: Option<IpAddr>) -> Option<Response<Bytes>> {
        let recorder = &self.service.recorder;
        let mut record = recorder.begin(recorder.clock().now(), &Method::GET);
        if let Some(client) = client {
            record.set_client(client);
        }
        record.enter_stage(refusal.stage);
        refusal.record_in(&mut record);
        let snapshot = self.service.active_policy.load();
        let policy = PolicyLabel {
            name: snapshot.policy.name(),
            revision: snapshot.policy.revision(),
            contacts: &self.service.contacts,
        };
        let style =
            ReplyPreferences::from_headers(&HeaderMap::new()).refusal_style(self.service.profile);
        let decision = record.id().to_text();
        let response = local_reply::refusal_response(refusal, style, policy, &decision)?;
        record.set_sent_status(response.status().as_u16(), ResponseSource::Proxy);
        record.finish(recorder.clock().now());
        Some(response)
    }
}

/// Formats a response as HTTP/1.1 bytes. The connection closes after it.
fn to_http1_bytes(response: &Response<Bytes>) -> Bytes {
    let status = response.status();
    let phrase = status.canonical_reason().unwrap_or("Refused");
    let mut bytes = format!("HTTP/1.1 {} {phrase}\r\n", status.as_u16()).into_bytes();
    for (name, value) in response.headers() {
        bytes.extend_from_slice(name.as_str().as_bytes());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"connection: close\r\n\r\n");
    bytes.extend_from_slice(response.body());
    bytes.into()
}

/// Returns the reason for a refused head, its status if the reason has another one, and the detail.
fn describe_head_error(error: HeadError) -> (Reason, Option<u16>, &'static str) {
    match error {
        HeadError::Malformed(detail) => (Reason::BadRequest, None, detail),
        HeadError::TargetTooLong => (
            Reason::RequestTooLarge,
            Some(414),
            "the URL is longer than the limit",
        ),
        HeadError::TooLarge => (
            Reason::HeadersTooLarge,
            None,
            "the request's head is larger than the limit",
        ),
        HeadError::Late => (
            Reason::RequestTimeout,
            None,
            "the request's head did not arrive in time",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise its series would not exist before the first one.
    #[test]
    fn the_row_of_a_reason_declares_that_it_rejects_heads() {
        let mut reasons = vec![];
        for error in [
            HeadError::Malformed(""),
            HeadError::TargetTooLong,
            HeadError::TooLarge,
            HeadError::Late,
        ] {
            reasons.push(describe_head_error(error).0);
        }
        reasons.sort();
        let declared = Reason::ALL
            .into_iter()
            .filter(|reason| reason.row().rejects_head);
        let mut declared: Vec<Reason> = declared.collect();
        declared.sort();
        assert_eq!(reasons, declared);
    }
}

//! The proxy's listeners: the proxy service answers the requests, and input that is not a valid
//! request is refused with the same texts.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONNECTION, HeaderValue};
use hyper::body::Incoming;
use hyper::{Method, Request, Response};

use crate::metrics::labels::ForeignBytesKind;
use crate::model::reason::Reason;
use crate::model::rule_id::Slug;
use crate::model::stage::Stage;
use crate::pipeline::refusal::Refusal;
use crate::proxy::body::ResponseBody;
use crate::proxy::connect::ConnectionContext;
use crate::proxy::drain::DrainWatch;
use crate::proxy::head::{ClientSocket, ForeignProtocol, HeadError, HeadEvents, ServiceGuard};
use crate::proxy::http::{ProxyService, bare_refusal};
use crate::proxy::service_response::{Hangup, ResponseObserver};

use super::{ClientConnection, ConnectionHandler};

/// A listener of the proxy. All listeners share one service; a listener may be reserved for one
/// crawler.
#[derive(Debug)]
pub struct ProxyListener {
    /// The service that answers the requests.
    pub service: Arc<ProxyService>,
    /// The crawler that the listener is reserved for.
    pub crawler: Option<Slug>,
}

impl ConnectionHandler for ProxyListener {
    type ConnectionState = ConnectionContext;
    type ResBody = ResponseBody<ResponseObserver>;
    type Error = Hangup;

    fn on_connect(&self, peer: SocketAddr) -> ConnectionContext {
        let service = &self.service;
        let caller = service
            .crawlers
            .new_client(peer.ip(), self.crawler.as_ref());
        ConnectionContext::new(caller, service.recorder.metrics().track_connection())
    }

    fn handle_request(
        &self,
        request: Request<Incoming>,
        open: ServiceGuard,
        connection: &ClientConnection<ConnectionContext>,
    ) -> impl Future<Output = Result<Response<ResponseBody<ResponseObserver>>, Hangup>> + Send {
        // Not an `async fn`: its future would hold the request twice.
        let context = &connection.state;
        async move {
            if request.method() == Method::CONNECT {
                return Box::pin(self.service.handle_connect(request, open, context)).await;
            }
            let mut response = self.service.handle_request(request, open, context).await?;
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
        let refusal = Refusal::new(Reason::Overloaded, Stage::Identify);
        bare_refusal(&self.service, &refusal, Some(peer.ip()))
    }
}

impl HeadEvents for ProxyListener {
    fn refusal_response(&self, error: HeadError, _partial: &[u8]) -> Bytes {
        let (reason, status, detail) = match error {
            HeadError::Malformed(what) => (Reason::BadRequest, None, what),
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
        };
        self.service
            .recorder
            .metrics()
            .record_head_rejection(reason);
        let refusal = Refusal {
            status,
            ..Refusal::new(reason, Stage::Target).with_detail(detail)
        };
        bare_refusal(&self.service, &refusal, None)
    }

    fn record_foreign(&self, foreign: ForeignProtocol) {
        let kind = match foreign {
            ForeignProtocol::ClientHello => ForeignBytesKind::ClientHello,
            ForeignProtocol::Http2 => ForeignBytesKind::Http2Preface,
        };
        self.service.recorder.metrics().record_foreign_bytes(kind);
    }
}

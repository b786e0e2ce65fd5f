//! The proxy's listeners: the proxy service answers the requests, and input that is not a valid
//! request gets refusals of the same form.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONNECTION, HeaderValue};
use hyper::body::Incoming;
use hyper::{HeaderMap, Method, Request, Response};

use crate::metrics::labels::{ForeignBytesKind, ResponseSource};
use crate::model::reason::Reason;
use crate::model::rule_id::Slug;
use crate::model::stage::Stage;
use crate::pipeline::refusal::Refusal;
use crate::proxy::body::ResponseBody;
use crate::proxy::connect::ConnectionContext;
use crate::proxy::drain::DrainWatch;
use crate::proxy::head::{ClientSocket, ForeignProtocol, HeadError, HeadEvents, ServiceGuard};
use crate::proxy::http::ProxyService;
use crate::proxy::local_reply::{self, PolicyLabel, ReplyPreferences};
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
        self.refusal_bytes(&refusal, Some(peer.ip()))
    }
}

impl HeadEvents for ProxyListener {
    fn refusal_response(&self, error: HeadError, _partial: &[u8]) -> Bytes {
        let (reason, status, detail) = match error {
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
        };
        self.service
            .recorder
            .metrics()
            .record_head_rejection(reason);
        let refusal = Refusal {
            status,
            ..Refusal::new(reason, Stage::Target).with_detail(detail)
        };
        self.refusal_bytes(&refusal, None)
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
    /// Records a refusal without a request, and returns the response as bytes.
    fn refusal_bytes(&self, refusal: &Refusal, client: Option<IpAddr>) -> Bytes {
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
        let Some(response) = local_reply::refusal_response(refusal, style, policy, &decision)
        else {
            return Bytes::new();
        };
        record.set_sent_status(response.status().as_u16(), ResponseSource::Proxy);
        record.finish(recorder.clock().now());
        to_http1_bytes(&response)
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

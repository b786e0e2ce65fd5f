//! The proxy as the owner of its listeners: requests go to the exchange, and what never becomes one is refused in the
//! same words.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONNECTION, HeaderValue};
use hyper::body::Incoming;
use hyper::{Method, Request, Response};

use crate::gate::refusal::Refusal;
use crate::metrics::labels::ForeignBytes;
use crate::proxy::body::Body;
use crate::proxy::connect::Seat;
use crate::proxy::drain::DrainWatch;
use crate::proxy::head::{Foreign, Handover, HeadError, HeadEvents, ServiceOpen};
use crate::proxy::http::{Exchange, bare_refusal};
use crate::proxy::reply::{Hangup, Travelling};
use crate::vocab::reason::Reason;
use crate::vocab::rule_id::Slug;
use crate::vocab::stage::Stage;

use super::{Connection, Owner};

/// A listener of the proxy: all lead to the same exchange, some for one crawler.
#[derive(Debug)]
pub struct Entrance {
    /// What answers.
    pub exchange: Arc<Exchange>,
    /// The crawler whose listener it is.
    pub crawler: Option<Slug>,
}

impl Owner for Entrance {
    type Kept = Seat;
    type Body = Body<Travelling>;
    type Error = Hangup;

    fn connected(&self, peer: SocketAddr) -> Seat {
        let exchange = &self.exchange;
        let caller = exchange.crawlers.caller(peer.ip(), self.crawler.as_ref());
        Seat::new(caller, exchange.recorder.metrics().connection())
    }

    fn answer(
        &self,
        request: Request<Incoming>,
        open: ServiceOpen,
        connection: &Connection<Seat>,
    ) -> impl Future<Output = Result<Response<Body<Travelling>>, Hangup>> + Send {
        // No `async fn`: that would keep the request twice.
        let seat = &connection.kept;
        async move {
            if request.method() == Method::CONNECT {
                return Box::pin(self.exchange.connect(request, open, seat)).await;
            }
            let mut response = self.exchange.answer(request, open, seat).await?;
            if seat
                .inside()
                .is_some_and(|inside| inside.closed().is_some())
            {
                // Another CONNECT may be judged otherwise.
                response
                    .headers_mut()
                    .insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok(response)
        }
    }

    async fn carry_on(
        &self,
        client: Handover,
        connection: &mut Connection<Seat>,
        drain: &mut DrainWatch,
    ) -> Option<Handover> {
        self.exchange
            .behind_connect(client, &mut connection.kept, drain)
            .await
    }

    fn overloaded(&self, peer: SocketAddr) -> Bytes {
        let refusal = Refusal::new(Reason::Overloaded, Stage::Identify);
        bare_refusal(&self.exchange, &refusal, Some(peer.ip()))
    }
}

impl HeadEvents for Entrance {
    fn refused(&self, error: HeadError, _partial: &[u8]) -> Bytes {
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
        self.exchange.recorder.metrics().head_rejected(reason);
        let refusal = Refusal {
            status,
            ..Refusal::new(reason, Stage::Target).with_detail(detail)
        };
        bare_refusal(&self.exchange, &refusal, None)
    }

    fn foreign(&self, foreign: Foreign) {
        let kind = match foreign {
            Foreign::ClientHello => ForeignBytes::ClientHello,
            Foreign::Http2 => ForeignBytes::Http2Preface,
        };
        self.exchange.recorder.metrics().foreign_bytes(kind);
    }
}

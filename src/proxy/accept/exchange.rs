//! The proxy as the owner of its listeners: requests go to the exchange, and what never becomes one is refused in the
//! same words.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::{Request, Response};

use crate::gate::crawlers::Caller;
use crate::gate::refusal::Refusal;
use crate::metrics::OpenConnection;
use crate::metrics::labels::ForeignBytes;
use crate::proxy::body::Body;
use crate::proxy::head::{Foreign, HeadError, HeadEvents, ServiceOpen};
use crate::proxy::http::{Exchange, Hangup, Travelling, bare_refusal};
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

/// A client for as long as its connection lives.
#[derive(Debug)]
pub struct Client {
    /// Who it may be.
    pub caller: Caller,
    _open: OpenConnection,
}

impl Owner for Entrance {
    type Kept = Client;
    type Body = Body<Travelling>;
    type Error = Hangup;

    fn connected(&self, peer: SocketAddr) -> Client {
        let exchange = &self.exchange;
        let caller = exchange.crawlers.caller(peer.ip(), self.crawler.as_ref());
        Client { caller, _open: exchange.recorder.metrics().connection() }
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
        open: ServiceOpen,
        connection: &Connection<Client>,
    ) -> Result<Response<Body<Travelling>>, Hangup> {
        self.exchange.answer(request, open, &connection.kept.caller).await
    }

    fn overloaded(&self, _peer: SocketAddr) -> Bytes {
        bare_refusal(&self.exchange, &Refusal::new(Reason::Overloaded, Stage::Identify))
    }
}

impl HeadEvents for Entrance {
    fn refused(&self, error: HeadError, _partial: &[u8]) -> Bytes {
        let (reason, status, detail) = match error {
            HeadError::Malformed(what) => (Reason::BadRequest, None, what),
            HeadError::TargetTooLong => {
                (Reason::RequestTooLarge, Some(414), "the URL is longer than the limit")
            }
            HeadError::TooLarge => {
                (Reason::HeadersTooLarge, None, "the request's head is larger than the limit")
            }
            HeadError::Late => (Reason::RequestTimeout, None, "the request's head did not arrive in time"),
        };
        self.exchange.recorder.metrics().head_rejected(reason);
        let refusal = Refusal { status, ..Refusal::new(reason, Stage::Target).with_detail(detail) };
        bare_refusal(&self.exchange, &refusal)
    }

    fn foreign(&self, foreign: Foreign) {
        let kind = match foreign {
            Foreign::ClientHello => ForeignBytes::ClientHello,
            Foreign::Http2 => ForeignBytes::Http2Preface,
        };
        self.exchange.recorder.metrics().foreign_bytes(kind);
    }
}

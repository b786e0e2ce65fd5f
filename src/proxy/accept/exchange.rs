//! The proxy as the owner of its listeners: requests go to the exchange, and what never becomes one is refused in the
//! same words.

use std::net::SocketAddr;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::{Method, Request, Response};

use crate::gate::refusal::Refusal;
use crate::metrics::labels::ForeignBytes;
use crate::proxy::body::Body;
use crate::proxy::connect::Seat;
use crate::proxy::drain::DrainWatch;
use crate::proxy::front::Inside;
use crate::proxy::head::{Foreign, Handover, HeadError, HeadEvents, ServiceOpen};
use crate::proxy::http::{Exchange, Hangup, Travelling, bare_refusal};
use crate::vocab::reason::Reason;
use crate::vocab::stage::Stage;

use super::{Connection, Owner};

impl Owner for Exchange {
    type Kept = Seat;
    type Body = Body<Travelling>;
    type Error = Hangup;

    fn connected(&self, _peer: SocketAddr) -> Seat {
        Seat::new(self.recorder.metrics().connection())
    }

    async fn answer(
        &self,
        mut request: Request<Incoming>,
        open: ServiceOpen,
        connection: &Connection<Seat>,
    ) -> Result<Response<Body<Travelling>>, Hangup> {
        if let Some(host) = connection.kept.inside() {
            request.extensions_mut().insert(Inside { host: host.clone() });
        }
        if request.method() == Method::CONNECT {
            return self.connect(request, open, &connection.kept).await;
        }
        Self::answer(self, request, open).await
    }

    async fn carry_on(
        &self,
        client: Handover,
        connection: &mut Connection<Seat>,
        drain: &mut DrainWatch,
    ) -> Option<Handover> {
        self.behind_connect(client, &mut connection.kept, drain).await
    }

    fn overloaded(&self, _peer: SocketAddr) -> Bytes {
        bare_refusal(self, &Refusal::new(Reason::Overloaded, Stage::Identify))
    }
}

impl HeadEvents for Exchange {
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
        self.recorder.metrics().head_rejected(reason);
        let refusal = Refusal { status, ..Refusal::new(reason, Stage::Target).with_detail(detail) };
        bare_refusal(self, &refusal)
    }

    fn foreign(&self, foreign: Foreign) {
        let kind = match foreign {
            Foreign::ClientHello => ForeignBytes::ClientHello,
            Foreign::Http2 => ForeignBytes::Http2Preface,
        };
        self.recorder.metrics().foreign_bytes(kind);
    }
}

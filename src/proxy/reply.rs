//! What hyper gets for a request, and what goes with an answer's body to its last byte.
//!
//! What the answer says is decided elsewhere.

use bytes::Bytes;
use http::header::CONNECTION;
use http::{HeaderValue, Method, Response};
use hyper::ext::ReasonPhrase;

use crate::gate::refusal::Refusal;
use crate::gate::response::ContentHash;
use crate::gate::stage::learn::Learning;
use crate::metrics::labels::Source;
use crate::metrics::record::Record;
use crate::vocab::reason::Reason;
use crate::vocab::stage::Stage;

use super::body::{Body, BodyError, BodyGuard};
use super::head::ServiceOpen;

/// What hyper gets: an answer, or the order to close without one.
pub type Reply = Result<Response<Body<Travelling>>, Hangup>;

/// The connection closes without an answer: what some crawlers take for "later".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hangup;

impl std::fmt::Display for Hangup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("closed without an answer")
    }
}

impl std::error::Error for Hangup {}

/// What goes with an answer's body to its last byte.
#[derive(Debug)]
pub struct Travelling {
    /// None behind a CONNECT that was granted: its record goes on with the tunnel.
    record: Option<Box<Record>>,
    /// What is learned of an origin's answer, where the policy remembers.
    learning: Option<Box<Learning>>,
    _open: ServiceOpen,
}

impl BodyGuard for Travelling {
    fn sent(&mut self, bytes: u64) {
        self.record
            .iter_mut()
            .for_each(|record| record.add_down(bytes));
        self.learning
            .iter_mut()
            .for_each(|learning| learning.sent(bytes));
    }

    fn broke(&mut self, error: BodyError) {
        self.record
            .iter_mut()
            .for_each(|record| record.upstream_failed(error.as_str()));
        self.learning
            .iter_mut()
            .for_each(|learning| tell(learning, error));
    }

    fn content(&mut self, hash: ContentHash) {
        self.learning
            .iter_mut()
            .for_each(|learning| learning.content(hash));
    }

    fn ended(&mut self) {
        self.record.iter_mut().for_each(|record| record.complete());
        self.learning
            .iter_mut()
            .for_each(|learning| learning.delivered());
    }
}

/// A body that grew too large was cut off by the policy, any other by its origin.
fn tell(learning: &mut Learning, error: BodyError) {
    match error {
        BodyError::TooLarge => {
            learning.refused_midway(&Refusal::new(Reason::BodyTooLarge, Stage::Response))
        }
        BodyError::Incomplete | BodyError::Idle | BodyError::Left => learning.broke(),
    }
}

/// An answer of ours on its way. One to HEAD keeps the length of its body and loses the body; behind one to CONNECT
/// the connection closes, since what follows may be another protocol's bytes (RFC 9931).
pub(in crate::proxy) fn own(
    mut response: Response<Bytes>,
    method: &Method,
    mut record: Box<Record>,
    open: ServiceOpen,
) -> Response<Body<Travelling>> {
    record.answered(response.status().as_u16(), Source::Proxy);
    if *method == Method::CONNECT {
        response
            .headers_mut()
            .insert(CONNECTION, HeaderValue::from_static("close"));
    }
    let head = *method == Method::HEAD;
    response.map(|bytes| {
        Body::full(
            if head { Bytes::new() } else { bytes },
            travelling(record, open),
        )
    })
}

/// The answer to a CONNECT that was granted.
pub(in crate::proxy) fn established(open: ServiceOpen) -> Response<Body<Travelling>> {
    let mut response = Response::new(Body::full(
        Bytes::new(),
        Travelling {
            record: None,
            learning: None,
            _open: open,
        },
    ));
    response
        .extensions_mut()
        .insert(ReasonPhrase::from_static(b"Connection established"));
    response
}

/// What goes with an answer that has a record.
pub(in crate::proxy) fn travelling(record: Box<Record>, open: ServiceOpen) -> Travelling {
    Travelling {
        record: Some(record),
        learning: None,
        _open: open,
    }
}

/// What goes with an origin's answer.
pub(in crate::proxy) fn travelling_far(
    record: Box<Record>,
    learning: Option<Box<Learning>>,
    open: ServiceOpen,
) -> Travelling {
    Travelling {
        record: Some(record),
        learning,
        _open: open,
    }
}

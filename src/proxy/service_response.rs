//! What hyper gets for a request, and what goes with an answer's body to its last byte.
//!
//! What the answer says is decided elsewhere.

use bytes::Bytes;
use http::header::CONNECTION;
use http::{HeaderValue, Method, Response};
use hyper::ext::ReasonPhrase;

use crate::metrics::labels::ResponseSource;
use crate::metrics::record::RequestRecord;
use crate::model::reason::Reason;
use crate::model::stage::Stage;
use crate::pipeline::refusal::Refusal;
use crate::pipeline::response::ContentHash;
use crate::pipeline::stage::outcome::OutcomeRecorder;

use super::body::{BodyError, BodyObserver, ResponseBody};
use super::head::ServiceGuard;

/// What hyper gets: an answer, or the order to close without one.
pub type ServiceResult = Result<Response<ResponseBody<ResponseObserver>>, Hangup>;

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
pub struct ResponseObserver {
    /// None behind a CONNECT that was granted: its record goes on with the tunnel.
    record: Option<Box<RequestRecord>>,
    /// What is learned of an origin's answer, where the policy remembers.
    outcome_recorder: Option<Box<OutcomeRecorder>>,
    _service: ServiceGuard,
}

impl BodyObserver for ResponseObserver {
    fn on_sent(&mut self, bytes: u64) {
        self.record
            .iter_mut()
            .for_each(|record| record.add_sent_bytes(bytes));
        self.outcome_recorder
            .iter_mut()
            .for_each(|learning| learning.add_sent_bytes(bytes));
    }

    fn on_error(&mut self, error: BodyError) {
        self.record
            .iter_mut()
            .for_each(|record| record.set_upstream_error(error.as_str()));
        self.outcome_recorder
            .iter_mut()
            .for_each(|learning| record_body_error(learning, error));
    }

    fn on_content_hash(&mut self, hash: ContentHash) {
        self.outcome_recorder
            .iter_mut()
            .for_each(|learning| learning.set_content_hash(hash));
    }

    fn on_end(&mut self) {
        self.record
            .iter_mut()
            .for_each(|record| record.mark_complete());
        self.outcome_recorder
            .iter_mut()
            .for_each(|learning| learning.mark_delivered());
    }
}

/// A body that grew too large was cut off by the policy, any other by its origin.
fn record_body_error(outcome_recorder: &mut OutcomeRecorder, error: BodyError) {
    match error {
        BodyError::TooLarge => outcome_recorder
            .record_late_refusal(&Refusal::new(Reason::BodyTooLarge, Stage::Response)),
        BodyError::Incomplete | BodyError::Idle | BodyError::ClientLeft => {
            outcome_recorder.record_broken_body()
        }
    }
}

/// An answer of ours on its way. One to HEAD keeps the length of its body and loses the body; behind one to CONNECT
/// the connection closes, since what follows may be another protocol's bytes (RFC 9931).
pub(crate) fn local_response(
    mut response: Response<Bytes>,
    method: &Method,
    mut record: Box<RequestRecord>,
    open: ServiceGuard,
) -> Response<ResponseBody<ResponseObserver>> {
    record.set_sent_status(response.status().as_u16(), ResponseSource::Proxy);
    if *method == Method::CONNECT {
        response
            .headers_mut()
            .insert(CONNECTION, HeaderValue::from_static("close"));
    }
    let head = *method == Method::HEAD;
    response.map(|bytes| {
        ResponseBody::full(
            if head { Bytes::new() } else { bytes },
            local_observer(record, open),
        )
    })
}

/// The answer to a CONNECT that was granted.
pub(crate) fn established_response(open: ServiceGuard) -> Response<ResponseBody<ResponseObserver>> {
    let mut response = Response::new(ResponseBody::full(
        Bytes::new(),
        ResponseObserver {
            record: None,
            outcome_recorder: None,
            _service: open,
        },
    ));
    response
        .extensions_mut()
        .insert(ReasonPhrase::from_static(b"Connection established"));
    response
}

/// What goes with an answer that has a record.
pub(crate) fn local_observer(record: Box<RequestRecord>, open: ServiceGuard) -> ResponseObserver {
    ResponseObserver {
        record: Some(record),
        outcome_recorder: None,
        _service: open,
    }
}

/// What goes with an origin's answer.
pub(crate) fn origin_observer(
    record: Box<RequestRecord>,
    outcome_recorder: Option<Box<OutcomeRecorder>>,
    open: ServiceGuard,
) -> ResponseObserver {
    ResponseObserver {
        record: Some(record),
        outcome_recorder,
        _service: open,
    }
}

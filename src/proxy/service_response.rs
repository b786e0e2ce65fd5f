//! The responses that the service returns to hyper, with the observer that follows a response body
//! to its last byte.
//!
//! Other modules decide the contents of the responses.

use bytes::Bytes;
use http::header::CONNECTION;
use http::{HeaderValue, Method, Response};
use hyper::ext::ReasonPhrase;

use crate::metrics::labels::ResponseSource;
use crate::metrics::record::RequestRecord;
use crate::pipeline::response::ContentHash;
use crate::pipeline::stage::outcome::OutcomeRecorder;

use super::body::{BodyError, BodyObserver, ResponseBody};
use super::head::ServiceGuard;

/// The result for hyper: a response, or the instruction to close the connection without one.
pub type ServiceResult = Result<Response<ResponseBody<ResponseObserver>>, CloseConnection>;

/// The connection closes without a response, which some crawlers interpret as "later".
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("closed without a response")]
pub struct CloseConnection;

/// The observer of a response body, which completes the record at the last byte.
#[derive(Debug)]
pub struct ResponseObserver {
    /// `None` after a granted CONNECT, whose record belongs to the tunnel, and if another node records the request.
    record: Option<Box<RequestRecord>>,
    /// The recorder of the origin's outcome, if the policy uses the ledger.
    outcome_recorder: Option<Box<OutcomeRecorder>>,
    /// `None` if the request is no longer in service.
    _service: Option<ServiceGuard>,
}

impl BodyObserver for ResponseObserver {
    fn on_sent(&mut self, bytes: u64) {
        if let Some(record) = &mut self.record {
            record.add_sent_bytes(bytes);
        }
        if let Some(recorder) = &mut self.outcome_recorder {
            recorder.add_sent_bytes(bytes);
        }
    }

    fn on_error(&mut self, error: BodyError) {
        if let Some(record) = &mut self.record {
            record.set_upstream_error(error.as_str());
        }
        if let Some(recorder) = &mut self.outcome_recorder {
            record_body_error(recorder, error);
        }
    }

    fn on_content_hash(&mut self, hash: ContentHash) {
        if let Some(recorder) = &mut self.outcome_recorder {
            recorder.set_content_hash(hash);
        }
    }

    fn on_end(&mut self) {
        if let Some(record) = &mut self.record {
            record.mark_complete();
        }
        if let Some(recorder) = &mut self.outcome_recorder {
            recorder.mark_delivered();
        }
    }
}

/// Records a failed body. The policy cuts off a body that is too large; any other failure is the
/// origin's.
fn record_body_error(outcome_recorder: &mut OutcomeRecorder, error: BodyError) {
    match error {
        BodyError::TooLarge => outcome_recorder.record_oversized_body(),
        // Not the origin's fault: nothing is recorded of a document that was not delivered.
        BodyError::LeaseEnded => {}
        BodyError::Incomplete | BodyError::Idle | BodyError::ClientLeft => {
            outcome_recorder.record_broken_body()
        }
    }
}

/// Returns a response of the proxy. A response to HEAD keeps the length but not the body. After a
/// response to CONNECT the connection closes, since the data that follows may belong to another
/// protocol (RFC 9931).
pub(crate) fn local_response(
    mut response: Response<Bytes>,
    method: &Method,
    mut record: Box<RequestRecord>,
    service_guard: ServiceGuard,
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
            local_observer(record, service_guard),
        )
    })
}

/// Returns the response to a granted CONNECT.
pub(crate) fn established_response(
    service_guard: ServiceGuard,
) -> Response<ResponseBody<ResponseObserver>> {
    let mut response = Response::new(ResponseBody::full(
        Bytes::new(),
        unrecorded_observer(Some(service_guard)),
    ));
    response
        .extensions_mut()
        .insert(ReasonPhrase::from_static(b"Connection established"));
    response
}

/// Returns a response to which this node has no record: the owner of the host has one.
pub(crate) fn unrecorded_response(
    mut response: Response<Bytes>,
    method: &Method,
    service_guard: Option<ServiceGuard>,
) -> Response<ResponseBody<ResponseObserver>> {
    if *method == Method::CONNECT {
        response
            .headers_mut()
            .insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response.map(|bytes| ResponseBody::full(bytes, unrecorded_observer(service_guard)))
}

/// Returns the observer of a response that another node records.
pub(crate) fn unrecorded_observer(service_guard: Option<ServiceGuard>) -> ResponseObserver {
    ResponseObserver {
        record: None,
        outcome_recorder: None,
        _service: service_guard,
    }
}

/// Returns the observer of a response by the proxy.
pub(crate) fn local_observer(
    record: Box<RequestRecord>,
    service_guard: ServiceGuard,
) -> ResponseObserver {
    ResponseObserver {
        record: Some(record),
        outcome_recorder: None,
        _service: Some(service_guard),
    }
}

pub(crate) fn origin_observer(
    record: Box<RequestRecord>,
    outcome_recorder: Option<Box<OutcomeRecorder>>,
    service_guard: ServiceGuard,
) -> ResponseObserver {
    ResponseObserver {
        record: Some(record),
        outcome_recorder,
        _service: Some(service_guard),
    }
}

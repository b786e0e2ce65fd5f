//! The errors of requests to origins, and their refusals.

use std::time::Duration;

use crate::metrics::labels::OriginHttp2Failure;
use crate::model::failure_kind::FailureKind;
use crate::model::reason::Reason;
use crate::model::stage::Stage;
use crate::pipeline::refusal::Refusal;
use crate::proxy::body::{BodyError, RequestUpload};
use crate::proxy::dial::DialError;
use crate::proxy::negative_cache::REFUSED_TTL;
use crate::proxy::origin_tls::TlsError;
use crate::proxy::parents::{ParentError, ParentFaultScope};

use super::limited_stream::TooManyInterim;

/// The reason why an origin gave no response.
#[derive(Debug)]
pub enum UpstreamError {
    /// Connecting failed.
    Dial(DialError),
    /// The TLS handshake failed.
    Tls(TlsError),
    /// No response arrived in time.
    Timeout,
    /// The connection ended before the end of the response head.
    Closed,
    /// The request's body broke off or was too large, which is the client's fault.
    Upload(BodyError),
    /// The response is not valid HTTP.
    Protocol(hyper::Error),
    /// The origin violated HTTP/2, or exceeded one of its limits.
    Http2(OriginHttp2Failure),
    /// The response head exceeds the limit.
    HeadTooLarge,
    /// The origin sent more interim responses (1xx) than allowed.
    TooManyInterim,
    /// The request was not resent because the host is in backoff for this time.
    BackingOff(Duration),
    /// A parent proxy failed, or could not reach the origin.
    Parent(Box<ParentError>),
    /// This node of the fleet no longer owns the host: nothing was sent. The body of the request is as it was.
    OwnerLost(RequestUpload),
    /// The lease of this node of the fleet has ended after the request was sent, and before an answer began.
    LeaseEnded,
}

impl From<hyper::Error> for UpstreamError {
    fn from(error: hyper::Error) -> Self {
        if error.is_user() || error.is_body_write_aborted() {
            let source = std::error::Error::source(&error).and_then(|s| s.downcast_ref());
            return Self::Upload(source.copied().unwrap_or(BodyError::Incomplete));
        }
        if error.is_parse_too_large() {
            return Self::HeadTooLarge;
        }
        if is_interim_flood(&error) {
            return Self::TooManyInterim;
        }
        // TLS 1.3 allows an origin to refuse after the handshake, and alerts can arrive at any
        // time.
        if let Some(error) = std::error::Error::source(&error).and_then(TlsError::find_in) {
            return Self::Tls(error);
        }
        let closed = error.is_incomplete_message() || error.is_closed() || error.is_canceled();
        if closed || is_io_error(&error) {
            Self::Closed
        } else {
            Self::Protocol(error)
        }
    }
}

fn is_interim_flood(error: &hyper::Error) -> bool {
    std::error::Error::source(error)
        .and_then(|source| source.downcast_ref::<std::io::Error>())
        .and_then(std::io::Error::get_ref)
        .is_some_and(|source| source.is::<TooManyInterim>())
}

fn is_io_error(error: &hyper::Error) -> bool {
    let source = std::error::Error::source(error).and_then(|s| s.downcast_ref::<std::io::Error>());
    source.is_some()
}

impl UpstreamError {
    /// Returns `true` if the error on a reused connection may be due to what came before the request:
    /// the origin closed the connection, or left surplus bytes on it.
    pub(super) fn allows_resend(&self) -> bool {
        matches!(self, Self::Closed | Self::Protocol(_))
    }

    /// Returns `true` if the client left in the middle of its request, which is not a failure.
    pub fn is_client_left(&self) -> bool {
        matches!(self, Self::Upload(BodyError::ClientLeft))
    }

    /// Returns `true` if the fault is the origin's or the network's, not the client's or this
    /// proxy's.
    pub fn is_origin_fault(&self) -> bool {
        match self {
            Self::Upload(_)
            | Self::Dial(DialError::Other)
            | Self::BackingOff(_)
            | Self::OwnerLost(_)
            | Self::LeaseEnded => false,
            Self::Dial(DialError::Refused | DialError::Timeout | DialError::Unreachable)
            | Self::Tls(_)
            | Self::Timeout
            | Self::Closed
            | Self::Protocol(_)
            | Self::Http2(_)
            | Self::HeadTooLarge
            | Self::TooManyInterim => true,
            Self::Parent(error) => error.scope == ParentFaultScope::Origin,
        }
    }

    /// Returns the kind of failure: timeouts, closed and failed connections, and failures of parents are temporary, invalid
    /// responses and failed TLS handshakes permanent; `None` if the error says nothing about the URL. An unreachable
    /// address may be a problem of this machine, so it never removes a URL from an index.
    fn failure_kind(&self) -> Option<FailureKind> {
        match self {
            Self::Dial(_) | Self::Timeout | Self::Closed | Self::Parent(_) => {
                Some(FailureKind::Temporary)
            }
            Self::Tls(_)
            | Self::Protocol(_)
            | Self::Http2(_)
            | Self::HeadTooLarge
            | Self::TooManyInterim => Some(FailureKind::Permanent),
            Self::Upload(_) | Self::BackingOff(_) | Self::OwnerLost(_) | Self::LeaseEnded => None,
        }
    }

    /// Returns the error type of RFC 9209 section 2.3, which is the value of the `error` label.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Dial(DialError::Refused) => "connection_refused",
            Self::Dial(DialError::Timeout) => "connection_timeout",
            Self::Dial(DialError::Unreachable) => "destination_ip_unroutable",
            Self::Dial(DialError::Other) => "proxy_internal_error",
            Self::Tls(error) => error.fault().error_type,
            Self::Timeout => "http_response_timeout",
            Self::Closed => "connection_terminated",
            Self::Upload(_) => "http_request_error",
            Self::Protocol(_) | Self::Http2(_) | Self::TooManyInterim => "http_protocol_error",
            Self::HeadTooLarge => "http_response_header_section_size",
            Self::BackingOff(_) | Self::OwnerLost(_) | Self::LeaseEnded => {
                "destination_unavailable"
            }
            Self::Parent(error) => error.fault.error_type,
        }
    }
}

impl From<UpstreamError> for Refusal {
    fn from(error: UpstreamError) -> Self {
        let kind = error.as_str();
        let (reason, status, code) = match &error {
            UpstreamError::Dial(DialError::Timeout) => (Reason::UpstreamConnect, Some(504), None),
            UpstreamError::Dial(_) => (Reason::UpstreamConnect, None, None),
            UpstreamError::Tls(error) => {
                return Self::new(Reason::UpstreamTls, Stage::Upstream).with_fault(error.fault());
            }
            UpstreamError::Timeout => (Reason::UpstreamTimeout, None, None),
            UpstreamError::Closed => (Reason::UpstreamProtocol, None, Some(700)),
            UpstreamError::Upload(BodyError::TooLarge) => (Reason::RequestTooLarge, None, None),
            UpstreamError::Upload(BodyError::Idle) => (Reason::RequestTimeout, None, None),
            UpstreamError::Upload(BodyError::Incomplete | BodyError::ClientLeft) => {
                (Reason::BadRequest, None, None)
            }
            UpstreamError::LeaseEnded | UpstreamError::Upload(BodyError::LeaseEnded) => {
                return lease_ended_refusal();
            }
            UpstreamError::Protocol(error) => {
                (Reason::UpstreamProtocol, None, Some(parse_code(error)))
            }
            UpstreamError::Http2(_) | UpstreamError::HeadTooLarge => {
                (Reason::UpstreamProtocol, None, Some(710))
            }
            UpstreamError::TooManyInterim => (Reason::UpstreamProtocol, None, Some(720)),
            UpstreamError::BackingOff(remaining) => {
                let refusal = Self::new(Reason::HostBackoff, Stage::Pace);
                return refusal.with_retry_after(Some(*remaining));
            }
            UpstreamError::Parent(error) => {
                let refusal = Self {
                    parent: error.parent.clone(),
                    failure: Some(FailureKind::Temporary),
                    ..Self::new(Reason::UpstreamConnect, Stage::Upstream).with_fault(error.fault)
                };
                return refusal.with_retry_after(error.retry_after);
            }
            UpstreamError::OwnerLost(_) => {
                return Self::new(Reason::OwnerUnavailable, Stage::Pace)
                    .with_detail("this node of the fleet no longer owns the host");
            }
        };
        let failure = if error.is_origin_fault() {
            error.failure_kind()
        } else {
            None
        };
        // The address is not dialled again before.
        let refused = matches!(error, UpstreamError::Dial(DialError::Refused));
        let refusal = Self {
            status,
            code,
            failure,
            error: Some(kind),
            detail: dial_detail(&error).map(Into::into),
            ..Self::new(reason, Stage::Upstream)
        };
        refusal.with_retry_after(refused.then_some(REFUSED_TTL))
    }
}

/// Returns the cause of a connection that could not be established; `None` for other errors.
fn dial_detail(error: &UpstreamError) -> Option<&'static str> {
    let UpstreamError::Dial(error) = error else {
        return None;
    };
    Some(match error {
        DialError::Refused => "the host refused the connection",
        DialError::Timeout => "the host did not accept the connection in time",
        DialError::Unreachable => "there is no route to the address of the host",
        DialError::Other => {
            "the proxy could not open a connection: its system may be out of ports, file descriptors or memory"
        }
    })
}

/// Returns the refusal of a request that was sent, and broken off since the lease of this node has ended.
pub(in crate::proxy) fn lease_ended_refusal() -> Refusal {
    let refusal = Refusal {
        status: Some(502),
        error: Some(UpstreamError::LeaseEnded.as_str()),
        ..Refusal::new(Reason::OwnerUnavailable, Stage::Pace)
    };
    refusal.with_detail(
        "the lease of this node of the fleet has ended; the request may have reached the origin",
    )
}

/// Returns OmniFind's code: 720 for an invalid status line, 710 for an invalid field.
fn parse_code(error: &hyper::Error) -> u16 {
    if error.is_parse_status() || error.to_string().contains("version") {
        720
    } else {
        710
    }
}

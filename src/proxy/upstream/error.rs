//! Why an origin gave no answer, and what its client is told.

use std::time::Duration;

use crate::model::reason::Reason;
use crate::model::stage::Stage;
use crate::pipeline::failure_class::FailureKind;
use crate::pipeline::refusal::Refusal;
use crate::proxy::body::BodyError;
use crate::proxy::dial::DialError;
use crate::proxy::negative_cache::REFUSED_TTL;
use crate::proxy::origin_tls::TlsError;

/// Why an origin gave no answer.
#[derive(Debug)]
pub enum UpstreamError {
    /// No connection.
    Dial(DialError),
    /// No TLS, or none with the right origin.
    Tls(TlsError),
    /// No answer in time.
    Timeout,
    /// The connection ended before the answer's head did.
    Closed,
    /// The request's body broke off or was too large: the client's doing.
    Upload(BodyError),
    /// What came is not HTTP.
    Protocol(hyper::Error),
    /// The answer's head is larger than allowed.
    HeadTooLarge,
    /// It was not sent once more: the host has begun to rest, for so long.
    BackingOff(Duration),
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
        // TLS 1.3 lets an origin refuse after the handshake, and alerts come at any time.
        if let Some(error) = std::error::Error::source(&error).and_then(TlsError::find_in) {
            return Self::Tls(error);
        }
        let closed = error.is_incomplete_message() || error.is_closed() || error.is_canceled();
        if closed || is_reset(&error) {
            Self::Closed
        } else {
            Self::Protocol(error)
        }
    }
}

fn is_reset(error: &hyper::Error) -> bool {
    let source = std::error::Error::source(error).and_then(|s| s.downcast_ref::<std::io::Error>());
    source.is_some()
}

impl UpstreamError {
    /// Whether the origin may have seen nothing of the request.
    pub(super) fn may_repeat(&self) -> bool {
        matches!(self, Self::Closed)
    }

    /// Whether it is no failure of anybody: the client left in the middle of its request.
    pub fn is_client_left(&self) -> bool {
        matches!(self, Self::Upload(BodyError::ClientLeft))
    }

    /// Whether it is the origin's, or that of the way to it: neither the client's nor this proxy's.
    pub fn is_origin_fault(&self) -> bool {
        match self {
            Self::Upload(_) | Self::Dial(DialError::Other) | Self::BackingOff(_) => false,
            Self::Dial(DialError::Refused | DialError::Timeout | DialError::Unreachable)
            | Self::Tls(_)
            | Self::Timeout
            | Self::Closed
            | Self::Protocol(_)
            | Self::HeadTooLarge => true,
        }
    }

    /// How it counts as an error: what is no time-out, no reset and no refused connection is permanent. An address that
    /// no way leads to may be this machine's trouble, so nothing leaves an index for it.
    fn failing(&self) -> Option<FailureKind> {
        match self {
            Self::Dial(_) | Self::Timeout | Self::Closed => Some(FailureKind::Temporary),
            Self::Tls(_) | Self::Protocol(_) | Self::HeadTooLarge => Some(FailureKind::Permanent),
            Self::Upload(_) | Self::BackingOff(_) => None,
        }
    }

    /// The error type of RFC 9209 section 2.3; the value of the `error` label.
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
            Self::Protocol(_) => "http_protocol_error",
            Self::HeadTooLarge => "http_response_header_section_size",
            Self::BackingOff(_) => "destination_unavailable",
        }
    }
}

impl From<UpstreamError> for Refusal {
    fn from(error: UpstreamError) -> Self {
        if let UpstreamError::Tls(error) = &error {
            return Self::new(Reason::UpstreamTls, Stage::Upstream).with_fault(error.fault());
        }
        if let UpstreamError::BackingOff(left) = error {
            let refusal = Self::new(Reason::HostBackoff, Stage::Pace);
            return Self {
                retry_after: Some(retry_after(left)),
                ..refusal
            };
        }
        let kind = error.as_str();
        let (reason, status, code) = match &error {
            UpstreamError::Dial(DialError::Timeout) => (Reason::UpstreamConnect, Some(504), None),
            UpstreamError::Dial(_) => (Reason::UpstreamConnect, None, None),
            UpstreamError::Tls(_) => (Reason::UpstreamTls, None, None),
            UpstreamError::Timeout => (Reason::UpstreamTimeout, None, None),
            UpstreamError::Closed => (Reason::UpstreamProtocol, None, Some(700)),
            UpstreamError::Upload(BodyError::TooLarge) => (Reason::RequestTooLarge, None, None),
            UpstreamError::Upload(BodyError::Idle) => (Reason::RequestTimeout, None, None),
            UpstreamError::Upload(BodyError::Incomplete | BodyError::ClientLeft) => {
                (Reason::BadRequest, None, None)
            }
            UpstreamError::Protocol(error) => {
                (Reason::UpstreamProtocol, None, Some(parse_code(error)))
            }
            UpstreamError::HeadTooLarge => (Reason::UpstreamProtocol, None, Some(710)),
            UpstreamError::BackingOff(_) => (Reason::HostBackoff, None, None),
        };
        let failing = if error.is_origin_fault() {
            error.failing()
        } else {
            None
        };
        // It is not dialled again before.
        let refused = matches!(error, UpstreamError::Dial(DialError::Refused));
        let refusal = Self {
            status,
            code,
            failure: failing,
            error: Some(kind),
            ..Self::new(reason, Stage::Upstream)
        };
        refusal.with_retry_after(refused.then_some(REFUSED_TTL))
    }
}

/// Whole seconds, one at least.
fn retry_after(left: Duration) -> Duration {
    Duration::from_secs(left.as_secs() + 1)
}

/// OmniFind's codes: 720 if there is no status line, else 710 for a bad field.
fn parse_code(error: &hyper::Error) -> u16 {
    if error.is_parse_status() || error.to_string().contains("version") {
        720
    } else {
        710
    }
}

//! The interpretation of failed streams.

use h2::Reason;

use crate::metrics::labels::OriginHttp2Failure;
use crate::pipeline::admission::HostSlot;
use crate::proxy::origin_tls::TlsError;
use crate::proxy::upstream::UpstreamError;

use super::watch::ConnectionWatch;

/// A request that got no response on its stream.
pub(in crate::proxy::upstream) struct StreamFailure {
    pub(in crate::proxy::upstream) error: UpstreamError,
    pub(in crate::proxy::upstream) resend: ResendCondition,
    /// The host's slot.
    pub(in crate::proxy::upstream) slot: Option<HostSlot>,
}

/// The condition for sending a request again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::proxy::upstream) enum ResendCondition {
    Never,
    /// The origin may have processed the request: only if it is idempotent, and the connection may
    /// have ended before it.
    IfIdempotent,
    /// The origin has not processed the request.
    Unprocessed,
    /// The origin has not processed the request and requires HTTP/1.1 for it.
    OverHttp1,
}

/// The interpretation of an error of a stream.
pub(super) struct InterpretedError {
    pub(super) error: UpstreamError,
    pub(super) failure: OriginHttp2Failure,
    pub(super) resend: ResendCondition,
}

impl InterpretedError {
    fn new(error: UpstreamError, failure: OriginHttp2Failure, resend: ResendCondition) -> Self {
        Self {
            error,
            failure,
            resend,
        }
    }

    /// Interprets an error before the response.
    pub(super) fn from_error(error: &h2::Error, watch: &ConnectionWatch) -> Self {
        use OriginHttp2Failure as F;
        if let Some(failure) = watch.failure() {
            return Self::new(
                UpstreamError::Http2(failure),
                failure,
                ResendCondition::Never,
            );
        }
        if let Some(error) = error.get_io() {
            return match TlsError::find_in(error) {
                Some(error) => {
                    Self::new(UpstreamError::Tls(error), F::Closed, ResendCondition::Never)
                }
                None => Self::new(
                    UpstreamError::Closed,
                    F::Closed,
                    ResendCondition::IfIdempotent,
                ),
            };
        }
        let reason = error.reason();
        let requires_http1 = matches!(
            reason,
            Some(Reason::HTTP_1_1_REQUIRED | Reason::INADEQUATE_SECURITY)
        );
        if error.is_remote() && requires_http1 {
            Self::new(
                UpstreamError::Closed,
                F::Http11Required,
                ResendCondition::OverHttp1,
            )
        } else if error.is_remote() && error.is_go_away() {
            // Streams up to the last one that the origin names get no such error.
            Self::new(
                UpstreamError::Closed,
                F::GoAway,
                ResendCondition::Unprocessed,
            )
        } else if error.is_remote() && reason == Some(Reason::REFUSED_STREAM) {
            Self::new(
                UpstreamError::Closed,
                F::RefusedStream,
                ResendCondition::Unprocessed,
            )
        } else if error.is_remote() {
            Self::new(UpstreamError::Closed, F::Reset, ResendCondition::Never)
        } else {
            let failure = failure_of(error).unwrap_or(F::Protocol);
            Self::new(
                UpstreamError::Http2(failure),
                failure,
                ResendCondition::Never,
            )
        }
    }
}

/// Returns the violation for which `h2` closes a connection or resets a stream.
pub(super) fn failure_of(error: &h2::Error) -> Option<OriginHttp2Failure> {
    if !error.is_library() {
        return None;
    }
    Some(match error.reason()? {
        Reason::FLOW_CONTROL_ERROR => OriginHttp2Failure::FlowControl,
        Reason::FRAME_SIZE_ERROR => OriginHttp2Failure::FrameSize,
        Reason::COMPRESSION_ERROR => OriginHttp2Failure::Compression,
        Reason::ENHANCE_YOUR_CALM => OriginHttp2Failure::EnhanceYourCalm,
        _ => OriginHttp2Failure::Protocol,
    })
}

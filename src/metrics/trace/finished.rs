//! A finished request for tracing: plain values, with no more of its URL than its line in the log shows.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use http::Method;
use smallvec::SmallVec;

use crate::clock::TimeSpan;
use crate::trace_context::{SpanId, TraceId};

use super::{RequestTrace, TracePart};

/// A finished request: its span is the parent of those of its parts.
#[derive(Clone, Debug, PartialEq)]
pub struct FinishedTrace {
    pub trace: TraceId,
    /// The request's span.
    pub span: SpanId,
    /// The client's span, if it sent one.
    pub parent: Option<SpanId>,
    /// The time at which the request's head was complete.
    pub began: SystemTime,
    /// The duration up to the last byte of the response.
    pub duration: Duration,
    /// Its parts, in the order in which they were recorded.
    pub parts: SmallVec<[FinishedPart; 6]>,
    /// The method as sent by the client.
    pub method: Method,
    /// The canonical URL as in the decision log.
    pub url: Option<Box<str>>,
    /// The host and port, if the log shows the host.
    pub server: Option<(Box<str>, u16)>,
    /// The crawler's name.
    pub crawler: Box<str>,
    /// `allow`, `reject` or `shadow_reject`; `forwarded` if another node of the fleet has decided.
    pub verdict: &'static str,
    /// The reason, or `none`.
    pub reason: &'static str,
    /// The rule that decided.
    pub rule: Option<Box<str>>,
    /// The stage that ended the request.
    pub stage: &'static str,
    /// The policy's name and revision.
    pub policy: Option<(Box<str>, Box<str>)>,
    /// The decision's id.
    pub decision: Box<str>,
    /// The status that was sent.
    pub status: Option<u16>,
    pub origin_status: Option<u16>,
    /// The number of body bytes sent.
    pub bytes: u64,
    /// The address that the request was sent to.
    pub address: Option<IpAddr>,
    /// An RFC 9209 type, or a close reason of the log.
    pub error: Option<&'static str>,
}

/// A part of a request, within its duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FinishedPart {
    pub part: TracePart,
    /// The time between the request's head and the start of the part.
    pub offset: Duration,
    pub duration: Duration,
}

impl FinishedTrace {
    /// Returns the number of spans.
    pub fn span_count(&self) -> u64 {
        self.parts.len() as u64 + 1
    }
}

impl FinishedPart {
    /// Limits the part to the duration of the request.
    fn clipped_to(whole: TimeSpan, part: TracePart, span: TimeSpan) -> Self {
        let after = span
            .start
            .saturating_duration_since(whole.start)
            .min(whole.duration);
        Self {
            part,
            offset: after,
            duration: span.duration.min(whole.duration - after),
        }
    }
}

impl RequestTrace {
    pub(crate) fn finished_parts(&self, whole: TimeSpan) -> SmallVec<[FinishedPart; 6]> {
        self.parts
            .iter()
            .map(|(part, span)| FinishedPart::clipped_to(whole, *part, *span))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_lies_inside_its_request() {
        let (clock, _) = crate::clock::Clock::manual();
        let began = clock.now() + Duration::from_secs(1);
        let ms = Duration::from_millis;
        let whole = TimeSpan {
            start: began,
            duration: ms(100),
        };
        for (from_ms, took_ms, after, took) in [
            (0, 100, 0, 100),
            (20, 30, 20, 30),
            (90, 30, 90, 10),
            (120, 30, 100, 0),
            (-5, 10, 0, 10),
        ] {
            let from = began.checked_sub(ms(5)).unwrap() + ms(u64::try_from(from_ms + 5).unwrap());
            let part = FinishedPart::clipped_to(
                whole,
                TracePart::Hold,
                TimeSpan {
                    start: from,
                    duration: ms(took_ms),
                },
            );
            assert_eq!(
                (part.offset, part.duration),
                (ms(after), ms(took)),
                "{from_ms} {took_ms}"
            );
        }
    }
}

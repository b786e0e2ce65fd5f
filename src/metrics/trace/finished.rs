//! A request that is over, as tracing tells it: plain values, with no more of its URL than its line in the log shows.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use http::Method;
use smallvec::SmallVec;

use crate::clock::Lapse;
use crate::vocab::trace_context::{SpanId, TraceId};

use super::{Part, Trace};

/// One request: its own span, which is the parent of those of its parts.
#[derive(Clone, Debug, PartialEq)]
pub struct FinishedTrace {
    /// The trace.
    pub trace: TraceId,
    /// The request's span.
    pub span: SpanId,
    /// The client's, if it told one.
    pub parent: Option<SpanId>,
    /// When the request's head was complete.
    pub began: SystemTime,
    /// From then to the last byte of the answer.
    pub lasted: Duration,
    /// Its parts, in the order in which they were noted.
    pub parts: SmallVec<[FinishedPart; 6]>,
    /// The method, as the client wrote it.
    pub method: Method,
    /// The canonical URL, as the decision log shows it.
    pub url: Option<Box<str>>,
    /// The host and port, where the log shows the host.
    pub server: Option<(Box<str>, u16)>,
    /// The crawler's name.
    pub crawler: Box<str>,
    /// `allow`, `reject` or `shadow_reject`.
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
    /// The origin's.
    pub origin_status: Option<u16>,
    /// Body bytes that were sent.
    pub bytes: u64,
    /// The address that the request went to.
    pub address: Option<IpAddr>,
    /// An RFC 9209 type, or a word of the log.
    pub error: Option<&'static str>,
}

/// A part of a request, inside its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FinishedPart {
    /// Which.
    pub part: Part,
    /// How long after the request's head it began.
    pub after: Duration,
    /// How long it took.
    pub took: Duration,
}

impl FinishedTrace {
    /// How many spans it is.
    pub fn spans(&self) -> u64 {
        self.parts.len() as u64 + 1
    }
}

impl FinishedPart {
    /// Cut to the time of the whole.
    fn inside(whole: Lapse, part: Part, lapse: Lapse) -> Self {
        let after = lapse
            .began
            .saturating_duration_since(whole.began)
            .min(whole.took);
        Self {
            part,
            after,
            took: lapse.took.min(whole.took - after),
        }
    }
}

impl Trace {
    pub(in crate::metrics) fn finished_parts(&self, whole: Lapse) -> SmallVec<[FinishedPart; 6]> {
        self.parts
            .iter()
            .map(|(part, lapse)| FinishedPart::inside(whole, *part, *lapse))
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
        let whole = Lapse {
            began,
            took: ms(100),
        };
        for (from_ms, took_ms, after, took) in [
            (0, 100, 0, 100),
            (20, 30, 20, 30),
            (90, 30, 90, 10),
            (120, 30, 100, 0),
            (-5, 10, 0, 10),
        ] {
            let from = began.checked_sub(ms(5)).unwrap() + ms(u64::try_from(from_ms + 5).unwrap());
            let part = FinishedPart::inside(
                whole,
                Part::Hold,
                Lapse {
                    began: from,
                    took: ms(took_ms),
                },
            );
            assert_eq!(
                (part.after, part.took),
                (ms(after), ms(took)),
                "{from_ms} {took_ms}"
            );
        }
    }
}

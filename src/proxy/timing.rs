//! Records when a request was decided and the parts of its processing, for the durations in the log
//! and for spans.

use std::time::{Duration, Instant};

use crate::clock::TimeSpan;
use crate::metrics::record::RequestRecord;
use crate::metrics::trace::TracePart;

use super::upstream::{UpstreamError, UpstreamResponse};

/// The times for which a request waited before it was decided.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WaitTimes {
    /// The lookup of its host's name.
    pub(crate) resolved_in: Option<TimeSpan>,
    /// The fetch of its host's robots.txt.
    pub(crate) fetched_in: Option<TimeSpan>,
    /// The wait for its host's turn, which has just ended.
    pub(crate) held: Option<Duration>,
}

/// Records that the request is decided, not counting the time for which it was held. Returns the
/// current time.
pub(crate) fn record_decision(record: &mut RequestRecord, waits: WaitTimes) -> Instant {
    let now = record.clock().now();
    let WaitTimes {
        resolved_in,
        fetched_in,
        held,
    } = waits;
    let held_since = held.and_then(|held| now.checked_sub(held));
    record.set_decided_at(held_since.unwrap_or(now));
    let starts = [
        resolved_in.map(|span| span.start),
        fetched_in.map(|span| span.start),
        held_since,
    ];
    record.set_verdict_at(starts.into_iter().flatten().min().unwrap_or(now));
    if let Some(resolved_in) = resolved_in {
        record.set_dns_time(resolved_in.duration);
        record.add_trace_part(TracePart::Resolve, resolved_in);
    }
    if let Some(fetched_in) = fetched_in {
        record.add_trace_part(TracePart::Robots, fetched_in);
    }
    if let (Some(held), Some(since)) = (held, held_since) {
        record.set_held(held);
        record.add_trace_part(
            TracePart::Hold,
            TimeSpan {
                start: since,
                duration: held,
            },
        );
    }
    now
}

/// Records how the origin was reached, and that the first byte of its response has arrived now.
/// `decided` is the time when the request was decided.
pub(crate) fn record_first_byte(
    record: &mut RequestRecord,
    response: &UpstreamResponse,
    decided: Instant,
) -> Duration {
    if let Some(connect) = response.connect {
        record.set_connect_time(connect.duration);
        record.add_trace_part(TracePart::Connect, connect);
    }
    if let Some(tls) = response.tls {
        record.set_tls_time(tls.duration);
        record.add_trace_part(TracePart::Tls, tls);
    }
    let now = record.clock().now();
    record.add_trace_part(
        TracePart::FirstByte,
        TimeSpan::between(response.sent_at, now),
    );
    now.saturating_duration_since(decided)
}

/// Records that the origin was not reached or did not answer.
pub(crate) fn record_failure(record: &mut RequestRecord, error: &UpstreamError, decided: Instant) {
    record.set_upstream_error(error.as_str());
    if matches!(error, UpstreamError::Dial(_)) {
        let now = record.clock().now();
        record.add_trace_part(TracePart::Connect, TimeSpan::between(decided, now));
    }
}

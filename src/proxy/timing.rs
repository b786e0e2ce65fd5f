//! Tells a record when its request was decided and which parts it had on its way, for the log's durations and for spans.

use std::time::{Duration, Instant};

use crate::clock::TimeSpan;
use crate::metrics::record::RequestRecord;
use crate::metrics::trace::TracePart;

use super::upstream::{UpstreamError, UpstreamResponse};

/// What a request had to wait for before it was decided.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WaitTimes {
    /// For its host's name.
    pub(crate) resolved_in: Option<TimeSpan>,
    /// For its host's robots.txt.
    pub(crate) fetched_in: Option<TimeSpan>,
    /// For its host's turn: until now.
    pub(crate) held: Option<Duration>,
}

/// Tells the record that it is decided; what it was held is no part of that. The time.
pub(crate) fn record_decision(record: &mut RequestRecord, waited: WaitTimes) -> Instant {
    let now = record.clock().now();
    let WaitTimes {
        resolved_in: found_in,
        fetched_in,
        held,
    } = waited;
    record.set_decided_at(held.and_then(|held| now.checked_sub(held)).unwrap_or(now));
    let held_since = held.and_then(|held| now.checked_sub(held));
    let waits = [
        found_in.map(|lapse| lapse.start),
        fetched_in.map(|lapse| lapse.start),
        held_since,
    ];
    record.set_verdict_at(waits.into_iter().flatten().min().unwrap_or(now));
    if let Some(found_in) = found_in {
        record.set_dns_time(found_in.duration);
        record.add_trace_part(TracePart::Resolve, found_in);
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

/// Tells the record how the origin was reached, and of the first byte of its answer: now. `decided` is when the request
/// set out for it.
pub(crate) fn record_first_byte(
    record: &mut RequestRecord,
    answered: &UpstreamResponse,
    decided: Instant,
) -> Duration {
    if let Some(connect) = answered.connect {
        record.set_connect_time(connect.duration);
        record.add_trace_part(TracePart::Connect, connect);
    }
    if let Some(tls) = answered.tls {
        record.set_tls_time(tls.duration);
        record.add_trace_part(TracePart::Tls, tls);
    }
    let now = record.clock().now();
    record.add_trace_part(
        TracePart::FirstByte,
        TimeSpan::between(answered.sent_at, now),
    );
    now.saturating_duration_since(decided)
}

/// Tells the record that the origin was not reached, or did not answer.
pub(crate) fn record_failure(record: &mut RequestRecord, error: &UpstreamError, decided: Instant) {
    record.set_upstream_error(error.as_str());
    if matches!(error, UpstreamError::Dial(_)) {
        let now = record.clock().now();
        record.add_trace_part(TracePart::Connect, TimeSpan::between(decided, now));
    }
}

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
    pub(crate) name_lookup: Option<TimeSpan>,
    /// The fetch of its host's robots.txt.
    pub(crate) robots_fetch: Option<TimeSpan>,
    /// The wait for its host's turn, which has just ended.
    pub(crate) held: Option<Duration>,
}

/// Records that the request is decided, not counting the time for which it was held. Returns the
/// current time.
pub(crate) fn record_decision(record: &mut RequestRecord, waits: WaitTimes) -> Instant {
    let now = record.clock().now();
    let WaitTimes {
        name_lookup,
        robots_fetch,
        held,
    } = waits;
    let held_since = held.and_then(|held| now.checked_sub(held));
    record.set_decided_at(held_since.unwrap_or(now));
    let starts = [
        name_lookup.map(|span| span.start),
        robots_fetch.map(|span| span.start),
        held_since,
    ];
    record.set_verdict_at(starts.into_iter().flatten().min().unwrap_or(now));
    if let Some(name_lookup) = name_lookup {
        record.set_dns_time(name_lookup.duration);
        record.add_trace_part(TracePart::Resolve, name_lookup);
    }
    if let Some(robots_fetch) = robots_fetch {
        record.add_trace_part(TracePart::Robots, robots_fetch);
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
/// `decided_at` is the time of [`record_decision`].
pub(crate) fn record_first_byte(
    record: &mut RequestRecord,
    response: &UpstreamResponse,
    decided_at: Instant,
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
        TimeSpan::between(response.ready_at, now),
    );
    now.saturating_duration_since(decided_at)
}

/// Records that the origin was not reached or did not answer.
pub(crate) fn record_failure(
    record: &mut RequestRecord,
    error: &UpstreamError,
    decided_at: Instant,
) {
    record.set_upstream_error(error.as_str());
    if matches!(error, UpstreamError::Dial(_)) {
        let now = record.clock().now();
        record.add_trace_part(TracePart::Connect, TimeSpan::between(decided_at, now));
    }
}

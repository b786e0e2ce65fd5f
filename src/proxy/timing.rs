//! Tells a record when its request was decided and which parts it had on its way, for the log's durations and for spans.

use std::time::{Duration, Instant};

use crate::clock::Lapse;
use crate::metrics::record::Record;
use crate::metrics::trace::Part;

use super::upstream::{Answered, UpstreamError};

/// What a request had to wait for before it was decided.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::proxy) struct Waited {
    /// For its host's name.
    pub(in crate::proxy) found_in: Option<Lapse>,
    /// For its host's robots.txt.
    pub(in crate::proxy) fetched_in: Option<Lapse>,
    /// For its host's turn: until now.
    pub(in crate::proxy) held: Option<Duration>,
}

/// Tells the record that it is decided; what it was held is no part of that. The time.
pub(in crate::proxy) fn decided(record: &mut Record, waited: Waited) -> Instant {
    let now = record.clock().now();
    let Waited {
        found_in,
        fetched_in,
        held,
    } = waited;
    record.decided_at(held.and_then(|held| now.checked_sub(held)).unwrap_or(now));
    let held_since = held.and_then(|held| now.checked_sub(held));
    let waits = [
        found_in.map(|lapse| lapse.began),
        fetched_in.map(|lapse| lapse.began),
        held_since,
    ];
    record.verdict_at(waits.into_iter().flatten().min().unwrap_or(now));
    if let Some(found_in) = found_in {
        record.resolved_in(found_in.took);
        record.part(Part::Resolve, found_in);
    }
    if let Some(fetched_in) = fetched_in {
        record.part(Part::Robots, fetched_in);
    }
    if let (Some(held), Some(since)) = (held, held_since) {
        record.held(held);
        record.part(
            Part::Hold,
            Lapse {
                began: since,
                took: held,
            },
        );
    }
    now
}

/// Tells the record how the origin was reached, and of the first byte of its answer: now. `decided` is when the request
/// set out for it.
pub(in crate::proxy) fn answered(
    record: &mut Record,
    answered: &Answered,
    decided: Instant,
) -> Duration {
    if let Some(connect) = answered.connect {
        record.connected_in(connect.took);
        record.part(Part::Connect, connect);
    }
    if let Some(tls) = answered.tls {
        record.tls_in(tls.took);
        record.part(Part::Tls, tls);
    }
    let now = record.clock().now();
    record.part(Part::FirstByte, Lapse::between(answered.sent, now));
    now.saturating_duration_since(decided)
}

/// Tells the record that the origin was not reached, or did not answer.
pub(in crate::proxy) fn failed(record: &mut Record, error: &UpstreamError, decided: Instant) {
    record.upstream_failed(error.as_str());
    if matches!(error, UpstreamError::Dial(_)) {
        let now = record.clock().now();
        record.part(Part::Connect, Lapse::between(decided, now));
    }
}

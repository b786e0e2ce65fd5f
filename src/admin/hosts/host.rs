//! One host as JSON: a row of the list, or its whole state.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::admin::fleet::HostOwner;
use crate::admin::response;
use crate::clock::Rfc3339;
use crate::pipeline::admission::host_status::{
    AdaptivePaceStatus, HostStatus, PaceStatus, Tracking,
};

use super::selector::HostSelector;

/// Returns the row of a list.
pub(super) fn row_to_json(host: &HostStatus) -> Json {
    match host.tracking {
        Tracking::Yes => tracked_to_json(host),
        Tracking::No => untracked_to_json(host),
    }
}

fn tracked_to_json(host: &HostStatus) -> Json {
    json!({
        "host": &*host.name,
        "waiting": host.waiting,
        "slots": { "used": host.in_flight, "of": host.slots },
        "next_in_ms": ceil_millis(host.next_in),
        "delay_ms": ceil_millis(host.delay),
        "resting": host.backoff.map(|backoff| json!({
            "until": Rfc3339(backoff.until).to_string(),
            "for_ms": ceil_millis(backoff.remaining),
            "why": backoff.cause,
        })),
        "last_request": host.last_request.map(|last| Rfc3339(last).to_string()),
        "errors_in_row": host.failures,
        "crawlers_waiting": host.crawlers,
        "stopped": host.stopped,
    })
}

/// Returns the whole state of a host.
pub(super) fn host_to_json(
    selector: &HostSelector,
    status: &HostStatus,
    refusing: &[(SocketAddr, Duration)],
    robots: Json,
    owner: Option<&HostOwner>,
) -> Json {
    let mut document = row_to_json(status);
    let is_tracked = status.tracking == Tracking::Yes;
    let addresses: Vec<Json> = refusing
        .iter()
        .map(|(address, remaining)| json!({ "address": address.to_string(), "for_ms": ceil_millis(*remaining) }))
        .collect();
    let members = json!({
        "host": selector.host,
        "tracked": is_tracked,
        "paced_as": is_tracked.then_some(&*status.name),
        "rests_remembered": is_tracked.then_some(status.backoff_count),
        "pace": status.pace.as_ref().map(pace_to_json),
        "adaptive": adaptive_to_json(status),
        "unpaid_ms": status.byte_debt.map(ceil_millis),
        "dead": if addresses.is_empty() { Json::Null } else { json!({ "addresses": addresses }) },
        "robots": robots,
        "owner": owner.map(HostOwner::to_json),
    });
    response::extend(&mut document, &members);
    document
}

/// Returns a host of which only its stops, and perhaps its robots.txt, are known.
fn untracked_to_json(host: &HostStatus) -> Json {
    json!({
        "host": &*host.name,
        "waiting": host.waiting,
        "slots": null,
        "next_in_ms": null,
        "delay_ms": null,
        "resting": null,
        "last_request": null,
        "errors_in_row": 0,
        "crawlers_waiting": host.crawlers,
        "stopped": host.stopped,
    })
}

fn pace_to_json(pace: &PaceStatus) -> Json {
    let (from, to) = pace.jitter;
    json!({
        "delay_ms": ceil_millis(pace.delay),
        "jitter": [to_decimal(from), to_decimal(to)],
        "one_per_ms": pace.rate.map(|(interval, _)| ceil_millis(interval)),
        "burst": pace.rate.map(|(_, burst)| burst),
        "concurrency": pace.concurrency,
        "bytes_per_second": pace.bytes_per_second,
    })
}

fn adaptive_to_json(status: &HostStatus) -> Option<Json> {
    let AdaptivePaceStatus { factor, min, max } = status.pace.as_ref()?.adaptive?;
    Some(json!({
        "latency_ms": status.latency.map(ceil_millis),
        "factor": to_decimal(factor),
        "min_ms": ceil_millis(min),
        "max_ms": ceil_millis(max),
        "delay_ms": ceil_millis(status.delay),
    }))
}

/// Widens a number by its decimal form, so that 1.2 does not become 1.2000000476837158.
fn to_decimal(number: f32) -> f64 {
    number.to_string().parse().unwrap_or_else(|_| number.into())
}

/// Returns whole milliseconds, rounded up so that a remaining time is never shown as 0.
pub(super) fn ceil_millis(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

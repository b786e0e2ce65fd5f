//! One host as JSON: a row of the list, and all that is known of it.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::admin::page;
use crate::clock::Rfc3339;
use crate::gate::hold::seen::{AdaptiveSeen, HostSeen, PaceSeen, Tracked};

use super::name::Name;

/// The row of a list.
pub(super) fn row(host: &HostSeen) -> Json {
    match host.tracked {
        Tracked::Yes => tracked(host),
        Tracked::No => untracked(host),
    }
}

fn tracked(host: &HostSeen) -> Json {
    json!({
        "host": &*host.name,
        "waiting": host.waiting,
        "slots": { "used": host.under_way, "of": host.slots },
        "next_in_ms": ms(host.next),
        "delay_ms": ms(host.delay),
        "resting": host.rest.map(|rest| json!({
            "until": Rfc3339(rest.until).to_string(),
            "for_ms": ms(rest.left),
            "why": rest.why,
        })),
        "last_request": host.last.map(|last| Rfc3339(last).to_string()),
        "errors_in_row": host.failures,
        "crawlers_waiting": host.crawlers,
        "stopped": host.stopped,
    })
}

/// All that is known of one.
pub(super) fn shown(
    name: &Name,
    seen: &HostSeen,
    dead: &[(SocketAddr, Duration)],
    robots: Json,
) -> Json {
    let mut document = row(seen);
    let is_tracked = seen.tracked == Tracked::Yes;
    let refusing = |(address, left): &(SocketAddr, Duration)| json!({ "address": address.to_string(), "for_ms": ms(*left) });
    let addresses: Vec<Json> = dead.iter().map(refusing).collect();
    let more = json!({
        "host": name.host,
        "tracked": is_tracked,
        "paced_as": is_tracked.then_some(&*seen.name),
        "rests_remembered": is_tracked.then_some(seen.rests),
        "pace": seen.pace.as_ref().map(pace),
        "adaptive": adaptive(seen),
        "unpaid_ms": seen.owed.map(ms),
        "dead": if addresses.is_empty() { Json::Null } else { json!({ "addresses": addresses }) },
        "robots": robots,
    });
    page::extend(&mut document, &more);
    document
}

/// A host of which nothing but its stops, and perhaps its robots.txt, is known.
fn untracked(host: &HostSeen) -> Json {
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

fn pace(pace: &PaceSeen) -> Json {
    let (from, to) = pace.jitter;
    json!({
        "delay_ms": ms(pace.delay),
        "jitter": [decimal(from), decimal(to)],
        "one_per_ms": pace.rate.map(|(interval, _)| ms(interval)),
        "burst": pace.rate.map(|(_, burst)| burst),
        "concurrency": pace.concurrency,
        "bytes_per_second": pace.bytes_per_second,
    })
}

fn adaptive(seen: &HostSeen) -> Option<Json> {
    let AdaptiveSeen { factor, min, max } = seen.pace.as_ref()?.adaptive?;
    Some(json!({
        "latency_ms": seen.latency.map(ms),
        "factor": decimal(factor),
        "min_ms": ms(min),
        "max_ms": ms(max),
        "delay_ms": ms(seen.delay),
    }))
}

/// The number that was written: 1.2, where its next neighbour among wider numbers is 1.2000000476837158.
fn decimal(number: f32) -> f64 {
    number.to_string().parse().unwrap_or_else(|_| number.into())
}

/// Whole milliseconds, rounded up: what is left of something is never nothing.
pub(super) fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

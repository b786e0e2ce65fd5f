//! `limits` and `timeouts` of the configuration file, with the bounds that keep a slip of the pen from stopping
//! everything.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::config::settings::{LimitsConfig, TimeoutsConfig};
use crate::diagnostics::problems::Problems;
use crate::model::units::{format_duration, format_size};
use crate::yaml::Node;
use crate::yaml::read::{self, MapReader};

use super::{set_if_some, unsupported};

/// The longest time-out: none at all would be written so, and longer ones overflow clocks.
const MAX_TIMEOUT: Duration = Duration::from_secs(365 * 86_400);
/// Below this hyper cannot read a head; above it one client could fill the memory.
const HEAD_RANGE: RangeInclusive<u64> = 8 << 10..=16 << 20;
const TARGET_RANGE: RangeInclusive<u64> = 256..=16 << 20;
const BODY_RANGE: RangeInclusive<u64> = 0..=1 << 50;
/// `http::HeaderMap` holds no more than 32,768.
const FIELDS_RANGE: RangeInclusive<i64> = 1..=10_000;
const COUNT_RANGE: RangeInclusive<i64> = 1..=10_000_000;
const COUNT_OR_NONE_RANGE: RangeInclusive<i64> = 0..=10_000_000;

/// One key: what it means, and where its value goes.
pub(super) struct NumericKey<T: 'static> {
    /// The key.
    pub(super) key: &'static str,
    /// What it means, for editors.
    pub(super) about: &'static str,
    /// What values it takes.
    pub(super) kind: NumericKind<T>,
}

/// The kinds of values, with their bounds and their places.
pub(super) enum NumericKind<T: 'static> {
    /// A whole number.
    Count(RangeInclusive<i64>, fn(&mut T) -> &mut u64),
    /// A size in bytes.
    Size(RangeInclusive<u64>, fn(&mut T) -> &mut u64),
    /// A duration of at least so much.
    Time(Duration, fn(&mut T) -> &mut Duration),
}

/// The keys of `limits`.
pub(super) const LIMIT_KEYS: &[NumericKey<LimitsConfig>] = &[
    count_key(
        "connections",
        "Client connections; over it they are answered 503.",
        COUNT_RANGE,
        |l| &mut l.connections,
    ),
    count_key(
        "per_client",
        "Client connections from one address.",
        COUNT_RANGE,
        |l| &mut l.per_client,
    ),
    size_key(
        "head",
        "Request line and fields; over it 431.",
        HEAD_RANGE,
        |l| &mut l.head,
    ),
    count_key(
        "fields",
        "Fields of a request; over it 431.",
        FIELDS_RANGE,
        |l| &mut l.fields,
    ),
    size_key(
        "target",
        "The URL in the request line; over it 414.",
        TARGET_RANGE,
        |l| &mut l.target,
    ),
    size_key(
        "origin_head",
        "The head of a response; over it 502.",
        HEAD_RANGE,
        |l| &mut l.origin_head,
    ),
    count_key(
        "origin_fields",
        "Fields of a response; over it 502.",
        FIELDS_RANGE,
        |l| &mut l.origin_fields,
    ),
    size_key(
        "request_body",
        "The body of a request; over it 413.",
        BODY_RANGE,
        |l| &mut l.request_body,
    ),
    count_key(
        "queue_per_host",
        "Requests that wait for one host's turn.",
        COUNT_RANGE,
        |l| &mut l.queue_per_host,
    ),
    count_key("queue", "Requests that wait in all.", COUNT_RANGE, |l| {
        &mut l.queue
    }),
    NumericKey {
        key: "max_hold",
        about: "The longest wait that a crawler can ask for by Crawl-Max-Wait.",
        kind: NumericKind::Time(Duration::ZERO, |l| &mut l.max_hold),
    },
    count_key(
        "tunnels_per_host",
        "Open tunnels to one host; over it 503.",
        COUNT_RANGE,
        |l| &mut l.tunnels_per_host,
    ),
    count_key(
        "idle_pool",
        "Idle connections to origins in all.",
        COUNT_OR_NONE_RANGE,
        |l| &mut l.idle_pool,
    ),
    count_key(
        "idle_per_host",
        "Idle connections to one origin.",
        COUNT_OR_NONE_RANGE,
        |l| &mut l.idle_per_host,
    ),
];

/// The keys of `timeouts`.
pub(super) const TIMEOUT_KEYS: &[NumericKey<TimeoutsConfig>] = &[
    time_key(
        "head",
        "A request head, from its first byte; over it 408.",
        |t| &mut t.head,
    ),
    time_key("idle", "A client connection without a request.", |t| {
        &mut t.idle
    }),
    time_key("tls", "A TLS handshake, and a tunnel's first bytes.", |t| {
        &mut t.tls
    }),
    time_key("dns", "A name look-up; over it 504.", |t| &mut t.dns),
    time_key("connect", "One attempt to connect.", |t| &mut t.connect),
    time_key(
        "connect_total",
        "All attempts to connect; over it 504.",
        |t| &mut t.connect_total,
    ),
    time_key(
        "response_head",
        "From the end of the request to the end of the response head; over it 504.",
        |t| &mut t.response_head,
    ),
    time_key("body_idle", "A body of which nothing arrives.", |t| {
        &mut t.body_idle
    }),
    time_key(
        "write_stall",
        "A client that does not read its answer.",
        |t| &mut t.write_stall,
    ),
    time_key("request", "A request as a whole.", |t| &mut t.request),
    time_key("tunnel_idle", "A tunnel in which nothing moves.", |t| {
        &mut t.tunnel_idle
    }),
    time_key("tunnel", "A tunnel as a whole.", |t| &mut t.tunnel),
    NumericKey {
        key: "drain",
        about: "After SIGTERM: what running requests still have.",
        kind: NumericKind::Time(Duration::ZERO, |t| &mut t.drain),
    },
    NumericKey {
        key: "drain_delay",
        about: "After SIGTERM: how long it still accepts, so that load balancers can notice.",
        kind: NumericKind::Time(Duration::ZERO, |t| &mut t.drain_delay),
    },
];

const fn count_key<T>(
    key: &'static str,
    about: &'static str,
    range: RangeInclusive<i64>,
    place: fn(&mut T) -> &mut u64,
) -> NumericKey<T> {
    NumericKey {
        key,
        about,
        kind: NumericKind::Count(range, place),
    }
}

const fn size_key<T>(
    key: &'static str,
    about: &'static str,
    range: RangeInclusive<u64>,
    place: fn(&mut T) -> &mut u64,
) -> NumericKey<T> {
    NumericKey {
        key,
        about,
        kind: NumericKind::Size(range, place),
    }
}

/// A time-out: none ends before it begins.
const fn time_key<T>(
    key: &'static str,
    about: &'static str,
    place: fn(&mut T) -> &mut Duration,
) -> NumericKey<T> {
    NumericKey {
        key,
        about,
        kind: NumericKind::Time(Duration::from_millis(1), place),
    }
}

/// Reads `limits` or `timeouts`.
pub(super) fn read<T>(
    values: &mut T,
    rows: &'static [NumericKey<T>],
    group: &str,
    mut map: MapReader<'_>,
    problems: &mut Problems,
) {
    read_numeric_keys(values, rows, &mut map, problems);
    unsupported::check(&mut map, group, problems);
    map.finish(problems);
}

/// Reads those keys of a group that stand in a table.
pub(super) fn read_numeric_keys<T>(
    values: &mut T,
    rows: &'static [NumericKey<T>],
    map: &mut MapReader<'_>,
    problems: &mut Problems,
) {
    for row in rows {
        let Some(node) = map.take(row.key) else {
            continue;
        };
        match &row.kind {
            NumericKind::Count(range, place) => {
                set_if_some(place(values), read_count(node, range.clone(), problems))
            }
            NumericKind::Size(range, place) => {
                set_if_some(place(values), read_size(node, range, problems))
            }
            NumericKind::Time(least, place) => {
                set_if_some(place(values), read_duration(node, *least, problems))
            }
        }
    }
}

fn read_count(node: &Node, range: RangeInclusive<i64>, problems: &mut Problems) -> Option<u64> {
    read::integer(node, range, problems).and_then(|n| u64::try_from(n).ok())
}

fn read_size(node: &Node, range: &RangeInclusive<u64>, problems: &mut Problems) -> Option<u64> {
    let size = read::size(node, problems)?;
    if range.contains(&size) {
        return Some(size);
    }
    let (least, most) = (format_size(*range.start()), format_size(*range.end()));
    problems.push(read::wrong_type(
        node,
        &format!("a size from {least} to {most} is needed here"),
    ));
    None
}

fn read_duration(node: &Node, least: Duration, problems: &mut Problems) -> Option<Duration> {
    let duration = read::duration(node, problems)?;
    if (least..=MAX_TIMEOUT).contains(&duration) {
        return Some(duration);
    }
    let (least, most) = (format_duration(least), format_duration(MAX_TIMEOUT));
    problems.push(read::wrong_type(
        node,
        &format!("a duration from {least} to {most} is needed here"),
    ));
    None
}

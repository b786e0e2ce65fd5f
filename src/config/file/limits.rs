//! `limits` and `timeouts` of the configuration file, with the bounds that keep a slip of the pen from stopping
//! everything.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::config::settings::{Limits, Timeouts};
use crate::vocab::problems::Problems;
use crate::vocab::units::{show_duration, show_size};
use crate::yaml::Node;
use crate::yaml::read::{self, MapReader};

use super::{later, set};

/// The longest time-out: none at all would be written so, and longer ones overflow clocks.
const LONGEST: Duration = Duration::from_secs(365 * 86_400);
/// Below this hyper cannot read a head; above it one client could fill the memory.
const HEAD: RangeInclusive<u64> = 8 << 10..=16 << 20;
const TARGET: RangeInclusive<u64> = 256..=16 << 20;
const BODY: RangeInclusive<u64> = 0..=1 << 50;
/// `http::HeaderMap` holds no more than 32,768.
const FIELDS: RangeInclusive<i64> = 1..=10_000;
const COUNT: RangeInclusive<i64> = 1..=10_000_000;
const COUNT_OR_NONE: RangeInclusive<i64> = 0..=10_000_000;

/// One key: what it means, and where its value goes.
pub(super) struct Row<T: 'static> {
    /// The key.
    pub(super) key: &'static str,
    /// What it means, for editors.
    pub(super) about: &'static str,
    /// What values it takes.
    pub(super) kind: Kind<T>,
}

/// The kinds of values, with their bounds and their places.
pub(super) enum Kind<T: 'static> {
    /// A whole number.
    Count(RangeInclusive<i64>, fn(&mut T) -> &mut u64),
    /// A size in bytes.
    Size(RangeInclusive<u64>, fn(&mut T) -> &mut u64),
    /// A duration of at least so much.
    Time(Duration, fn(&mut T) -> &mut Duration),
}

/// The keys of `limits`.
pub(super) const LIMITS: &[Row<Limits>] = &[
    count_of(
        "connections",
        "Client connections; over it they are answered 503.",
        COUNT,
        |l| &mut l.connections,
    ),
    count_of(
        "per_client",
        "Client connections from one address.",
        COUNT,
        |l| &mut l.per_client,
    ),
    size_of("head", "Request line and fields; over it 431.", HEAD, |l| {
        &mut l.head
    }),
    count_of("fields", "Fields of a request; over it 431.", FIELDS, |l| {
        &mut l.fields
    }),
    size_of(
        "target",
        "The URL in the request line; over it 414.",
        TARGET,
        |l| &mut l.target,
    ),
    size_of(
        "origin_head",
        "The head of a response; over it 502.",
        HEAD,
        |l| &mut l.origin_head,
    ),
    count_of(
        "origin_fields",
        "Fields of a response; over it 502.",
        FIELDS,
        |l| &mut l.origin_fields,
    ),
    size_of(
        "request_body",
        "The body of a request; over it 413.",
        BODY,
        |l| &mut l.request_body,
    ),
    count_of(
        "queue_per_host",
        "Requests that wait for one host's turn.",
        COUNT,
        |l| &mut l.queue_per_host,
    ),
    count_of("queue", "Requests that wait in all.", COUNT, |l| {
        &mut l.queue
    }),
    Row {
        key: "max_hold",
        about: "The longest wait that a crawler can ask for by Crawl-Max-Wait.",
        kind: Kind::Time(Duration::ZERO, |l| &mut l.max_hold),
    },
    count_of(
        "tunnels_per_host",
        "Open tunnels to one host; over it 503.",
        COUNT,
        |l| &mut l.tunnels_per_host,
    ),
    count_of(
        "idle_pool",
        "Idle connections to origins in all.",
        COUNT_OR_NONE,
        |l| &mut l.idle_pool,
    ),
    count_of(
        "idle_per_host",
        "Idle connections to one origin.",
        COUNT_OR_NONE,
        |l| &mut l.idle_per_host,
    ),
];

/// The keys of `timeouts`.
pub(super) const TIMEOUTS: &[Row<Timeouts>] = &[
    time_of(
        "head",
        "A request head, from its first byte; over it 408.",
        |t| &mut t.head,
    ),
    time_of("idle", "A client connection without a request.", |t| {
        &mut t.idle
    }),
    time_of("tls", "A TLS handshake, and a tunnel's first bytes.", |t| {
        &mut t.tls
    }),
    time_of("dns", "A name look-up; over it 504.", |t| &mut t.dns),
    time_of("connect", "One attempt to connect.", |t| &mut t.connect),
    time_of(
        "connect_total",
        "All attempts to connect; over it 504.",
        |t| &mut t.connect_total,
    ),
    time_of(
        "response_head",
        "From the end of the request to the end of the response head; over it 504.",
        |t| &mut t.response_head,
    ),
    time_of("body_idle", "A body of which nothing arrives.", |t| {
        &mut t.body_idle
    }),
    time_of(
        "write_stall",
        "A client that does not read its answer.",
        |t| &mut t.write_stall,
    ),
    time_of("request", "A request as a whole.", |t| &mut t.request),
    time_of("tunnel_idle", "A tunnel in which nothing moves.", |t| {
        &mut t.tunnel_idle
    }),
    time_of("tunnel", "A tunnel as a whole.", |t| &mut t.tunnel),
    Row {
        key: "drain",
        about: "After SIGTERM: what running requests still have.",
        kind: Kind::Time(Duration::ZERO, |t| &mut t.drain),
    },
    Row {
        key: "drain_delay",
        about: "After SIGTERM: how long it still accepts, so that load balancers can notice.",
        kind: Kind::Time(Duration::ZERO, |t| &mut t.drain_delay),
    },
];

const fn count_of<T>(
    key: &'static str,
    about: &'static str,
    range: RangeInclusive<i64>,
    place: fn(&mut T) -> &mut u64,
) -> Row<T> {
    Row {
        key,
        about,
        kind: Kind::Count(range, place),
    }
}

const fn size_of<T>(
    key: &'static str,
    about: &'static str,
    range: RangeInclusive<u64>,
    place: fn(&mut T) -> &mut u64,
) -> Row<T> {
    Row {
        key,
        about,
        kind: Kind::Size(range, place),
    }
}

/// A time-out: none ends before it begins.
const fn time_of<T>(
    key: &'static str,
    about: &'static str,
    place: fn(&mut T) -> &mut Duration,
) -> Row<T> {
    Row {
        key,
        about,
        kind: Kind::Time(Duration::from_millis(1), place),
    }
}

/// Reads `limits` or `timeouts`.
pub(super) fn read<T>(
    values: &mut T,
    rows: &'static [Row<T>],
    group: &str,
    mut map: MapReader<'_>,
    problems: &mut Problems,
) {
    read_rows(values, rows, &mut map, problems);
    later::check(&mut map, group, problems);
    map.finish(problems);
}

/// Reads those keys of a group that stand in a table.
pub(super) fn read_rows<T>(
    values: &mut T,
    rows: &'static [Row<T>],
    map: &mut MapReader<'_>,
    problems: &mut Problems,
) {
    for row in rows {
        let Some(node) = map.take(row.key) else {
            continue;
        };
        match &row.kind {
            Kind::Count(range, place) => set(place(values), count(node, range.clone(), problems)),
            Kind::Size(range, place) => set(place(values), size(node, range, problems)),
            Kind::Time(least, place) => set(place(values), between(node, *least, problems)),
        }
    }
}

fn count(node: &Node, range: RangeInclusive<i64>, problems: &mut Problems) -> Option<u64> {
    read::integer(node, range, problems).and_then(|n| u64::try_from(n).ok())
}

fn size(node: &Node, range: &RangeInclusive<u64>, problems: &mut Problems) -> Option<u64> {
    let size = read::size(node, problems)?;
    if range.contains(&size) {
        return Some(size);
    }
    let (least, most) = (show_size(*range.start()), show_size(*range.end()));
    problems.push(read::wrong_type(
        node,
        &format!("a size from {least} to {most} is needed here"),
    ));
    None
}

fn between(node: &Node, least: Duration, problems: &mut Problems) -> Option<Duration> {
    let duration = read::duration(node, problems)?;
    if (least..=LONGEST).contains(&duration) {
        return Some(duration);
    }
    let (least, most) = (show_duration(least), show_duration(LONGEST));
    problems.push(read::wrong_type(
        node,
        &format!("a duration from {least} to {most} is needed here"),
    ));
    None
}

//! `limits` and `timeouts` of the configuration file. The ranges keep a typo from stopping everything.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::config::settings::Settings;

use super::key::{ConfigKey, CountValue, SizeValue, TimeValue};

/// Below the minimum hyper cannot read a head; above the maximum one client could exhaust the memory.
const HEAD_RANGE: RangeInclusive<u64> = 8 << 10..=16 << 20;
const TARGET_RANGE: RangeInclusive<u64> = 256..=16 << 20;
const BODY_RANGE: RangeInclusive<u64> = 0..=1 << 50;
/// `http::HeaderMap` holds at most 32,768 fields.
const FIELDS_RANGE: RangeInclusive<i64> = 1..=10_000;
const COUNT_RANGE: RangeInclusive<i64> = 1..=10_000_000;
const COUNT_OR_ZERO_RANGE: RangeInclusive<i64> = 0..=10_000_000;
/// The maximum is as good as no limit; longer durations would overflow clocks.
const TIME_RANGE: RangeInclusive<Duration> = Duration::from_millis(1)..=MAX_TIME;
const TIME_OR_ZERO_RANGE: RangeInclusive<Duration> = Duration::ZERO..=MAX_TIME;
const MAX_TIME: Duration = Duration::from_secs(365 * 86_400);

pub(super) const LIMIT_KEYS: &[ConfigKey<Settings>] = &[
    ConfigKey::new(
        "connections",
        "The maximum number of client connections; others are answered with 503. Lowered if the limit of open files is too low.",
        &CountValue(COUNT_RANGE, |s: &mut Settings| &mut s.accept.connections),
    ),
    ConfigKey::new(
        "per_client",
        "The maximum number of client connections from one address.",
        &CountValue(COUNT_RANGE, |s: &mut Settings| &mut s.accept.per_client),
    ),
    ConfigKey::new(
        "head",
        "The size of a request line with its headers; over it 431.",
        &SizeValue(HEAD_RANGE, |s: &mut Settings| {
            &mut s.accept.reader.limits.bytes
        }),
    ),
    ConfigKey::new(
        "fields",
        "The number of headers of a request; over it 431.",
        &CountValue(FIELDS_RANGE, |s: &mut Settings| {
            &mut s.accept.reader.limits.fields
        }),
    ),
    ConfigKey::new(
        "target",
        "The size of the URL in the request line; over it 414.",
        &SizeValue(TARGET_RANGE, |s: &mut Settings| {
            &mut s.accept.reader.limits.target
        }),
    ),
    ConfigKey::new(
        "origin_head",
        "The size of a response head; over it 502.",
        &SizeValue(HEAD_RANGE, |s: &mut Settings| &mut s.upstream.max_head_size),
    ),
    ConfigKey::new(
        "origin_fields",
        "The number of headers of a response; over it 502.",
        &CountValue(FIELDS_RANGE, |s: &mut Settings| &mut s.upstream.max_fields),
    ),
    ConfigKey::new(
        "request_body",
        "The size of a request body; over it 413.",
        &SizeValue(BODY_RANGE, |s: &mut Settings| &mut s.max_request_body),
    ),
    ConfigKey::new(
        "queue_per_host",
        "Requests that may wait for one host's turn; further ones are refused at once.",
        &CountValue(COUNT_RANGE, |s: &mut Settings| &mut s.admission.per_host),
    ),
    ConfigKey::new(
        "queue",
        "Requests that may wait in total.",
        &CountValue(COUNT_RANGE, |s: &mut Settings| &mut s.admission.total),
    ),
    ConfigKey::new(
        "max_hold",
        "The longest wait that a crawler can request with Crawl-Max-Wait.",
        &TimeValue(TIME_OR_ZERO_RANGE, |s: &mut Settings| {
            vec![&mut s.admission.max_wait]
        }),
    ),
    ConfigKey::new(
        "tunnels_per_host",
        "Open tunnels to one host whose bytes are copied unread; over it 503.",
        &CountValue(COUNT_RANGE, |s: &mut Settings| &mut s.tunnels.per_host),
    ),
    ConfigKey::new(
        "idle_pool",
        "Idle connections to origins in total.",
        &CountValue(COUNT_OR_ZERO_RANGE, |s: &mut Settings| {
            &mut s.upstream.pool.total
        }),
    ),
    ConfigKey::new(
        "idle_per_host",
        "Idle connections to one origin.",
        &CountValue(COUNT_OR_ZERO_RANGE, |s: &mut Settings| {
            &mut s.upstream.pool.per_host
        }),
    ),
];

pub(super) const TIMEOUT_KEYS: &[ConfigKey<Settings>] = &[
    ConfigKey::new(
        "head",
        "A request head, from its first byte; over it 408.",
        &TimeValue(TIME_RANGE, |s: &mut Settings| {
            vec![&mut s.accept.reader.head]
        }),
    ),
    ConfigKey::new(
        "idle",
        "A client connection without a request, or an idle connection to an origin.",
        &TimeValue(TIME_RANGE, |s: &mut Settings| {
            vec![&mut s.accept.reader.idle, &mut s.upstream.pool.idle]
        }),
    ),
    ConfigKey::new(
        "tls",
        "A TLS handshake, and the first bytes of a tunnel.",
        &TimeValue(TIME_RANGE, |s: &mut Settings| {
            vec![&mut s.tls.handshake_timeout, &mut s.tunnels.hello]
        }),
    ),
    ConfigKey::new(
        "dns",
        "A name lookup; over it 504.",
        &TimeValue(TIME_RANGE, |s: &mut Settings| vec![&mut s.dns.timeout]),
    ),
    ConfigKey::new(
        "connect",
        "One attempt to connect.",
        &TimeValue(TIME_RANGE, |s: &mut Settings| {
            vec![&mut s.upstream.dial.connect, &mut s.tunnels.dial.connect]
        }),
    ),
    ConfigKey::new(
        "connect_total",
        "All attempts to connect; over it 504.",
        &TimeValue(TIME_RANGE, |s: &mut Settings| {
            vec![&mut s.upstream.dial.total, &mut s.tunnels.dial.total]
        }),
    ),
    ConfigKey::new(
        "response_head",
        "From the end of the request to the end of the response head; over it 504.",
        &TimeValue(TIME_RANGE, |s: &mut Settings| {
            vec![&mut s.upstream.response_head_timeout]
        }),
    ),
    ConfigKey::new(
        "body_idle",
        "A body during which nothing arrives.",
        &TimeValue(TIME_RANGE, |s: &mut Settings| {
            vec![&mut s.upstream.body_idle_timeout]
        }),
    ),
    ConfigKey::new(
        "write_stall",
        "A client that does not read its response.",
        &TimeValue(TIME_RANGE, |s: &mut Settings| {
            vec![&mut s.accept.reader.write_stall]
        }),
    ),
    ConfigKey::new(
        "request",
        "A request as a whole.",
        &TimeValue(TIME_RANGE, |s: &mut Settings| {
            vec![&mut s.upstream.body_timeout]
        }),
    ),
    ConfigKey::new(
        "tunnel_idle",
        "A tunnel without traffic.",
        &TimeValue(TIME_RANGE, |s: &mut Settings| vec![&mut s.tunnels.idle]),
    ),
    ConfigKey::new(
        "tunnel",
        "A tunnel as a whole.",
        &TimeValue(TIME_RANGE, |s: &mut Settings| vec![&mut s.tunnels.total]),
    ),
    ConfigKey::new(
        "drain",
        "After SIGTERM: how long running requests may take to complete.",
        &TimeValue(TIME_OR_ZERO_RANGE, |s: &mut Settings| {
            vec![&mut s.drain.timeout]
        }),
    ),
    ConfigKey::new(
        "drain_delay",
        "After SIGTERM: how long connections are still accepted, so that load balancers can notice.",
        &TimeValue(TIME_OR_ZERO_RANGE, |s: &mut Settings| {
            vec![&mut s.drain.delay]
        }),
    ),
];

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

pub(super) fn read_limits(limits: &mut Limits, mut map: MapReader<'_>, problems: &mut Problems) {
    let p = problems;
    set(&mut limits.connections, map.take("connections").and_then(|n| count(n, COUNT, p)));
    set(&mut limits.per_client, map.take("per_client").and_then(|n| count(n, COUNT, p)));
    set(&mut limits.head, map.take("head").and_then(|n| size(n, HEAD, p)));
    set(&mut limits.fields, map.take("fields").and_then(|n| count(n, FIELDS, p)));
    set(&mut limits.target, map.take("target").and_then(|n| size(n, TARGET, p)));
    set(&mut limits.origin_head, map.take("origin_head").and_then(|n| size(n, HEAD, p)));
    set(&mut limits.origin_fields, map.take("origin_fields").and_then(|n| count(n, FIELDS, p)));
    set(&mut limits.request_body, map.take("request_body").and_then(|n| size(n, BODY, p)));
    set(&mut limits.queue_per_host, map.take("queue_per_host").and_then(|n| count(n, COUNT, p)));
    set(&mut limits.queue, map.take("queue").and_then(|n| count(n, COUNT, p)));
    set(&mut limits.max_hold, map.take("max_hold").and_then(|n| wait(n, p)));
    set(&mut limits.tunnels_per_host, map.take("tunnels_per_host").and_then(|n| count(n, COUNT, p)));
    set(&mut limits.idle_pool, map.take("idle_pool").and_then(|n| count(n, COUNT_OR_NONE, p)));
    set(&mut limits.idle_per_host, map.take("idle_per_host").and_then(|n| count(n, COUNT_OR_NONE, p)));
    later::check(&mut map, "limits", p);
    map.finish(p);
}

pub(super) fn read_timeouts(timeouts: &mut Timeouts, mut map: MapReader<'_>, problems: &mut Problems) {
    let p = problems;
    set(&mut timeouts.head, map.take("head").and_then(|n| timeout(n, p)));
    set(&mut timeouts.idle, map.take("idle").and_then(|n| timeout(n, p)));
    set(&mut timeouts.tls, map.take("tls").and_then(|n| timeout(n, p)));
    set(&mut timeouts.dns, map.take("dns").and_then(|n| timeout(n, p)));
    set(&mut timeouts.connect, map.take("connect").and_then(|n| timeout(n, p)));
    set(&mut timeouts.connect_total, map.take("connect_total").and_then(|n| timeout(n, p)));
    set(&mut timeouts.response_head, map.take("response_head").and_then(|n| timeout(n, p)));
    set(&mut timeouts.body_idle, map.take("body_idle").and_then(|n| timeout(n, p)));
    set(&mut timeouts.write_stall, map.take("write_stall").and_then(|n| timeout(n, p)));
    set(&mut timeouts.request, map.take("request").and_then(|n| timeout(n, p)));
    set(&mut timeouts.tunnel_idle, map.take("tunnel_idle").and_then(|n| timeout(n, p)));
    set(&mut timeouts.tunnel, map.take("tunnel").and_then(|n| timeout(n, p)));
    set(&mut timeouts.drain, map.take("drain").and_then(|n| wait(n, p)));
    set(&mut timeouts.drain_delay, map.take("drain_delay").and_then(|n| wait(n, p)));
    later::check(&mut map, "timeouts", p);
    map.finish(p);
}

fn count(node: &Node, range: RangeInclusive<i64>, problems: &mut Problems) -> Option<u64> {
    read::integer(node, range, problems).and_then(|n| u64::try_from(n).ok())
}

fn size(node: &Node, range: RangeInclusive<u64>, problems: &mut Problems) -> Option<u64> {
    let size = read::size(node, problems)?;
    if range.contains(&size) {
        return Some(size);
    }
    let (least, most) = (show_size(*range.start()), show_size(*range.end()));
    problems.push(read::wrong_type(node, &format!("a size from {least} to {most} is needed here")));
    None
}

/// A time-out: none ends before it begins.
fn timeout(node: &Node, problems: &mut Problems) -> Option<Duration> {
    between(node, Duration::from_millis(1), problems)
}

/// A time that may be none at all.
fn wait(node: &Node, problems: &mut Problems) -> Option<Duration> {
    between(node, Duration::ZERO, problems)
}

fn between(node: &Node, least: Duration, problems: &mut Problems) -> Option<Duration> {
    let duration = read::duration(node, problems)?;
    if (least..=LONGEST).contains(&duration) {
        return Some(duration);
    }
    let (least, most) = (show_duration(least), show_duration(LONGEST));
    problems.push(read::wrong_type(node, &format!("a duration from {least} to {most} is needed here")));
    None
}

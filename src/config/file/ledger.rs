//! `ledger` of the configuration file.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde_json::json;

use crate::config::settings::Settings;
use crate::model::units::{self, format_duration};
use crate::urls::target::UrlTarget;
use crate::yaml::Node;

use super::ReadContext;
use super::json_schema::text_schema;
use super::key::{
    ConfigKey, CountValue, CustomValue, KeyGroup, ParsedValue, PathOrNoneValue, SizeValue,
    TimeValue, WordValue, parse_scalar,
};

/// Less than the minimum is no cache; the file grows independently of it.
const CACHE_RANGE: RangeInclusive<u64> = 1 << 20..=1 << 40;
const COUNT_RANGE: RangeInclusive<i64> = 1..=10_000_000;
/// A reader of the feed that was disconnected for less than this finds every event.
const KEEP_RANGE: RangeInclusive<Duration> =
    Duration::from_secs(60)..=Duration::from_secs(3_650 * 86_400);

/// Longer than it takes to notice a mistake.
const GRACE_RANGE: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(7 * 86_400);
/// The value of a part of the guard that is not used.
const OFF: &str = "off";

pub(super) const KEYS: &[ConfigKey<Settings>] = &[
    ConfigKey::new(
        "keep",
        "When there is a ledger: if the policy needs one or there is one already, always, or never.",
        &WordValue(|s: &mut Settings| &mut s.ledger.keep),
    ),
    ConfigKey::new(
        "on_full",
        "When the disk cannot keep up: requests wait, or their changes are dropped.",
        &WordValue(|s: &mut Settings| &mut s.ledger.store.on_full),
    ),
    ConfigKey::new(
        "queue",
        "Changes that may wait to be written.",
        &CountValue(COUNT_RANGE, |s: &mut Settings| &mut s.ledger.store.queue),
    ),
    ConfigKey::new(
        "temporary_errors",
        "The number of temporary errors of a URL in a row that count as a permanent one.",
        &CountValue(1..=1_000, |s: &mut Settings| {
            &mut s.ledger.store.tolerance.temporary_errors
        }),
    ),
    ConfigKey::new(
        "cache",
        "Memory for records and tables, approximately, besides a few bytes per URL.",
        &SizeValue(CACHE_RANGE, |s: &mut Settings| &mut s.ledger.store.cache),
    ),
    ConfigKey::new(
        "sweep_rate",
        "URLs per second that a sweep checks, at most.",
        &CountValue(COUNT_RANGE, |s: &mut Settings| &mut s.ledger.sweep_rate),
    ),
    ConfigKey::new(
        "removal_guard",
        "The limit and the grace time of removals that one cause orders: a policy, the robots.txt of a host, or the noindex \
         of a host.",
        &KeyGroup {
            path: "ledger.removal_guard",
            keys: REMOVAL_GUARD_KEYS,
            may_be_empty: false,
        },
    ),
    ConfigKey::new(
        "events",
        "Events for systems that keep an index.",
        &KeyGroup {
            path: "ledger.events",
            keys: EVENT_KEYS,
            may_be_empty: false,
        },
    ),
];

const REMOVAL_GUARD_KEYS: &[ConfigKey<Settings>] = &[
    ConfigKey::new(
        "hold",
        "The share of the index above which further removals within 24 hours are held, from 1 % to 100 %; or off. A hundred \
         are always permitted.",
        &ParsedValue {
            parse: parse_hold,
            store: |s: &mut Settings, hold| s.ledger.removal_guard.hold = hold,
            schema: |s| {
                let default = match s.ledger.removal_guard.hold {
                    Some(share) => format!("{share} %"),
                    None => OFF.to_owned(),
                };
                json!({ "type": "string", "default": default })
            },
        },
    ),
    ConfigKey::new(
        "grace",
        "The time between the first reason to remove a URL and the order, at most 7d; or off. A URL that is allowed again \
         within it stays.",
        &ParsedValue {
            parse: parse_grace,
            store: |s: &mut Settings, grace| s.ledger.removal_guard.grace = grace,
            schema: |s| {
                let grace = s.ledger.removal_guard.grace;
                let default = if grace.is_zero() {
                    OFF.to_owned()
                } else {
                    format_duration(grace)
                };
                json!({ "type": "string", "default": default })
            },
        },
    ),
];

const EVENT_KEYS: &[ConfigKey<Settings>] = &[
    ConfigKey::new(
        "file",
        "A file to which events are appended, one line of JSON each; or none.",
        &PathOrNoneValue(|s: &mut Settings| &mut s.ledger.events.file),
    ),
    ConfigKey::new(
        "webhook",
        "A URL to which events are posted, or none.",
        &CustomValue(read_webhook, |_| text_schema()),
    ),
    ConfigKey::new(
        "keep",
        "How long events are kept for their readers.",
        &TimeValue(KEEP_RANGE, |s: &mut Settings| {
            vec![&mut s.ledger.events.keep]
        }),
    ),
];

fn parse_hold(text: &str) -> Result<Option<u8>, String> {
    if text == OFF {
        return Ok(None);
    }
    let share = text
        .strip_suffix('%')
        .and_then(|number| number.trim_end().parse().ok());
    share
        .filter(|share| (1..=100).contains(share))
        .map(Some)
        .ok_or_else(|| "a whole share from 1 % to 100 % is needed here, or off: 5 %".into())
}

fn parse_grace(text: &str) -> Result<Duration, String> {
    if text == OFF {
        return Ok(Duration::ZERO);
    }
    units::parse_duration(text)
        .filter(|grace| GRACE_RANGE.contains(grace))
        .ok_or_else(|| "a duration from 1s to 7d is needed here, or off: 10m".into())
}

fn read_webhook(node: &Node, settings: &mut Settings, context: &mut ReadContext<'_>) {
    settings.ledger.events.webhook = match node.spelling() {
        Some("none") => None,
        Some(_) | None => parse_scalar(node, parse_webhook, context.problems),
    };
}

fn parse_webhook(text: &str) -> Result<UrlTarget, String> {
    UrlTarget::parse(text)
        .map_err(|_| "a URL, or none, is needed here: https://index.example/removals".into())
}

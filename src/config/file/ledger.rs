//! `ledger` of the configuration file.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::config::settings::{LedgerMode, Settings};
use crate::store::ledger::LedgerFullAction;
use crate::urls::target::UrlTarget;
use crate::yaml::Node;

use super::ReadContext;
use super::json_schema::text_schema;
use super::key::{
    ConfigKey, ConfigWord, CountValue, CustomValue, KeyGroup, PathOrNoneValue, SizeValue,
    TimeValue, WordValue, parse_scalar,
};

/// Less than the minimum is no cache; the file grows independently of it.
const CACHE_RANGE: RangeInclusive<u64> = 1 << 20..=1 << 40;
const COUNT_RANGE: RangeInclusive<i64> = 1..=10_000_000;
/// A reader of the feed that was disconnected for less than this finds every event.
const KEEP_RANGE: RangeInclusive<Duration> =
    Duration::from_secs(60)..=Duration::from_secs(3_650 * 86_400);

pub(super) const KEYS: &[ConfigKey<Settings>] = &[
    ConfigKey::new(
        "keep",
        "When there is a ledger: if the policy needs one, always, or never.",
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
        &CountValue {
            range: COUNT_RANGE,
            place: |s: &mut Settings| &mut s.ledger.store.queue,
        },
    ),
    ConfigKey::new(
        "temporary_errors",
        "The number of temporary errors of a URL in a row that count as a permanent one.",
        &CountValue {
            range: 1..=1_000,
            place: |s: &mut Settings| &mut s.ledger.store.tolerance.temporary_errors,
        },
    ),
    ConfigKey::new(
        "cache",
        "Memory for records and tables, approximately, besides a few bytes per URL.",
        &SizeValue {
            range: CACHE_RANGE,
            place: |s: &mut Settings| &mut s.ledger.store.cache,
        },
    ),
    ConfigKey::new(
        "sweep_rate",
        "URLs per second that a sweep checks, at most.",
        &CountValue {
            range: COUNT_RANGE,
            place: |s: &mut Settings| &mut s.ledger.sweep_rate,
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

const EVENT_KEYS: &[ConfigKey<Settings>] = &[
    ConfigKey::new(
        "file",
        "A file to which events are appended, one line of JSON each; or none.",
        &PathOrNoneValue(|s: &mut Settings| &mut s.ledger.events.file),
    ),
    ConfigKey::new(
        "webhook",
        "A URL to which events are posted, or none.",
        &CustomValue {
            read: read_webhook,
            schema: |_| text_schema(),
        },
    ),
    ConfigKey::new(
        "keep",
        "How long events are kept for their readers.",
        &TimeValue {
            range: KEEP_RANGE,
            places: |s: &mut Settings| vec![&mut s.ledger.events.keep],
        },
    ),
];

impl ConfigWord for LedgerMode {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("auto", Self::Auto),
        ("always", Self::Always),
        ("never", Self::Never),
    ];
}

impl ConfigWord for LedgerFullAction {
    const WORDS: &'static [(&'static str, Self)] = &[("drop", Self::Drop), ("wait", Self::Wait)];
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

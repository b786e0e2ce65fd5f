//! `ledger` of the configuration file.

use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use crate::config::settings::{EventsConfig, LedgerConfig, LedgerMode, OnFullSetting};
use crate::diagnostics::problems::Problems;
use crate::urls::target::UrlTarget;
use crate::yaml::read::{self, MapReader};

use super::limits::{NumericKey, NumericKind, read_numeric_keys};
use super::{parse_scalar, set_if_some};

/// Less than the first is no memory; the file grows beside it.
const CACHE_RANGE: RangeInclusive<u64> = 1 << 20..=1 << 40;
const COUNT_RANGE: RangeInclusive<i64> = 1..=10_000_000;
/// Errors in a row.
const ERRORS_RANGE: RangeInclusive<i64> = 1..=1_000;
/// A reader of the feed that was away for less finds everything.
const KEEP_RANGE: RangeInclusive<Duration> =
    Duration::from_secs(60)..=Duration::from_secs(3_650 * 86_400);

/// The keys that are numbers.
pub(super) const LEDGER_KEYS: &[NumericKey<LedgerConfig>] = &[
    NumericKey {
        key: "queue",
        about: "Changes that may wait to be written.",
        kind: NumericKind::Count(COUNT_RANGE, |l| &mut l.queue),
    },
    NumericKey {
        key: "temporary_errors",
        about: "So many temporary errors of a URL in a row are permanent.",
        kind: NumericKind::Count(ERRORS_RANGE, |l| &mut l.temporary_errors),
    },
    NumericKey {
        key: "cache",
        about: "Memory for records and tables, about; a few bytes for each URL come on top.",
        kind: NumericKind::Size(CACHE_RANGE, |l| &mut l.cache),
    },
    NumericKey {
        key: "sweep_rate",
        about: "URLs that a sweep looks at in a second, at most.",
        kind: NumericKind::Count(COUNT_RANGE, |l| &mut l.sweep_rate),
    },
];

/// What the file says; the path of the events' file is as written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LedgerSection {
    /// All but the file.
    pub ledger: LedgerConfig,
    /// `events.file`.
    pub events_file: Option<String>,
}

impl LedgerSection {
    /// With paths that start at this directory.
    pub(crate) fn resolve(self, directory: &Path) -> LedgerConfig {
        let file = self.events_file.map(|path| directory.join(path));
        LedgerConfig {
            events: EventsConfig {
                file,
                ..self.ledger.events
            },
            ..self.ledger
        }
    }
}

pub(super) fn read(text: &mut LedgerSection, mut map: MapReader<'_>, problems: &mut Problems) {
    let ledger = &mut text.ledger;
    let words = LedgerMode::ALL.map(LedgerMode::as_str);
    let keep = |word: &str| {
        LedgerMode::ALL
            .into_iter()
            .find(|keep| keep.as_str() == word)
    };
    set_if_some(
        &mut ledger.keep,
        map.take("keep")
            .and_then(|node| read::word(node, &words, keep, problems)),
    );
    let words = OnFullSetting::ALL.map(OnFullSetting::as_str);
    let on_full = |word: &str| {
        OnFullSetting::ALL
            .into_iter()
            .find(|on_full| on_full.as_str() == word)
    };
    set_if_some(
        &mut ledger.on_full,
        map.take("on_full")
            .and_then(|node| read::word(node, &words, on_full, problems)),
    );
    read_numeric_keys(ledger, LEDGER_KEYS, &mut map, problems);
    let events = map
        .take("events")
        .and_then(|node| MapReader::open(node, "`ledger.events`", problems));
    if let Some(events) = events {
        read_events(text, events, problems);
    }
    map.finish(problems);
}

fn read_events(text: &mut LedgerSection, mut map: MapReader<'_>, problems: &mut Problems) {
    let file = map
        .take("file")
        .and_then(|node| read::spelling(node, problems));
    text.events_file = file.filter(|path| *path != "none").map(Into::into);
    let events = &mut text.ledger.events;
    if let Some(node) = map
        .take("webhook")
        .filter(|node| node.spelling() != Some("none"))
    {
        events.webhook = parse_scalar(node, parse_webhook, problems);
    }
    if let Some(node) = map.take("keep")
        && let Some(keep) = read::duration(node, problems)
    {
        if KEEP_RANGE.contains(&keep) {
            events.keep = keep;
        } else {
            problems.push(read::wrong_type(
                node,
                "a duration from 1m to 3650d is needed here",
            ));
        }
    }
    map.finish(problems);
}

fn parse_webhook(text: &str) -> Result<UrlTarget, String> {
    UrlTarget::parse(text)
        .map_err(|_| "a URL, or none, is needed here: https://index.example/removals".into())
}

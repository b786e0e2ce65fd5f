//! `ledger` of the configuration file.

use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use crate::config::settings::{Events, KeepLedger, Ledger, OnFull};
use crate::vocab::problems::Problems;
use crate::vocab::target::UrlTarget;
use crate::yaml::read::{self, MapReader};

use super::limits::{Kind, Row, read_rows};
use super::{checked, set};

/// Less than the first is no memory; the file grows beside it.
const CACHE: RangeInclusive<u64> = 1 << 20..=1 << 40;
const COUNT: RangeInclusive<i64> = 1..=10_000_000;
/// Errors in a row.
const ERRORS: RangeInclusive<i64> = 1..=1_000;
/// A reader of the feed that was away for less finds everything.
const KEEP: RangeInclusive<Duration> =
    Duration::from_secs(60)..=Duration::from_secs(3_650 * 86_400);

/// The keys that are numbers.
pub(super) const ROWS: &[Row<Ledger>] = &[
    Row {
        key: "queue",
        about: "Changes that may wait to be written.",
        kind: Kind::Count(COUNT, |l| &mut l.queue),
    },
    Row {
        key: "temporary_errors",
        about: "So many temporary errors of a URL in a row are permanent.",
        kind: Kind::Count(ERRORS, |l| &mut l.temporary_errors),
    },
    Row {
        key: "cache",
        about: "Memory for records and tables, about; a few bytes for each URL come on top.",
        kind: Kind::Size(CACHE, |l| &mut l.cache),
    },
    Row {
        key: "sweep_rate",
        about: "URLs that a sweep looks at in a second, at most.",
        kind: Kind::Count(COUNT, |l| &mut l.sweep_rate),
    },
];

/// What the file says; the path of the events' file is as written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LedgerText {
    /// All but the file.
    pub ledger: Ledger,
    /// `events.file`.
    pub events_file: Option<String>,
}

impl LedgerText {
    /// With paths that start at this directory.
    pub(in crate::config) fn resolve(self, directory: &Path) -> Ledger {
        let file = self.events_file.map(|path| directory.join(path));
        Ledger {
            events: Events {
                file,
                ..self.ledger.events
            },
            ..self.ledger
        }
    }
}

pub(super) fn read(text: &mut LedgerText, mut map: MapReader<'_>, problems: &mut Problems) {
    let ledger = &mut text.ledger;
    let words = KeepLedger::ALL.map(KeepLedger::as_str);
    let keep = |word: &str| {
        KeepLedger::ALL
            .into_iter()
            .find(|keep| keep.as_str() == word)
    };
    set(
        &mut ledger.keep,
        map.take("keep")
            .and_then(|node| read::word(node, &words, keep, problems)),
    );
    let words = OnFull::ALL.map(OnFull::as_str);
    let on_full = |word: &str| {
        OnFull::ALL
            .into_iter()
            .find(|on_full| on_full.as_str() == word)
    };
    set(
        &mut ledger.on_full,
        map.take("on_full")
            .and_then(|node| read::word(node, &words, on_full, problems)),
    );
    read_rows(ledger, ROWS, &mut map, problems);
    let events = map
        .take("events")
        .and_then(|node| MapReader::open(node, "`ledger.events`", problems));
    if let Some(events) = events {
        read_events(text, events, problems);
    }
    map.finish(problems);
}

fn read_events(text: &mut LedgerText, mut map: MapReader<'_>, problems: &mut Problems) {
    let file = map
        .take("file")
        .and_then(|node| read::spelling(node, problems));
    text.events_file = file.filter(|path| *path != "none").map(Into::into);
    let events = &mut text.ledger.events;
    if let Some(node) = map
        .take("webhook")
        .filter(|node| node.spelling() != Some("none"))
    {
        events.webhook = checked(node, webhook, problems);
    }
    if let Some(node) = map.take("keep")
        && let Some(keep) = read::duration(node, problems)
    {
        if KEEP.contains(&keep) {
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

fn webhook(text: &str) -> Result<UrlTarget, String> {
    UrlTarget::parse(text)
        .map_err(|_| "a URL, or none, is needed here: https://index.example/removals".into())
}

//! `--lost`: requests that crawlers did not get although the policy allows them, and that were not answered later.
//!
//! Memory is bounded by the number of lost requests: an answer removes what was lost before it. The line of a loss that is
//! repeated within a minute has no URL, and names the line that has it: the URLs of the last minutes are kept even if they
//! were answered.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::mem::take;

use indexmap::IndexMap;
use indexmap::map::Entry;
use serde_json::Value as Json;

use super::reader::DecisionConsumer;
use crate::cli::ledger::source::LedgerSource;
use crate::metrics::log::entry::{LogEntry, LogField};
use crate::metrics::log::filter::LogFilter;
use crate::metrics::log::query::is_redacted;

/// The lost requests so far.
#[derive(Debug)]
pub(super) struct LostRequests<'f> {
    filters: &'f [LogFilter],
    lost: IndexMap<LostKey, LostRequest>,
    /// The number of lost requests without a URL.
    without_url: u64,
    recent: RecentLosses,
    /// Repeated losses before the line that has their URL, by its decision: requests that end at the same time may be logged
    /// in either order.
    unresolved: BTreeMap<Box<str>, Vec<LostRequest>>,
    missing: BTreeMap<Box<str>, MissingLineCounts>,
}

/// The lines of losses with a URL, by decision, of at least the last minute: of the minute of the latest line, and of the
/// one before.
#[derive(Debug, Default)]
struct RecentLosses {
    /// `2026-11-23T08:00`.
    minute: Box<str>,
    of_minute: HashMap<Box<str>, LostKey>,
    of_previous: HashMap<Box<str>, LostKey>,
}

/// The length of [`RecentLosses::minute`].
const MINUTE_LENGTH: usize = "2026-11-23T08:00".len();

/// The request of a crawler.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct LostKey {
    pub(super) crawler: Box<str>,
    pub(super) method: Box<str>,
    /// The URL; for a tunnel, the host.
    pub(super) subject: Box<str>,
}

/// A lost request, as it ended the last time.
#[derive(Clone, Debug)]
pub(super) struct LostRequest {
    pub(super) first: Box<str>,
    pub(super) last: Box<str>,
    /// The number of times that it was lost.
    pub(super) count: u64,
    pub(super) decision: Box<str>,
    pub(super) host: Box<str>,
    pub(super) loss: Box<str>,
    pub(super) reason: Box<str>,
    pub(super) rule: Box<str>,
    pub(super) error: Box<str>,
    pub(super) cause: Box<str>,
}

/// The numbers of lines that are missing in the log of one process.
#[derive(Clone, Copy, Debug, Default)]
struct MissingLineCounts {
    before: MissingLineTotals,
    by_now: MissingLineTotals,
}

/// The numbers of missing lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MissingLineTotals {
    /// Lines of allowed requests, by `logs.allows`.
    pub(super) left_out: u64,
    pub(super) dropped: u64,
}

impl MissingLineTotals {
    fn from_entry(entry: &LogEntry<'_>) -> Self {
        let number = |field| entry.value(field).number().unwrap_or_default() as u64;
        Self {
            left_out: number(LogField::LeftOut),
            dropped: number(LogField::Dropped),
        }
    }

    fn max(self, other: Self) -> Self {
        Self {
            left_out: self.left_out.max(other.left_out),
            dropped: self.dropped.max(other.dropped),
        }
    }
}

impl RecentLosses {
    /// Records a line, and the key of the loss if it has the URL of one.
    fn record(&mut self, entry: &LogEntry<'_>, loss: Option<&LostKey>) {
        let ts = entry.text(LogField::Ts);
        let minute = ts.get(..MINUTE_LENGTH).unwrap_or_default();
        // Lines of several threads are not quite in order.
        if *minute > *self.minute {
            self.minute = minute.into();
            self.of_previous = take(&mut self.of_minute);
        }
        if let Some(key) = loss {
            let decision = entry.text(LogField::Decision).into();
            self.of_minute.insert(decision, key.clone());
        }
    }

    fn find(&self, decision: &str) -> Option<&LostKey> {
        let earlier = || self.of_previous.get(decision);
        self.of_minute.get(decision).or_else(earlier)
    }
}

impl LostRequest {
    fn from_entry(entry: &LogEntry<'_>) -> Self {
        let text = |field| Box::<str>::from(entry.text(field));
        Self {
            first: text(LogField::Ts),
            last: text(LogField::Ts),
            count: 1,
            decision: text(LogField::Decision),
            host: text(LogField::Host),
            loss: text(LogField::Loss),
            reason: text(LogField::Reason),
            rule: text(LogField::Rule),
            error: text(LogField::Error),
            cause: text(LogField::Cause),
        }
    }
}

impl LostKey {
    fn from_entry(entry: &LogEntry<'_>) -> Option<Self> {
        let method = entry.text(LogField::Method);
        let subject = if *method == *"CONNECT" {
            entry.text(LogField::Host)
        } else {
            entry.text(LogField::Url)
        };
        (!subject.is_empty()).then(|| Self {
            crawler: entry.text(LogField::Crawler).into(),
            method: method.into(),
            subject: subject.into(),
        })
    }

    pub(super) fn is_tunnel(&self) -> bool {
        *self.method == *"CONNECT"
    }

    /// Returns `true` if values of the query are missing, so that another URL may look the same.
    pub(super) fn is_redacted(&self) -> bool {
        is_redacted(&self.subject)
    }
}

impl<'f> LostRequests<'f> {
    pub(super) fn new(filters: &'f [LogFilter]) -> Self {
        Self {
            filters,
            lost: IndexMap::new(),
            without_url: 0,
            recent: RecentLosses::default(),
            unresolved: BTreeMap::new(),
            missing: BTreeMap::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lost.is_empty()
    }

    /// Returns the lost requests, those that were lost first first.
    pub(super) fn sorted(&self) -> Vec<(&LostKey, &LostRequest)> {
        let mut all: Vec<_> = self.lost.iter().collect();
        all.sort_by_key(|(key, lost)| (&lost.last, &key.subject));
        all
    }

    /// Returns the number of lost requests whose URL is not in the part of the log that was read.
    pub(super) fn without_url(&self) -> u64 {
        let unresolved = self.unresolved.values();
        self.without_url + unresolved.map(|losses| losses.len() as u64).sum::<u64>()
    }

    /// Returns the numbers of lines that are missing in the part of the log that was read.
    pub(super) fn missing_lines(&self) -> MissingLineTotals {
        let mut all = MissingLineTotals::default();
        for MissingLineCounts { before, by_now } in self.missing.values() {
            all.left_out += by_now.left_out.saturating_sub(before.left_out);
            all.dropped += by_now.dropped.saturating_sub(before.dropped);
        }
        all
    }

    /// Removes the URLs that were fetched later, according to the ledger.
    pub(super) fn remove_answered(&mut self, ledger: &LedgerSource) {
        self.lost.retain(|key, lost| {
            let is_fetch = matches!(&*key.method, "GET" | "HEAD") && !key.is_redacted();
            let record = is_fetch.then(|| ledger.record_of(&key.crawler, &key.subject));
            let fetched = record.flatten().and_then(|record| {
                record
                    .get("last_fetched")
                    .and_then(Json::as_str)
                    .map(|fetched| *fetched > *lost.last)
            });
            fetched != Some(true)
        });
    }

    fn missing_of(&mut self, entry: &LogEntry<'_>) -> &mut MissingLineCounts {
        let decision = entry.text(LogField::Decision);
        let instance = decision.split('-').next().unwrap_or_default();
        self.missing.entry(instance.into()).or_default()
    }

    /// Removes what an answer makes up for. A GET makes up for a HEAD, too. An answer to a URL with a masked query may be
    /// that of another URL.
    fn remove(&mut self, mut key: LostKey, ts: &str) {
        if key.is_redacted() {
            return;
        }
        let is_earlier = |lost: &LostRequest| *lost.last <= *ts;
        if self.lost.get(&key).is_some_and(is_earlier) {
            self.lost.swap_remove(&key);
        }
        if *key.method == *"GET" {
            key.method = "HEAD".into();
            if self.lost.get(&key).is_some_and(is_earlier) {
                self.lost.swap_remove(&key);
            }
        }
    }

    /// Records a line, and the key of the loss if it has the URL of one, which may be that of repetitions before it.
    fn record_line(&mut self, entry: &LogEntry<'_>, loss: Option<&LostKey>) {
        self.recent.record(entry, loss);
        let Some(key) = loss.filter(|_| !self.unresolved.is_empty()) else {
            return;
        };
        let decision = entry.text(LogField::Decision);
        for repetition in self.unresolved.remove(&*decision).unwrap_or_default() {
            self.add(key.clone(), repetition);
        }
    }

    /// Adds a loss. Without a key, it is that of another line, or is only counted.
    fn add_loss(&mut self, key: Option<LostKey>, entry: &LogEntry<'_>) {
        if !self.filters.iter().all(|filter| filter.matches(entry)) {
            return;
        }
        let loss = LostRequest::from_entry(entry);
        let repeat_of = entry.text(LogField::RepeatOf);
        match key.or_else(|| self.recent.find(&repeat_of).cloned()) {
            Some(key) => self.add(key, loss),
            None if repeat_of.is_empty() => self.without_url += 1,
            None => {
                let losses = self.unresolved.entry((&*repeat_of).into()).or_default();
                losses.push(loss);
            }
        }
    }

    /// Adds a loss to those of the same request; the latest one is shown.
    fn add(&mut self, key: LostKey, loss: LostRequest) {
        let lost = match self.lost.entry(key) {
            Entry::Vacant(vacant) => {
                vacant.insert(loss);
                return;
            }
            Entry::Occupied(known) => known.into_mut(),
        };
        lost.count += loss.count;
        if loss.first < lost.first {
            lost.first.clone_from(&loss.first);
        }
        if loss.last >= lost.last {
            *lost = LostRequest {
                first: take(&mut lost.first),
                count: lost.count,
                ..loss
            };
        }
    }
}

fn is_loss(entry: &LogEntry<'_>) -> bool {
    entry.value(LogField::Loss).text().is_some()
}

/// Returns the key of a line that has the URL of a loss.
fn loss_key(entry: &LogEntry<'_>) -> Option<LostKey> {
    LostKey::from_entry(entry).filter(|_| is_loss(entry))
}

impl DecisionConsumer for LostRequests<'_> {
    fn fields(&self) -> Vec<LogField> {
        let filtered = self.filters.iter().map(LogFilter::field);
        [
            LogField::Decision,
            LogField::Crawler,
            LogField::Method,
            LogField::Url,
            LogField::Host,
            LogField::Reason,
            LogField::Rule,
            LogField::Error,
            LogField::Cause,
            LogField::Loss,
            LogField::RepeatOf,
            LogField::LeftOut,
            LogField::Dropped,
        ]
        .into_iter()
        .chain(filtered)
        .collect()
    }

    fn pass_over(&mut self, entry: &LogEntry<'_>) {
        let missing = self.missing_of(entry);
        missing.before = missing.before.max(MissingLineTotals::from_entry(entry));
        self.record_line(entry, loss_key(entry).as_ref());
    }

    fn accept(&mut self, _: &[u8], entry: &LogEntry<'_>) -> io::Result<()> {
        let missing = self.missing_of(entry);
        missing.by_now = missing.by_now.max(MissingLineTotals::from_entry(entry));
        let is_lost = is_loss(entry);
        let key = LostKey::from_entry(entry);
        self.record_line(entry, key.as_ref().filter(|_| is_lost));
        match key {
            key if is_lost => self.add_loss(key, entry),
            Some(key) if *entry.text(LogField::Verdict) != *"reject" => {
                self.remove(key, &entry.text(LogField::Ts));
            }
            Some(_) | None => {}
        }
        Ok(())
    }
}

//! The differences that shadows would have made: notes about one request, and their totals for a policy.
//!
//! Shadow rules and the shadow policy are evaluated elsewhere, next to the active decision. Notes are part of the
//! request's record and are counted when it ends.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::model::reason::Reason;
use crate::model::stage::Stage;

use super::labels::VerdictLabel;
use super::policy::PolicyMetrics;

/// The number of recent requests that are kept as examples for each shadow and each change.
pub const MAX_EXAMPLES: usize = 20;
/// The maximum number of shadows in `Crawl-Shadow`.
const MAX_NAMED: usize = 8;

/// The results of shadows for a request.
#[derive(Debug)]
pub struct ShadowNotes {
    /// The counters of the shadow policy, if there is one.
    pub policy_metrics: Option<Arc<PolicyMetrics>>,
    /// The crawler's space in the active policy, by index.
    pub space: Option<u16>,
    /// A note for each shadow that has a result.
    pub notes: SmallVec<[ShadowNote; 2]>,
}

/// The result of one shadow for a request.
#[derive(Clone, Debug)]
pub struct ShadowNote {
    pub source: ShadowSource,
    /// Its rules that matched, by index.
    pub matched: SmallVec<[u32; 4]>,
    /// The rule that is reported.
    pub rule: Option<u32>,
    /// The shadow rule that is counted as the cause.
    pub deciding_rule: Option<u32>,
    /// The verdict: [`VerdictLabel::Allow`] or [`VerdictLabel::Reject`].
    pub verdict: VerdictLabel,
    /// The change that it would make.
    pub change: ShadowChange,
    /// The reason of the shadow decision.
    pub reason: Reason,
    /// The stage of the shadow decision.
    pub stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShadowSource {
    /// A top-level shadow rule of the active policy, by index.
    Rule(u32),
    Policy,
}

/// The change that a shadow would make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShadowChange {
    /// No change: its verdict is that of the active policy.
    Unchanged,
    /// It would refuse what the active policy allows.
    WouldReject,
    /// It would allow what the active policy refuses, as far as the evaluated stages show.
    WouldAllow,
}

impl ShadowChange {
    /// Returns the word in the log and in `Crawl-Shadow`: the shadow verdict.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::WouldReject => "reject",
            Self::Unchanged | Self::WouldAllow => "allow",
        }
    }
}

impl ShadowNotes {
    /// Returns the counters of the policy that contains the rules of a note.
    pub(super) fn metrics_for<'n>(
        &'n self,
        of: ShadowSource,
        live: Option<&'n Arc<PolicyMetrics>>,
    ) -> Option<&'n PolicyMetrics> {
        match of {
            ShadowSource::Rule(_) => live.map(|live| &**live),
            ShadowSource::Policy => self.policy_metrics.as_deref(),
        }
    }

    pub(super) fn with_change(&self, change: ShadowChange) -> impl Iterator<Item = &ShadowNote> {
        self.notes.iter().filter(move |note| note.change == change)
    }

    /// Returns the value of the header `Crawl-Shadow`: `reject; rule=no-cgi`.
    pub(super) fn header_value(
        &self,
        change: ShadowChange,
        live: Option<&Arc<PolicyMetrics>>,
    ) -> Option<String> {
        let members = self.with_change(change).filter_map(|note| {
            let metrics = self.metrics_for(note.source, live)?;
            let verdict = note.change.as_str();
            Some(match note.rule.and_then(|rule| metrics.rule_name(rule)) {
                Some(rule) => format!("{verdict}; rule={rule}"),
                None => format!("{verdict}; policy={}", metrics.name()),
            })
        });
        let members: Vec<String> = members.take(MAX_NAMED).collect();
        (!members.is_empty()).then(|| members.join(", "))
    }
}

/// The differences that the shadows of a policy would have made since it became active.
#[derive(Debug, Default)]
pub struct ShadowStats {
    evaluated: AtomicU64,
    /// The requests of each space, by its index.
    evaluated_in_space: OnceLock<Box<[AtomicU64]>>,
    tallies: Mutex<BTreeMap<ShadowSource, ShadowTallies>>,
}

/// The differences that one shadow would have made.
#[derive(Clone, Debug, Default)]
pub struct ShadowTallies {
    /// Requests that it would refuse and that were allowed.
    pub would_reject: ShadowTally,
    /// Requests that it would allow and that were refused.
    pub would_allow: ShadowTally,
}

/// A count of requests, with examples.
#[derive(Clone, Debug, Default)]
pub struct ShadowTally {
    pub total: u64,
    /// By the reason of the refusal: that of the shadow, or that of the active policy.
    pub reasons: BTreeMap<&'static str, u64>,
    /// By the shadow rule that decides.
    pub rules: BTreeMap<u32, u64>,
    /// The latest requests, newest first.
    pub examples: VecDeque<ShadowExample>,
}

/// A request that a shadow would have changed, with no more of its URL than the log shows.
#[derive(Clone, Debug)]
pub struct ShadowExample {
    /// The time at which it ended.
    pub at: SystemTime,
    /// The id of its decision.
    pub decision: Box<str>,
    pub crawler: Box<str>,
    /// The URL, as far as the log may show it.
    pub url: Option<Box<str>>,
    /// The host, as far as the log may show it.
    pub host: Option<Box<str>>,
    /// The stage of the shadow decision.
    pub stage: Stage,
    /// The reason of the refusal.
    pub reason: &'static str,
    /// The shadow rule that decides, if any.
    pub rule: Option<u32>,
}

impl ShadowStats {
    /// Returns the number of requests that were evaluated in shadow.
    pub fn evaluated(&self) -> u64 {
        self.evaluated.load(Ordering::Relaxed)
    }

    /// Returns the number of those of the crawlers of a space.
    pub fn evaluated_in_space(&self, space: u16) -> u64 {
        self.space_counter(space)
            .map_or(0, |counter| counter.load(Ordering::Relaxed))
    }

    /// Begins to count the requests of each of this number of spaces.
    pub(crate) fn set_spaces(&self, spaces: usize) {
        self.evaluated_in_space
            .get_or_init(|| (0..spaces).map(|_| AtomicU64::new(0)).collect());
    }

    fn space_counter(&self, space: u16) -> Option<&AtomicU64> {
        self.evaluated_in_space.get()?.get(usize::from(space))
    }

    /// Returns the differences that a shadow would have made so far.
    pub fn tallies(&self, source: ShadowSource) -> ShadowTallies {
        let tallies = self.tallies.lock();
        tallies.get(&source).cloned().unwrap_or_default()
    }

    pub(super) fn record_evaluation(&self, space: Option<u16>) {
        self.evaluated.fetch_add(1, Ordering::Relaxed);
        if let Some(counter) = space.and_then(|space| self.space_counter(space)) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn record_difference(&self, note: &ShadowNote, example: ShadowExample) {
        let mut tallies = self.tallies.lock();
        let entry = tallies.entry(note.source).or_default();
        let tally = match note.change {
            ShadowChange::WouldReject => &mut entry.would_reject,
            ShadowChange::WouldAllow => &mut entry.would_allow,
            ShadowChange::Unchanged => return,
        };
        tally.total += 1;
        *tally.reasons.entry(example.reason).or_default() += 1;
        if let Some(rule) = note.rule {
            *tally.rules.entry(rule).or_default() += 1;
        }
        tally.examples.push_front(example);
        tally.examples.truncate(MAX_EXAMPLES);
    }
}

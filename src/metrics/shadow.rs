//! What shadows would have changed: notes on one request, and the book in which those of a policy add up.
//!
//! Rules in shadow and a whole shadow policy are judged elsewhere, beside the live decision; here is only what became
//! of it. Notes travel with the request's record and are counted when it ends, like everything else.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use smallvec::SmallVec;

use crate::model::reason::Reason;
use crate::model::stage::Stage;

use super::labels::VerdictLabel;
use super::policy::PolicyMetrics;

/// How many of the latest requests that each shadow would have changed are kept as examples, for each change.
pub const MAX_EXAMPLES: usize = 20;
/// How many shadows `Crawl-Shadow` names at most.
const MAX_NAMED: usize = 8;

/// What shadows say of one request.
#[derive(Debug)]
pub struct ShadowNotes {
    /// The counters of the shadow policy, if there is one.
    pub policy_metrics: Option<Arc<PolicyMetrics>>,
    /// One for each shadow that had anything to say.
    pub notes: SmallVec<[ShadowNote; 2]>,
}

/// What one shadow says of one request.
#[derive(Clone, Debug)]
pub struct ShadowNote {
    /// Which.
    pub source: ShadowSource,
    /// Its rules that matched, by their indices.
    pub matched: SmallVec<[u32; 4]>,
    /// The rule to name.
    pub rule: Option<u32>,
    /// The rule that is counted as the cause: one in shadow.
    pub deciding_rule: Option<u32>,
    /// What it decides: [`VerdictLabel::Allow`] or [`VerdictLabel::Reject`].
    pub verdict: VerdictLabel,
    /// What would change.
    pub change: ShadowChange,
    /// Why: the reason of the decision in shadow.
    pub reason: Reason,
    /// Where.
    pub stage: Stage,
}

/// A shadow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShadowSource {
    /// An outermost rule in shadow of the live policy, by its index.
    Rule(u32),
    /// The shadow policy.
    Policy,
}

/// What a shadow would change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShadowChange {
    /// Nothing: it says what the live policy says.
    Unchanged,
    /// It would refuse what the live policy admits.
    WouldReject,
    /// It would admit what the live policy refuses, as far as the stages are known that were run.
    WouldAllow,
}

impl ShadowChange {
    /// The word of the log and of `Crawl-Shadow`: the verdict in shadow.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::WouldReject => "reject",
            Self::Unchanged | Self::WouldAllow => "allow",
        }
    }
}

impl ShadowNotes {
    /// The counters that know the rules of a note.
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

    /// The notes of those that would have made this change.
    pub(super) fn with_change(&self, change: ShadowChange) -> impl Iterator<Item = &ShadowNote> {
        self.notes.iter().filter(move |note| note.change == change)
    }

    /// `reject; rule=no-cgi`, for the header `Crawl-Shadow`.
    pub(super) fn header_value(
        &self,
        change: ShadowChange,
        live: Option<&Arc<PolicyMetrics>>,
    ) -> Option<String> {
        let member = |note: &ShadowNote| {
            let metrics = self.metrics_for(note.source, live)?;
            let verdict = note.change.as_str();
            Some(match note.rule.and_then(|rule| metrics.rule_name(rule)) {
                Some(rule) => format!("{verdict}; rule={rule}"),
                None => format!("{verdict}; policy={}", metrics.name()),
            })
        };
        let members: Vec<String> = self
            .with_change(change)
            .filter_map(member)
            .take(MAX_NAMED)
            .collect();
        (!members.is_empty()).then(|| members.join(", "))
    }
}

/// What the shadows of one policy would have changed since it is in force.
#[derive(Debug, Default)]
pub struct ShadowStats {
    evaluated: AtomicU64,
    tallies: Mutex<BTreeMap<ShadowSource, ShadowTallies>>,
}

/// What one shadow would have changed.
#[derive(Clone, Debug, Default)]
pub struct ShadowTallies {
    /// Requests that it would refuse and that were admitted.
    pub would_reject: ShadowTally,
    /// Requests that it would admit and that were refused.
    pub would_allow: ShadowTally,
}

/// Requests, counted.
#[derive(Clone, Debug, Default)]
pub struct ShadowTally {
    /// All of them.
    pub total: u64,
    /// By the reason of the refusal: that in shadow, or the live one.
    pub reasons: BTreeMap<&'static str, u64>,
    /// By the rule in shadow that decides.
    pub rules: BTreeMap<u32, u64>,
    /// The latest, the newest first.
    pub examples: VecDeque<ShadowExample>,
}

/// One request that a shadow would have changed, with no more of its URL than the log shows.
#[derive(Clone, Debug)]
pub struct ShadowExample {
    /// When it ended.
    pub at: SystemTime,
    /// Its decision's id.
    pub decision: Box<str>,
    /// Who asked.
    pub crawler: Box<str>,
    /// What for, as far as the log may show it.
    pub url: Option<Box<str>>,
    /// The host, likewise.
    pub host: Option<Box<str>>,
    /// The stage of the decision in shadow.
    pub stage: Stage,
    /// The reason of the refusal.
    pub reason: &'static str,
    /// The rule in shadow that decides, if one does.
    pub rule: Option<u32>,
}

impl ShadowStats {
    /// How many requests were judged in shadow.
    pub fn evaluated(&self) -> u64 {
        self.evaluated.load(Ordering::Relaxed)
    }

    /// What a shadow would have changed so far.
    pub fn tallies(&self, of: ShadowSource) -> ShadowTallies {
        let entries = self.tallies.lock().unwrap_or_else(PoisonError::into_inner);
        entries.get(&of).cloned().unwrap_or_default()
    }

    pub(super) fn record_evaluation(&self) {
        self.evaluated.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn record_difference(&self, note: &ShadowNote, example: ShadowExample) {
        let mut entries = self.tallies.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.entry(note.source).or_default();
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

//! What shadows would have changed: notes on one request, and the book in which those of a policy add up.
//!
//! Rules in shadow and a whole shadow policy are judged elsewhere, beside the live decision; here is only what became
//! of it. Notes travel with the request's record and are counted when it ends, like everything else.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use smallvec::SmallVec;

use crate::vocab::reason::Reason;
use crate::vocab::stage::Stage;

use super::labels::Verdict;
use super::policy::PolicyMetrics;

/// How many of the latest requests that each shadow would have changed are kept as examples, for each change.
pub const EXAMPLES: usize = 20;
/// How many shadows `Crawl-Shadow` names at most.
const TOLD: usize = 8;

/// What shadows say of one request.
#[derive(Debug)]
pub struct Notes {
    /// The counters of the shadow policy, if there is one.
    pub whole: Option<Arc<PolicyMetrics>>,
    /// One for each shadow that had anything to say.
    pub notes: SmallVec<[Note; 2]>,
}

/// What one shadow says of one request.
#[derive(Clone, Debug)]
pub struct Note {
    /// Which.
    pub of: ShadowOf,
    /// Its rules that matched, by their indices.
    pub matched: SmallVec<[u32; 4]>,
    /// The rule to name.
    pub rule: Option<u32>,
    /// The rule that is counted as the cause: one in shadow.
    pub decided: Option<u32>,
    /// What it decides: [`Verdict::Allow`] or [`Verdict::Reject`].
    pub verdict: Verdict,
    /// What would change.
    pub change: Change,
    /// Why: the reason of the decision in shadow.
    pub reason: Reason,
    /// Where.
    pub stage: Stage,
}

/// A shadow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShadowOf {
    /// An outermost rule in shadow of the live policy, by its index.
    Rule(u32),
    /// The shadow policy.
    Policy,
}

/// What a shadow would change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing: it says what the live policy says.
    Nothing,
    /// It would refuse what the live policy admits.
    Refuses,
    /// It would admit what the live policy refuses, as far as the stages are known that were run.
    Admits,
}

impl Change {
    /// The word of the log and of `Crawl-Shadow`: the verdict in shadow.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Refuses => "reject",
            Self::Nothing | Self::Admits => "allow",
        }
    }
}

impl Notes {
    /// The counters that know the rules of a note.
    pub(super) fn metrics<'n>(
        &'n self,
        of: ShadowOf,
        live: Option<&'n Arc<PolicyMetrics>>,
    ) -> Option<&'n PolicyMetrics> {
        match of {
            ShadowOf::Rule(_) => live.map(|live| &**live),
            ShadowOf::Policy => self.whole.as_deref(),
        }
    }

    /// The notes of those that would have made this change.
    pub(super) fn of(&self, change: Change) -> impl Iterator<Item = &Note> {
        self.notes.iter().filter(move |note| note.change == change)
    }

    /// `reject; rule=no-cgi`, for the header `Crawl-Shadow`.
    pub(super) fn words(
        &self,
        change: Change,
        live: Option<&Arc<PolicyMetrics>>,
    ) -> Option<String> {
        let member = |note: &Note| {
            let metrics = self.metrics(note.of, live)?;
            let verdict = note.change.as_str();
            Some(match note.rule.and_then(|rule| metrics.shown(rule)) {
                Some(rule) => format!("{verdict}; rule={rule}"),
                None => format!("{verdict}; policy={}", metrics.name()),
            })
        };
        let members: Vec<String> = self.of(change).filter_map(member).take(TOLD).collect();
        (!members.is_empty()).then(|| members.join(", "))
    }
}

/// What the shadows of one policy would have changed since it is in force.
#[derive(Debug, Default)]
pub struct Book {
    judged: AtomicU64,
    entries: Mutex<BTreeMap<ShadowOf, Entry>>,
}

/// What one shadow would have changed.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    /// Requests that it would refuse and that were admitted.
    pub refuses: Tally,
    /// Requests that it would admit and that were refused.
    pub admits: Tally,
}

/// Requests, counted.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// All of them.
    pub total: u64,
    /// By the reason of the refusal: that in shadow, or the live one.
    pub reasons: BTreeMap<&'static str, u64>,
    /// By the rule in shadow that decides.
    pub rules: BTreeMap<u32, u64>,
    /// The latest, the newest first.
    pub examples: VecDeque<Example>,
}

/// One request that a shadow would have changed, with no more of its URL than the log shows.
#[derive(Clone, Debug)]
pub struct Example {
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

impl Book {
    /// How many requests were judged in shadow.
    pub fn judged(&self) -> u64 {
        self.judged.load(Ordering::Relaxed)
    }

    /// What a shadow would have changed so far.
    pub fn entry(&self, of: ShadowOf) -> Entry {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.get(&of).cloned().unwrap_or_default()
    }

    pub(super) fn count(&self) {
        self.judged.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn note(&self, note: &Note, example: Example) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.entry(note.of).or_default();
        let tally = match note.change {
            Change::Refuses => &mut entry.refuses,
            Change::Admits => &mut entry.admits,
            Change::Nothing => return,
        };
        tally.total += 1;
        *tally.reasons.entry(example.reason).or_default() += 1;
        if let Some(rule) = note.rule {
            *tally.rules.entry(rule).or_default() += 1;
        }
        tally.examples.push_front(example);
        tally.examples.truncate(EXAMPLES);
    }
}

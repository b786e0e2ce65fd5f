//! How far a sweep is, and how that is kept in the ledger.

use std::sync::Arc;

use prost::Message as _;

use crate::ledger::key::Key;
use crate::ledger::record::Record;
use crate::store::ledger::Ledger;

use super::GAPS;
use super::judge::{Change, Found};

/// The name under which the ledger keeps it.
const NAME: &str = "sweep";

/// How far a sweep is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Whether it is still under way.
    pub state: State,
    /// What it does with what it finds.
    pub how: How,
    /// The revision of the policy.
    pub revision: Arc<str>,
    /// URLs that it has seen.
    pub looked_at: u64,
    /// URLs that there were when it began.
    pub total: u64,
    /// Those that get 760: they leave.
    pub removed: u64,
    /// Those that get 761: they stay, in another crawler's space.
    pub moved: u64,
    /// Those that have the one or the other from before.
    pub unchanged: u64,
    /// The others.
    pub allowed: u64,
    /// The first thousand URLs that a dry run found newly outside of their crawler's space.
    pub gaps: Vec<Gap>,
    pub(super) after: Option<Key>,
}

/// Whether a sweep is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is.
    Running,
    /// It is over.
    Done,
}

/// What a sweep does with what it finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Counts it.
    DryRun,
    /// Writes it down, and orders removals.
    ForGood,
}

/// A URL outside of its crawler's space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The crawler.
    pub crawler: Arc<str>,
    /// The URL.
    pub url: Arc<str>,
    /// The rule that decides; none where the default does.
    pub rule: Option<Arc<str>>,
    /// 760 or 761.
    pub code: u16,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Form {
    #[prost(string, tag = "1")]
    revision: String,
    #[prost(bytes = "vec", tag = "2")]
    after: Vec<u8>,
    #[prost(bool, tag = "3")]
    done: bool,
    #[prost(uint64, tag = "4")]
    looked_at: u64,
    #[prost(uint64, tag = "5")]
    total: u64,
    #[prost(uint64, tag = "6")]
    removed: u64,
    #[prost(uint64, tag = "7")]
    moved: u64,
    #[prost(uint64, tag = "8")]
    allowed: u64,
    #[prost(uint64, tag = "9")]
    unchanged: u64,
}

impl Progress {
    pub(super) fn new(how: How, revision: &str, total: u64) -> Self {
        Self {
            state: State::Running,
            how,
            revision: revision.into(),
            looked_at: 0,
            total,
            removed: 0,
            moved: 0,
            unchanged: 0,
            allowed: 0,
            gaps: Vec::new(),
            after: None,
        }
    }

    pub(super) fn count(&mut self, record: &Record, found: &Found, change: Change) {
        self.looked_at += 1;
        match (found, change) {
            (Found::Allowed, _) => self.allowed += 1,
            (Found::Excluded(_), Change::None) => self.unchanged += 1,
            (Found::Excluded(excluded), Change::Some) => {
                let count = if excluded.leaves() {
                    &mut self.removed
                } else {
                    &mut self.moved
                };
                *count += 1;
                if self.how == How::DryRun && self.gaps.len() < GAPS {
                    self.gaps.push(Gap {
                        crawler: record.crawler.clone(),
                        url: record.url.clone(),
                        rule: excluded.rule.clone(),
                        code: excluded.code,
                    });
                }
            }
        }
    }
}

/// Keeps how far it is, behind what it has noted so far.
pub(super) fn keep(ledger: &Ledger, progress: &Progress) {
    let form = Form {
        revision: progress.revision.to_string(),
        after: progress.after.map(|key| key.0.to_vec()).unwrap_or_default(),
        done: progress.state == State::Done,
        looked_at: progress.looked_at,
        total: progress.total,
        removed: progress.removed,
        moved: progress.moved,
        unchanged: progress.unchanged,
        allowed: progress.allowed,
    };
    ledger.keep(NAME, form.encode_to_vec());
}

/// Another policy is in force, which needs no sweep: what was swept under the one before it is not swept any more.
pub(super) fn begin(ledger: &Ledger, revision: &str) {
    if kept(ledger).is_some_and(|kept| &*kept.revision != revision) {
        keep(ledger, &Progress::new(How::ForGood, revision, 0));
    }
}

/// The last sweep for good, as far as it came.
pub(super) fn kept(ledger: &Ledger) -> Option<Progress> {
    let form = Form::decode(&*ledger.kept(NAME)?).ok()?;
    Some(Progress {
        state: if form.done {
            State::Done
        } else {
            State::Running
        },
        looked_at: form.looked_at,
        removed: form.removed,
        moved: form.moved,
        unchanged: form.unchanged,
        allowed: form.allowed,
        after: form.after.try_into().ok().map(Key),
        ..Progress::new(How::ForGood, &form.revision, form.total)
    })
}

//! How far a sweep is, and how that is kept in the ledger.

use std::sync::Arc;

use prost::Message as _;

use crate::ledger::key::LedgerKey;
use crate::ledger::record::LedgerRecord;
use crate::store::ledger::Ledger;

use super::MAX_GAPS;
use super::evaluation::{RecordChange, SweepVerdict};

/// The name under which the ledger keeps it.
const NAME: &str = "sweep";

/// How far a sweep is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SweepProgress {
    /// Whether it is still under way.
    pub state: SweepPhase,
    /// What it does with what it finds.
    pub mode: SweepMode,
    /// The revision of the policy.
    pub revision: Arc<str>,
    /// URLs that it has seen.
    pub examined: u64,
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
    pub gaps: Vec<SweepGap>,
    pub(super) resume_after: Option<LedgerKey>,
}

/// Whether a sweep is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweepPhase {
    /// It is.
    Running,
    /// It is over.
    Done,
}

/// What a sweep does with what it finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweepMode {
    /// Counts it.
    DryRun,
    /// Writes it down, and orders removals.
    ForGood,
}

/// A URL outside of its crawler's space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SweepGap {
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
struct StoredSweepProgress {
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

impl SweepProgress {
    pub(super) fn new(mode: SweepMode, revision: &str, total: u64) -> Self {
        Self {
            state: SweepPhase::Running,
            mode,
            revision: revision.into(),
            examined: 0,
            total,
            removed: 0,
            moved: 0,
            unchanged: 0,
            allowed: 0,
            gaps: Vec::new(),
            resume_after: None,
        }
    }

    pub(super) fn count(
        &mut self,
        record: &LedgerRecord,
        verdict: &SweepVerdict,
        change: RecordChange,
    ) {
        self.examined += 1;
        match (verdict, change) {
            (SweepVerdict::Allowed, _) => self.allowed += 1,
            (SweepVerdict::Excluded(_), RecordChange::None) => self.unchanged += 1,
            (SweepVerdict::Excluded(excluded), RecordChange::Some) => {
                let count = if excluded.is_removal() {
                    &mut self.removed
                } else {
                    &mut self.moved
                };
                *count += 1;
                if self.mode == SweepMode::DryRun && self.gaps.len() < MAX_GAPS {
                    self.gaps.push(SweepGap {
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
pub(super) fn save(ledger: &Ledger, progress: &SweepProgress) {
    let form = StoredSweepProgress {
        revision: progress.revision.to_string(),
        after: progress
            .resume_after
            .map(|key| key.0.to_vec())
            .unwrap_or_default(),
        done: progress.state == SweepPhase::Done,
        looked_at: progress.examined,
        total: progress.total,
        removed: progress.removed,
        moved: progress.moved,
        unchanged: progress.unchanged,
        allowed: progress.allowed,
    };
    ledger.store_value(NAME, form.encode_to_vec());
}

/// Another policy is in force, which needs no sweep: what was swept under the one before it is not swept any more.
pub(super) fn reset_for_policy(ledger: &Ledger, revision: &str) {
    if load(ledger).is_some_and(|kept| &*kept.revision != revision) {
        save(ledger, &SweepProgress::new(SweepMode::ForGood, revision, 0));
    }
}

/// The last sweep for good, as far as it came.
pub(super) fn load(ledger: &Ledger) -> Option<SweepProgress> {
    let form = StoredSweepProgress::decode(&*ledger.load_value(NAME)?).ok()?;
    Some(SweepProgress {
        state: if form.done {
            SweepPhase::Done
        } else {
            SweepPhase::Running
        },
        examined: form.looked_at,
        removed: form.removed,
        moved: form.moved,
        unchanged: form.unchanged,
        allowed: form.allowed,
        resume_after: form.after.try_into().ok().map(LedgerKey),
        ..SweepProgress::new(SweepMode::ForGood, &form.revision, form.total)
    })
}

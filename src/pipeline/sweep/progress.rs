//! The progress of a sweep, and how it is kept in the ledger.

use std::sync::Arc;

use prost::Message as _;

use crate::ledger::key::LedgerKey;
use crate::ledger::record::LedgerRecord;
use crate::store::ledger::Ledger;

use super::MAX_GAPS;
use super::evaluation::{RecordChange, SweepVerdict};

/// The key of the progress in the ledger.
const NAME: &str = "sweep";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SweepProgress {
    pub state: SweepPhase,
    /// The use of the results.
    pub mode: SweepMode,
    /// The revision of the policy.
    pub revision: Arc<str>,
    /// The number of URLs examined so far.
    pub examined: u64,
    /// The number of URLs at the beginning.
    pub total: u64,
    /// The number of URLs that get 760 and leave the index.
    pub removed: u64,
    /// The number of URLs that get 761, since they are in another crawler's space.
    pub moved: u64,
    /// The number of URLs that already had one of these codes.
    pub unchanged: u64,
    /// The number of URLs that are still in their crawler's space.
    pub allowed: u64,
    /// The first thousand URLs that a dry run found to have left their crawler's space.
    pub gaps: Vec<SweepGap>,
    pub(super) resume_after: Option<LedgerKey>,
}

/// The state of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweepPhase {
    /// The sweep is running, or about to begin.
    Running,
    /// The sweep has ended.
    Done,
}

/// The use of a sweep's results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweepMode {
    /// It counts them.
    DryRun,
    /// It records them, so that URLs are removed.
    ForGood,
}

/// A URL outside of its crawler's space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SweepGap {
    /// The crawler that the URL is in the ledger for.
    pub crawler: Arc<str>,
    /// The URL as the ledger has it.
    pub url: Arc<str>,
    /// The rule that decided; `None` if the default did.
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

/// Writes the progress after the results so far.
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

/// Records that the active policy needs no sweep. A sweep of the policy before it then counts as not done.
pub(super) fn reset_for_policy(ledger: &Ledger, revision: &str) {
    if load(ledger).is_some_and(|kept| &*kept.revision != revision) {
        save(ledger, &SweepProgress::new(SweepMode::ForGood, revision, 0));
    }
}

/// Returns the progress of the last sweep that was not a dry run.
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

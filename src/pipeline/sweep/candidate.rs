//! A dry run of a policy that is not loaded, over records that were read elsewhere.

use std::sync::Arc;

use crate::ledger::record::LedgerRecord;
use crate::policy::Policy;

use super::evaluation;
use super::progress::{SweepMode, SweepPhase, SweepProgress};

/// A dry run of a policy that is not loaded.
#[derive(Debug)]
pub struct CandidateSweep {
    policy: Arc<Policy>,
    progress: SweepProgress,
}

impl CandidateSweep {
    /// Begins a dry run.
    pub fn new(policy: Arc<Policy>) -> Self {
        let progress = SweepProgress::new(SweepMode::DryRun, policy.revision(), 0);
        Self { policy, progress }
    }

    /// Evaluates one record.
    pub fn examine(&mut self, record: &LedgerRecord) {
        let found = evaluation::evaluate_record(&self.policy, record);
        let (effect, _) = evaluation::observe(&self.policy, record, &found, record.last_seen);
        self.progress.count(record, &found, effect);
    }

    /// Returns the counts after the last record.
    pub fn finish(self) -> SweepProgress {
        SweepProgress {
            state: SweepPhase::Done,
            total: self.progress.examined,
            ..self.progress
        }
    }
}

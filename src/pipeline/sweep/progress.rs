//! The progress of a sweep, and how it is kept in the ledger.

use std::sync::Arc;

use prost::Message as _;

use crate::ledger::key::LedgerKey;
use crate::ledger::record::LedgerRecord;
use crate::model::crawl_status::CrawlStatus;
use crate::store::ledger::Ledger;

use super::MAX_GAPS;
use super::evaluation::{EXCLUDED, MOVED, RecordChange, SweepEffect, SweepVerdict};

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
    /// The number of URLs that already had one of these codes, or whose removal was pending.
    pub unchanged: u64,
    /// The number of URLs that stay in the index, and are refused: by a rule, or by the site.
    pub refused: u64,
    /// The number of URLs that are allowed.
    pub allowed: u64,
    /// The first thousand URLs that a dry run found to be newly refused.
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

impl SweepMode {
    /// Returns the word in log lines.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::DryRun => "dry run",
            Self::ForGood => "for good",
        }
    }
}

/// A URL that the policy refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SweepGap {
    /// The crawler that the URL is in the ledger for.
    pub crawler: Arc<str>,
    /// The URL as the ledger has it.
    pub url: Arc<str>,
    /// The rule that decided; `None` if the default did.
    pub rule: Option<Arc<str>>,
    /// 760 or 761, if the URL is outside of its crawler's space.
    pub code: Option<u16>,
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
    #[prost(uint64, tag = "10")]
    refused: u64,
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
            refused: 0,
            allowed: 0,
            gaps: Vec::new(),
            resume_after: None,
        }
    }

    pub(super) fn count(
        &mut self,
        record: &LedgerRecord,
        verdict: &SweepVerdict,
        effect: SweepEffect,
    ) {
        self.examined += 1;
        *self.place(record, verdict, effect) += 1;
        let SweepVerdict::Refused(refusal) = verdict else {
            return;
        };
        let is_listed = self.mode == SweepMode::DryRun && effect.change == RecordChange::Outcome;
        if is_listed && self.gaps.len() < MAX_GAPS {
            self.gaps.push(SweepGap {
                crawler: record.crawler.clone(),
                url: record.url.clone(),
                rule: refusal.rule.clone(),
                code: refusal.code,
            });
        }
    }

    /// Returns the count that a URL belongs to.
    fn place(
        &mut self,
        record: &LedgerRecord,
        verdict: &SweepVerdict,
        effect: SweepEffect,
    ) -> &mut u64 {
        let is_new = effect.change == RecordChange::Outcome;
        match verdict {
            SweepVerdict::Refused(refusal) if refusal.is_removal() && is_new => &mut self.removed,
            SweepVerdict::Refused(refusal) if refusal.is_move() && is_new => &mut self.moved,
            SweepVerdict::Refused(refusal) if refusal.is_removal() || refusal.is_move() => {
                &mut self.unchanged
            }
            SweepVerdict::Refused(_) => &mut self.refused,
            // By its response.
            SweepVerdict::Allowed | SweepVerdict::Unknown
                if !is_new
                    && is_refusal(effect.status)
                    && matches!(record.code, Some(EXCLUDED | MOVED)) =>
            {
                &mut self.unchanged
            }
            SweepVerdict::Allowed | SweepVerdict::Unknown if is_refusal(effect.status) => {
                &mut self.refused
            }
            SweepVerdict::Allowed | SweepVerdict::Unknown => &mut self.allowed,
        }
    }
}

/// Returns `true` for the status of a URL that the policy or the site refuses until one of them changes.
fn is_refusal(status: CrawlStatus) -> bool {
    use CrawlStatus as Of;
    match status {
        Of::Filter
        | Of::RobotsTxt
        | Of::Usage
        | Of::TooDeep
        | Of::Trap
        | Of::Duplicate
        | Of::Noncanonical
        | Of::Noindex
        | Of::Import
        | Of::Address => true,
        Of::Accepted
        | Of::Budget
        | Of::Premature
        | Of::Unmodified
        | Of::NotFound
        | Of::BadStatus
        | Of::Error
        | Of::Politeness
        | Of::Request
        | Of::Unauthorized
        | Of::Unavailable => false,
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
        refused: progress.refused,
        allowed: progress.allowed,
    };
    ledger.store_value(NAME, form.encode_to_vec());
}

/// Returns `true` if the last sweep was that of this policy, and is complete.
pub(super) fn is_done(ledger: &Ledger, revision: &str) -> bool {
    load(ledger)
        .is_some_and(|saved| *saved.revision == *revision && saved.state == SweepPhase::Done)
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
        refused: form.refused,
        allowed: form.allowed,
        resume_after: form.after.try_into().ok().map(LedgerKey),
        ..SweepProgress::new(SweepMode::ForGood, &form.revision, form.total)
    })
}

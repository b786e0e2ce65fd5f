//! What the policy says of a URL that is remembered: as if it were asked for again, with the address that it had.

use std::sync::Arc;

use crate::ledger::observation::{
    ObservationOutcome, ObservedRefusal, RefusalRecording, UrlObservation,
};
use crate::ledger::record::{LedgerRecord, UnixMillis};
use crate::ledger::transition::{self, ErrorTolerance, RecordUpdate};
use crate::model::crawl_status::CrawlStatus;
use crate::model::intent::Intent;
use crate::pipeline::refusal::Refusal;
use crate::policy::Policy;
use crate::policy::decide::Decision;
use crate::policy::fact::{Fact, Facts, LedgerPresence};
use crate::policy::rule::PolicyStage;
use crate::urls::target::UrlTarget;

/// OmniFind's code of what leaves the index.
const REMOVED: u16 = 760;

/// What becomes of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SweepVerdict {
    /// It is allowed, or refused for something else than where it is.
    Allowed,
    /// It is excluded from its crawler's space.
    Excluded(SpaceExclusion),
}

/// Why a URL is excluded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SpaceExclusion {
    /// 760 or 761.
    pub(super) code: u16,
    /// What that means.
    pub(super) intent: Intent,
    /// The rule that decided.
    pub(super) rule: Option<Arc<str>>,
}

impl SpaceExclusion {
    /// Whether it leaves the index.
    pub(super) fn is_removal(&self) -> bool {
        self.code == REMOVED
    }
}

/// Whether a sweep changes anything of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordChange {
    /// Its code, or there is somebody to be told.
    Some,
    /// It is as an earlier sweep, or a request, has left it.
    None,
}

/// What a look of the sweep would change of a record.
pub(super) fn record_change(record: &LedgerRecord, seen: &UrlObservation) -> RecordChange {
    // Errors have no part in what a sweep sees.
    let noted = transition::apply_observation(
        Some(record),
        seen.clone(),
        ErrorTolerance {
            temporary_errors: 0,
        },
    );
    let code = match &noted.update {
        RecordUpdate::Changed(changed) => changed.code,
        RecordUpdate::Unchanged | RecordUpdate::Forgotten => record.code,
    };
    if noted.event.is_some() || code != record.code {
        RecordChange::Some
    } else {
        RecordChange::None
    }
}

/// Judges a URL for its crawler. A record of a URL that was never admitted is excluded from nothing.
pub(super) fn evaluate_record(policy: &Policy, record: &LedgerRecord) -> SweepVerdict {
    let Ok(target) = UrlTarget::parse(&record.url) else {
        return SweepVerdict::Allowed;
    };
    if !record.is_known() {
        return SweepVerdict::Allowed;
    }
    let address = record
        .address
        .map_or(Fact::Unknown, |address| Fact::Known(Some(address)));
    let facts = Facts {
        crawler: &record.crawler,
        depth: record.depth.map(u64::from),
        address,
        in_ledger: LedgerPresence::Present,
        ..Facts::for_url(&target)
    };
    let (mut trail, mut decision) = policy.decide_request(&facts);
    if !decision.rejects()
        && record.address.is_some()
        && policy.is_active_at(PolicyStage::Destination)
    {
        decision = policy.decide_stage(&mut trail, PolicyStage::Destination, &facts);
    }
    let exclusion = policy.exclusion(&trail, &decision, &facts);
    let refusal = Refusal::from_decision(
        policy,
        &trail,
        &Decision {
            exclusion,
            ..decision
        },
    );
    let excluded = refusal.and_then(|refusal| {
        Some(SpaceExclusion {
            code: exclusion?.code.number(),
            intent: refusal.intent().unwrap_or(Intent::Keep),
            rule: refusal.rule.map(|rule| rule.as_str().into()),
        })
    });
    excluded.map_or(SweepVerdict::Allowed, SweepVerdict::Excluded)
}

/// What the ledger is told of it.
pub(super) fn to_observation(
    policy: &Policy,
    record: &LedgerRecord,
    verdict: &SweepVerdict,
    at: UnixMillis,
) -> UrlObservation {
    let spaces = policy.spaces();
    let space = spaces
        .for_crawler(&record.crawler)
        .and_then(|space| spaces.get(space));
    let (what, rule) = match verdict {
        SweepVerdict::Allowed => (ObservationOutcome::Allowed, None),
        SweepVerdict::Excluded(excluded) => {
            let refused = ObservedRefusal {
                crawl_status: CrawlStatus::Filter,
                intent: excluded.intent,
                code: Some(excluded.code),
                recording: RefusalRecording::Skip,
            };
            (ObservationOutcome::Refused(refused), excluded.rule.clone())
        }
    };
    UrlObservation {
        at,
        url: record.url.clone(),
        crawler: record.crawler.clone(),
        space: space.map(|space| space.name.shared()),
        depth: None,
        address: None,
        source: None,
        revision: policy.shared_revision(),
        rule,
        outcome: what,
    }
}

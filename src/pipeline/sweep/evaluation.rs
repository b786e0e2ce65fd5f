//! The evaluation of a URL in the ledger, as if it were requested again, with the address of its last fetch.

use std::sync::Arc;

use crate::ledger::observation::{
    BadOutcome, ObservationOutcome, ObservedRefusal, RefusalRecording, UrlObservation,
};
use crate::ledger::record::{LedgerRecord, UnixMillis};
use crate::ledger::transition::{self, ErrorTolerance, RecordUpdate};
use crate::model::crawl_status::CrawlStatus;
use crate::model::removal::{RemovalAction, RemovalOutcome};
use crate::pipeline::refusal::Refusal;
use crate::policy::Policy;
use crate::policy::decide::Decision;
use crate::policy::fact::{Fact, Facts, LedgerPresence};
use crate::policy::options::removal;
use crate::policy::rule::PolicyStage;
use crate::urls::target::UrlTarget;

/// OmniFind's code for a URL that leaves the index.
const REMOVED: u16 = 760;

/// The result for a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SweepVerdict {
    /// The URL is allowed, or refused for another reason than its location.
    Allowed,
    /// The URL is excluded from its crawler's space.
    Excluded(SpaceExclusion),
}

/// The cause of an exclusion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SpaceExclusion {
    /// 760 or 761.
    pub(super) code: u16,
    /// The action for a page that an index may have.
    pub(super) removal: RemovalAction,
    pub(super) rule: Option<Arc<str>>,
}

impl SpaceExclusion {
    /// Returns `true` if the URL leaves the index.
    pub(super) fn is_removal(&self) -> bool {
        self.code == REMOVED
    }
}

/// The change that a sweep makes to a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordChange {
    /// The code changes, or an event is due.
    Some,
    /// The record is as an earlier sweep or a request has left it.
    None,
}

/// Returns the change to a record by an observation of the sweep, if any.
pub(super) fn record_change(record: &LedgerRecord, observation: &UrlObservation) -> RecordChange {
    // A sweep observes no errors.
    let update = transition::apply_observation(
        Some(record),
        observation.clone(),
        ErrorTolerance {
            temporary_errors: 0,
        },
    );
    let code = match &update.update {
        RecordUpdate::Changed(changed) => changed.code,
        RecordUpdate::Unchanged | RecordUpdate::Forgotten => record.code,
    };
    if update.event.is_some() || code != record.code {
        RecordChange::Some
    } else {
        RecordChange::None
    }
}

/// Evaluates a URL for its crawler. A record of a URL that was never admitted is not excluded from anything.
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
            removal: removal::read(policy, &trail, RemovalOutcome::Rule, refusal.intent()),
            rule: refusal.rule.map(|rule| rule.as_str().into()),
        })
    });
    excluded.map_or(SweepVerdict::Allowed, SweepVerdict::Excluded)
}

/// Returns the observation for the ledger.
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
    let (outcome, rule) = match verdict {
        SweepVerdict::Allowed => (ObservationOutcome::Allowed, None),
        SweepVerdict::Excluded(refusal) => {
            let refused = ObservedRefusal {
                crawl_status: CrawlStatus::Filter,
                code: Some(refusal.code),
                removal: Some(BadOutcome {
                    outcome: RemovalOutcome::Rule,
                    action: refusal.removal,
                }),
                recording: RefusalRecording::Skip,
            };
            (ObservationOutcome::Refused(refused), refusal.rule.clone())
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
        intent: None,
        outcome,
    }
}

//! The evaluation of a URL in the ledger, as if it were requested again, with the address of its last fetch.

use std::sync::Arc;

use crate::ledger::observation::{
    BadOutcome, ObservationOutcome, ObservedRefusal, RefusalRecording, UrlObservation,
};
use crate::ledger::record::{LedgerRecord, UnixMillis};
use crate::ledger::removal::{RemovalCause, RemovalDecision, RemovalSchedule};
use crate::ledger::transition::{self, ErrorTolerance};
use crate::model::crawl_status::CrawlStatus;
use crate::model::crawler::Crawler;
use crate::model::intent::Intent;
use crate::model::reason::Reason;
use crate::model::removal::{RemovalAction, RemovalOutcome};
use crate::pipeline::evaluation::Evaluation;
use crate::pipeline::facts::RequestFacts;
use crate::pipeline::refusal::Refusal;
use crate::pipeline::snapshot::PolicySnapshot;
use crate::pipeline::stage::destination;
use crate::policy::Policy;
use crate::policy::decide::{Cause, Decision};
use crate::policy::fact::{Fact, Facts, LedgerPresence};
use crate::policy::field::Field;
use crate::policy::options::removal;
use crate::policy::rule::{PolicyStage, Rule, RuleIndex};
use crate::urls::target::UrlTarget;

/// OmniFind's code for a URL that leaves the index.
pub(super) const EXCLUDED: u16 = 760;
/// OmniFind's code for a URL that another crawler has.
pub(super) const MOVED: u16 = 761;

/// The result for a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SweepVerdict {
    /// The policy allows the URL, or the record of it was never admitted.
    Allowed,
    /// The policy refuses the URL.
    Refused(SweepRefusal),
    /// It depends on the request, such as its `Referer`, or the policy refuses the URL for now.
    Unknown,
}

/// A refusal of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SweepRefusal {
    pub(super) crawl_status: CrawlStatus,
    /// 760 or 761, if the URL is outside of its crawler's space.
    pub(super) code: Option<u16>,
    /// The action for a page that an index may have.
    pub(super) removal: RemovalAction,
    pub(super) rule: Option<Arc<str>>,
}

impl SweepRefusal {
    /// Returns `true` if the URL leaves the index.
    pub(super) fn is_removal(&self) -> bool {
        self.removal == RemovalAction::Remove && !self.is_move()
    }

    /// Returns `true` if another crawler has the URL.
    pub(super) fn is_move(&self) -> bool {
        self.code == Some(MOVED)
    }
}

/// The effect of a sweep on a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SweepEffect {
    pub(super) change: RecordChange,
    /// The status of the URL after the sweep.
    pub(super) status: CrawlStatus,
}

/// The change that a sweep makes to a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordChange {
    /// The status or the code changes, or the URL leaves the index.
    Outcome,
    /// Other fields change, such as the policy that removes the URL.
    Other,
    /// The record is as an earlier sweep or a request has left it.
    None,
}

/// Returns the effect of an observation of the sweep on a record.
fn effect(record: &LedgerRecord, observation: &UrlObservation) -> SweepEffect {
    // A sweep observes no errors.
    let tolerance = ErrorTolerance {
        temporary_errors: 0,
    };
    let transition = transition::apply_observation(
        Some(record),
        observation.clone(),
        tolerance,
        // A URL whose removal is pending already is not counted again.
        RemovalSchedule::Deferred,
    );
    let after = transition.record.as_ref().unwrap_or(record);
    let is_removed = record.pending_removal.is_none() && after.pending_removal.is_some();
    let is_new = transition.event.is_some()
        || is_removed
        || after.code != record.code
        || after.status != record.status;
    SweepEffect {
        change: match (&transition.record, is_new) {
            (None, _) => RecordChange::None,
            (Some(_), true) => RecordChange::Outcome,
            (Some(_), false) => RecordChange::Other,
        },
        status: after.status.0,
    }
}

/// Evaluates a URL for its crawler. A record of a URL that was never admitted is not excluded from anything.
pub(super) fn evaluate_record(policy: &Policy, record: &LedgerRecord) -> SweepVerdict {
    let Ok(target) = UrlTarget::parse(&record.url) else {
        return SweepVerdict::Allowed;
    };
    if !record.is_known() {
        // One that has failed since its removal does not come back because the policy allows it.
        return if record.is_removed_by_policy() {
            SweepVerdict::Unknown
        } else {
            SweepVerdict::Allowed
        };
    }
    let facts = facts_of(record, &target);
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
    let Some(refusal) = refusal else {
        return SweepVerdict::Allowed;
    };
    let intent = refusal.intent();
    let is_uncertain = intent == Some(Intent::Later) || depends_on_request(policy, &decision);
    if exclusion.is_none() && is_uncertain {
        return SweepVerdict::Unknown;
    }
    SweepVerdict::Refused(SweepRefusal {
        crawl_status: refusal.reason.row().crawl_status,
        code: exclusion.map(|exclusion| exclusion.code.number()),
        removal: removal::read(policy, &trail, RemovalOutcome::Rule, intent),
        rule: refusal.rule.map(|rule| rule.as_str().into()),
    })
}

/// Returns the cancellation of the removal that is pending because of a policy, if one is.
fn cancellation(record: &LedgerRecord) -> Option<ObservationOutcome> {
    let pending = record.pending_removal.as_ref()?;
    let cancel = || ObservationOutcome::PendingRemoval(pending.clone(), RemovalDecision::Cancel);
    pending.cause.is_policy().then(cancel)
}

/// Returns the facts of a request for a URL as far as the ledger knows them.
fn facts_of<'a>(record: &'a LedgerRecord, target: &'a UrlTarget) -> Facts<'a> {
    let address = record
        .address
        .map_or(Fact::Unknown, |address| Fact::Known(Some(address)));
    Facts {
        crawler: &record.crawler,
        depth: record.depth.map(u64::from),
        address,
        in_ledger: LedgerPresence::Present,
        ..Facts::for_url(target)
    }
}

/// Returns `true` if a refusal may depend on a fact of the request that the ledger does not have. Fields of a response
/// are unknown to a sweep, and decide nothing.
fn depends_on_request(policy: &Policy, decision: &Decision) -> bool {
    let is_request_rule = |rule: &Rule| {
        let mut found = false;
        if let Some(condition) = rule.condition() {
            condition.for_each_field(&mut |field| {
                found |= is_missing(field);
            });
        }
        found
    };
    let mut rules = (0..).map(RuleIndex).zip(policy.rules());
    rules.any(|(index, rule)| {
        let is_cause = match decision.cause {
            // The rule, or a group that contains it.
            Cause::Rule(cause) => index == cause || index < cause && cause < rule.end,
            // A rule that would have allowed the URL.
            Cause::Default => true,
        };
        is_cause && is_request_rule(rule)
    })
}

/// Returns `true` if the field of a request is absent in a sweep, whatever it was in the request.
fn is_missing(field: &Field) -> bool {
    field.stage() <= PolicyStage::Destination && !field.is_in_ledger()
}

/// Evaluates the request for a URL, as far as the ledger knows it, up to the destination stage.
pub(super) fn evaluate_request(
    snapshot: &Arc<PolicySnapshot>,
    target: UrlTarget,
    record: &LedgerRecord,
    crawler: Crawler,
    user_agent: Option<&str>,
) -> Evaluation {
    let mut facts = RequestFacts::without_fields(target, crawler).with_user_agent(user_agent);
    facts.set_ledger_facts(record.depth, LedgerPresence::Present);
    let mut evaluation = Evaluation::new(facts, Arc::clone(snapshot));
    if let Some(address) = record.address
        && evaluation.ensure_admitted().is_ok()
        && snapshot.policy.is_active_at(PolicyStage::Destination)
    {
        let decision = destination::evaluate_address(&evaluation, address);
        evaluation.set_decision(decision);
    }
    evaluation
}

/// Returns the action for a page that the site forbids, or that asks not to be indexed; `None` for other causes.
pub(super) fn removal_action(
    evaluation: &Evaluation,
    cause: &RemovalCause,
) -> Option<RemovalAction> {
    let (policy, trail) = (evaluation.policy(), evaluation.trail());
    let (outcome, intent) = match cause {
        RemovalCause::RobotsTxt { .. } => (RemovalOutcome::RobotsTxt, Reason::RobotsTxt.intent()),
        RemovalCause::Noindex { .. } => (RemovalOutcome::Noindex, trail.reject_intent(policy)),
        RemovalCause::Policy { .. } | RemovalCause::Page => return None,
    };
    Some(removal::read(policy, trail, outcome, intent))
}

/// Returns `true` if a rule that depends on the response may change what [`removal_action`] returns.
pub(super) fn removal_depends_on_response(policy: &Policy) -> bool {
    [RemovalOutcome::RobotsTxt, RemovalOutcome::Noindex]
        .into_iter()
        .any(|outcome| removal::may_depend_on_response(policy, outcome))
}

/// Returns the effect of a sweep on a record, and the observation that causes it, if any.
pub(super) fn observe(
    policy: &Policy,
    record: &LedgerRecord,
    verdict: &SweepVerdict,
    at: UnixMillis,
) -> (SweepEffect, Option<UrlObservation>) {
    let observation = to_observation(policy, record, verdict, at);
    let unchanged = SweepEffect {
        change: RecordChange::None,
        status: record.status.0,
    };
    let effect = observation
        .as_ref()
        .map_or(unchanged, |observation| effect(record, observation));
    (effect, observation)
}

/// Returns the observation for the ledger; `None` if the sweep does not know the outcome.
fn to_observation(
    policy: &Policy,
    record: &LedgerRecord,
    verdict: &SweepVerdict,
    at: UnixMillis,
) -> Option<UrlObservation> {
    let spaces = policy.spaces();
    let space = spaces
        .for_crawler(&record.crawler)
        .and_then(|space| spaces.get(space));
    let (outcome, rule) = match verdict {
        SweepVerdict::Allowed => (ObservationOutcome::Allowed, None),
        SweepVerdict::Refused(refusal) => {
            let refused = ObservedRefusal {
                crawl_status: refusal.crawl_status,
                code: refusal.code,
                removal: Some(BadOutcome {
                    outcome: RemovalOutcome::Rule,
                    action: refusal.removal,
                }),
                recording: RefusalRecording::Skip,
            };
            (
                ObservationOutcome::SweptRefusal(refused),
                refusal.rule.clone(),
            )
        }
        SweepVerdict::Unknown => (cancellation(record)?, None),
    };
    Some(UrlObservation {
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
        user_agent: None,
        outcome,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::field::{FIXED_FIELDS, ValueType};

    /// A field that the record of a URL lacks would be absent without notice, and removals would be ordered because of it.
    #[test]
    fn the_ledger_has_the_fields_that_a_sweep_evaluates() {
        let target = UrlTarget::parse("http://a.test:8080/p/x?q=1").unwrap();
        let record = LedgerRecord {
            url: target.shared(),
            crawler: "news".into(),
            depth: Some(3),
            address: Some([192, 0, 2, 1].into()),
            ..LedgerRecord::default()
        };
        let facts = facts_of(&record, &target);
        let of_requests = FIXED_FIELDS
            .iter()
            .filter(|field| field.stage() <= PolicyStage::Destination);
        for field in of_requests {
            let is_present = match field.value_type() {
                ValueType::Text => field.any_text_matches(&facts, |text| !text.is_empty()),
                ValueType::Number => field.number(&facts).map(|number| number.is_some()),
                ValueType::Address => field.address(&facts).map(|address| address.is_some()),
            };
            assert_eq!(is_present, Fact::Known(!is_missing(field)), "{field:?}");
        }
        let missing: Vec<_> = FIXED_FIELDS
            .iter()
            .filter(|field| is_missing(field))
            .collect();
        assert_eq!(missing, [&Field::Referer, &Field::Dest]);
    }
}

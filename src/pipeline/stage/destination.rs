//! Destination: the addresses of the host, and the policy's rules on each of them.

use std::net::IpAddr;

use smallvec::SmallVec;

use crate::pipeline::destination::{
    AddressList, DestinationError, DestinationResolver, EgressChoice, retain_admitted,
};
use crate::pipeline::evaluation::{Evaluation, StageDecision, TunnelEvaluation};
use crate::pipeline::facts::EvaluationFacts;
use crate::pipeline::refusal::Refusal;
use crate::policy::fact::Facts;
use crate::policy::rule::PolicyStage;

/// Resolves the host of a request, and drops the addresses that must not be dialled.
pub(crate) async fn resolve<D: DestinationResolver>(
    evaluation: &Evaluation,
    destinations: &D,
) -> Result<D::Addresses, Box<Refusal>> {
    let target = &evaluation.facts().target;
    let vetted = destinations.vet(target, egress_choice(evaluation)).await;
    vetted.map_err(|error| evaluation.refuse(error.into()))
}

/// Resolves the host of a tunnel, and drops the addresses that must not be dialled.
pub(crate) async fn resolve_host<D: DestinationResolver>(
    evaluation: &TunnelEvaluation,
    destinations: &D,
) -> Result<D::Addresses, Box<Refusal>> {
    let egress = EgressChoice {
        crawler: &evaluation.facts().crawler,
        parent: evaluation.parent(),
    };
    let host = &evaluation.facts().host;
    let vetted = destinations.vet_host(host, egress).await;
    vetted.map_err(|error| evaluation.refuse(error.into()))
}

/// Returns what chooses the way of a request.
pub(crate) fn egress_choice(evaluation: &Evaluation) -> EgressChoice<'_> {
    EgressChoice {
        crawler: &evaluation.facts().crawler,
        parent: evaluation.parent(),
    }
}

/// Drops the addresses that the policy rejects. Returns the decision on the address that is used, or that of the first
/// one if none is left; `None` if no rule depends on addresses.
pub(crate) fn evaluate(
    evaluation: &Evaluation,
    addresses: &mut impl AddressList,
) -> Option<StageDecision> {
    if !evaluation.policy().is_active_at(PolicyStage::Destination) {
        return None;
    }
    if addresses.first().is_none() {
        // A parent proxy resolves the name: conditions on the address do not hold.
        let facts = evaluation.facts().policy_facts().without_address();
        return Some(decide_destination(evaluation, &facts));
    }
    retain_admitted(
        addresses,
        |address| evaluate_address(evaluation, address),
        |stage| !stage.decision.rejects(),
    )
}

/// Refuses a host that has just refused connections. The request waits for nothing and takes no slot.
pub(crate) fn check_reachable<F: EvaluationFacts, D: DestinationResolver>(
    evaluation: &Evaluation<F>,
    destinations: &D,
    addresses: &D::Addresses,
) -> Result<(), Box<Refusal>> {
    match destinations.connect_backoff(addresses) {
        Some(remaining) => {
            let error = DestinationError::ConnectionRefused(remaining);
            let mut refusal = evaluation.refuse(Refusal::from(error));
            refusal.add_origin_address(addresses.first());
            Err(refusal)
        }
        None => Ok(()),
    }
}

/// Copies a list of addresses.
pub(crate) fn all_addresses(addresses: &mut impl AddressList) -> SmallVec<[IpAddr; 8]> {
    let mut all = SmallVec::new();
    addresses.retain(&mut |address| {
        all.push(address);
        true
    });
    all
}

/// Evaluates the policy with one of the host's addresses.
pub(crate) fn evaluate_address(evaluation: &Evaluation, address: IpAddr) -> StageDecision {
    let facts = evaluation.facts().policy_facts().with_address(address);
    decide_destination(evaluation, &facts)
}

fn decide_destination(evaluation: &Evaluation, facts: &Facts<'_>) -> StageDecision {
    let mut trail = evaluation.trail().clone();
    let policy = evaluation.policy();
    let decision = policy.decide_stage(&mut trail, PolicyStage::Destination, facts);
    StageDecision { trail, decision }
}

//! Destination: the policy's rules on addresses, asked of every address that passed the vetting.

use std::net::IpAddr;

use smallvec::SmallVec;

use crate::pipeline::destination::{
    AddressList, DestinationError, DestinationResolver, retain_admitted,
};
use crate::pipeline::evaluation::Evaluation;
use crate::pipeline::refusal::Refusal;
use crate::policy::decide::Decision;
use crate::policy::fact::{Fact, Facts};
use crate::policy::rule::PolicyStage;
use crate::policy::trail::Trail;

/// Drops the addresses that the policy rejects; rejects the request if none is left.
pub(crate) fn evaluate(
    evaluation: &mut Evaluation,
    vetted: &mut impl AddressList,
) -> Result<(), Box<Refusal>> {
    evaluate_shadow(evaluation, vetted);
    if !evaluation.policy().is_active_at(PolicyStage::Destination) {
        return Ok(());
    }
    let standing = retain_admitted(
        vetted,
        |address| evaluate_address(evaluation, address),
        |(_, decision)| !decision.rejects(),
    );
    if let Some((trail, decision)) = standing {
        (evaluation.trail, evaluation.decision) = (trail, decision);
    }
    evaluation.ensure_admitted()
}

/// Refuses what could only be refused a connection once more: it waits for nothing, and costs its host no turn.
pub(crate) fn check_reachable<D: DestinationResolver>(
    evaluation: &Evaluation,
    destinations: &D,
    vetted: &D::Addresses,
) -> Result<(), Box<Refusal>> {
    let Some(left) = destinations.connect_cooldown(vetted) else {
        return Ok(());
    };
    let refusal = Refusal::from(DestinationError::ConnectionRefused(left));
    Err(Box::new(Refusal {
        url_detail: evaluation.url_detail(refusal.stage),
        ..refusal
    }))
}

/// What stands in shadow sees all addresses, before any is dropped.
fn evaluate_shadow(evaluation: &mut Evaluation, vetted: &mut impl AddressList) {
    if !evaluation.snapshot.shadows_use_addresses() {
        return;
    }
    let Some(mut beside) = evaluation.shadow.take() else {
        return;
    };
    let mut addresses: SmallVec<[IpAddr; 8]> = SmallVec::new();
    vetted.retain(&mut |address| {
        addresses.push(address);
        true
    });
    beside.evaluate_addresses(
        evaluation.policy(),
        &evaluation.facts.policy_facts(),
        &addresses,
        &evaluation.trail,
    );
    evaluation.shadow = Some(beside);
}

type AddressDecision = (Trail, Decision);

fn evaluate_address(evaluation: &Evaluation, address: IpAddr) -> AddressDecision {
    let facts = Facts {
        address: Fact::Known(Some(address)),
        ..evaluation.facts.policy_facts()
    };
    let mut trail = evaluation.trail.clone();
    let decision = evaluation
        .policy()
        .decide_stage(&mut trail, PolicyStage::Destination, &facts);
    (trail, decision)
}

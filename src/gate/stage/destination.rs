//! Destination: the policy's rules on addresses, asked of every address that passed the vetting.

use std::net::IpAddr;

use smallvec::SmallVec;

use crate::gate::destination::{Addresses, Destinations, Unreachable, keep_admitted};
use crate::gate::judged::Judged;
use crate::gate::refusal::Refusal;
use crate::policy::decide::Decision;
use crate::policy::fact::{Fact, Facts};
use crate::policy::rule::PolicyStage;
use crate::policy::trail::Trail;

/// Drops the addresses that the policy rejects; rejects the request if none is left.
pub(in crate::gate) fn judge<C>(
    judged: &mut Judged<C>,
    vetted: &mut impl Addresses,
) -> Result<(), Box<Refusal>> {
    in_shadow(judged, vetted);
    if !judged.policy().acts_at(PolicyStage::Destination) {
        return Ok(());
    }
    let standing = keep_admitted(
        vetted,
        |address| of_address(judged, address),
        |(_, decision)| !decision.rejects(),
    );
    if let Some((trail, decision)) = standing {
        (judged.trail, judged.decision) = (trail, decision);
    }
    judged.verdict()
}

/// Refuses what could only be refused a connection once more: it waits for nothing, and costs its host no turn.
pub(in crate::gate) fn answers<C, D: Destinations>(
    judged: &Judged<C>,
    destinations: &D,
    vetted: &D::Vetted,
) -> Result<(), Box<Refusal>> {
    let Some(left) = destinations.refusing(vetted) else {
        return Ok(());
    };
    let refusal = Refusal::from(Unreachable::Refusing(left));
    Err(Box::new(Refusal {
        keep: judged.keep(refusal.stage),
        ..refusal
    }))
}

/// What stands in shadow sees all addresses, before any is dropped.
fn in_shadow<C>(judged: &mut Judged<C>, vetted: &mut impl Addresses) {
    if !judged.snapshot.shadows_see_addresses() {
        return;
    }
    let Some(mut beside) = judged.beside.take() else {
        return;
    };
    let mut addresses: SmallVec<[IpAddr; 8]> = SmallVec::new();
    vetted.retain(&mut |address| {
        addresses.push(address);
        true
    });
    beside.addresses(
        judged.policy(),
        &judged.asked.facts(),
        &addresses,
        &judged.trail,
    );
    judged.beside = Some(beside);
}

type Judgement = (Trail, Decision);

fn of_address<C>(judged: &Judged<C>, address: IpAddr) -> Judgement {
    let facts = Facts {
        address: Fact::Known(Some(address)),
        ..judged.asked.facts()
    };
    let mut trail = judged.trail.clone();
    let decision = judged
        .policy()
        .stage(&mut trail, PolicyStage::Destination, &facts);
    (trail, decision)
}

//! From a CONNECT to a permit: the stages of a host whose URLs the proxy will not see.
//!
//! A CONNECT shows its host, port, crawler and address, so the policy has three decisions (docs/policy/reference.md
//! "Tunnels"). What the bytes inside turn out to be is up to the proxy.

use std::sync::Arc;
use std::time::Duration;

use crate::pacing::pace::{MAX_WAIT, RequestKind};
use crate::pacing::queue::QueueRank;
use crate::policy::decide::Verdict;
use crate::policy::options::politeness::PolitenessOption;
use crate::policy::rule::PolicyStage;

use super::admission::{AdmissionQueue, Arrival, HostSlot};
use super::budget::sharing::BudgetCharge;
use super::destination::{AddressList, DestinationResolver, retain_admitted};
pub use super::evaluation::TunnelEvaluation;
use super::evaluation_loop::{
    PipelineResult, PipelineStages, ReadyToSend, StagesResult, run_until_permitted,
};
pub use super::facts::TunnelFacts;
use super::refusal::Refusal;
use super::snapshot::{ActivePolicy, PolicySnapshot};
use super::stage::pace::{self, Pacing, SlotRequester};
use super::stage::{class, destination, stop};

/// The policy's decision on a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelDecision {
    /// Every URL of the host is admitted, as far as the facts of a tunnel reach.
    Admit,
    /// Every URL of the host is rejected.
    Reject,
    /// Some URLs are rejected, or may be: the option `tunnel_undecided` decides.
    Undecided,
}

/// The result of the stages before the origin for a CONNECT.
pub type TunnelResult<Addresses> = PipelineResult<TunnelFacts, Addresses, Box<Refusal>>;

/// The services that the stages of a tunnel use.
pub struct TunnelServices<'a, D> {
    /// Resolves names.
    pub destinations: &'a D,
    /// The active policy, read again after a wait.
    pub active_policy: &'a ActivePolicy,
    /// Where tunnels wait for their host.
    pub admission: &'a Arc<AdmissionQueue>,
    /// The maximum time that a tunnel waits, if the policy does not set one.
    pub max_wait: Duration,
}

/// Takes a CONNECT through the stages before the origin: the policy by host, the addresses and their ranges, the policy
/// by address, the host's turn. It is evaluated again if the policy has changed while it waited.
///
/// robots.txt is about paths, so it is not consulted. A host that the policy refuses costs no lookup.
pub async fn admit_tunnel<D: DestinationResolver>(
    facts: TunnelFacts,
    snapshot: Arc<PolicySnapshot>,
    services: &TunnelServices<'_, D>,
) -> TunnelResult<D::Addresses> {
    let mut stages = services;
    run_until_permitted(&mut stages, facts, snapshot).await
}

impl<D: DestinationResolver> PipelineStages for &TunnelServices<'_, D> {
    type Facts = TunnelFacts;
    type Addresses = D::Addresses;
    type Inputs = ();
    type Error = Box<Refusal>;

    fn active_policy(&self) -> &ActivePolicy {
        self.active_policy
    }

    fn admission(&self) -> &AdmissionQueue {
        self.admission
    }

    fn evaluate(&self, facts: TunnelFacts, snapshot: Arc<PolicySnapshot>) -> Box<TunnelEvaluation> {
        Box::new(TunnelEvaluation::new(facts, snapshot))
    }

    async fn run(
        &mut self,
        evaluation: &mut TunnelEvaluation,
        arrival: &mut Option<Arrival>,
    ) -> Result<StagesResult<D::Addresses, ()>, Box<Refusal>> {
        let by_address = evaluation.policy().is_active_at(PolicyStage::Destination);
        if evaluation.decision().rejects() || !by_address {
            evaluation.ensure_admitted()?;
        }
        let mut addresses = destination::resolve_host(evaluation, self.destinations).await?;
        evaluation.add_lookup_time(addresses.lookup_time());
        if by_address || evaluation.has_address_shadows() {
            evaluate_addresses(evaluation, &mut addresses)?;
        }
        destination::check_reachable(evaluation, self.destinations, &addresses)?;
        let pacing = TunnelPacing {
            evaluation,
            admission: self.admission,
            default_max_wait: self.max_wait,
        };
        let slot = pace::acquire_slot(&pacing, &addresses, self.admission, arrival).await?;
        Ok(StagesResult::Ready(ReadyToSend {
            addresses,
            slot,
            inputs: (),
        }))
    }

    fn is_outdated(&self, _evaluation: &TunnelEvaluation, _inputs: &()) -> bool {
        false
    }

    /// Tunnels are not part of a day's budget.
    fn charge(
        &self,
        _evaluation: &TunnelEvaluation,
        _slot: &mut HostSlot,
    ) -> Result<BudgetCharge, Box<Refusal>> {
        Ok(BudgetCharge::Done)
    }
}

/// Drops the addresses that the policy refuses; refuses the tunnel if none is left.
fn evaluate_addresses(
    evaluation: &mut TunnelEvaluation,
    addresses: &mut impl AddressList,
) -> Result<(), Box<Refusal>> {
    let decided = retain_admitted(
        addresses,
        |address| (evaluation.decide_address(Some(address)), address),
        |(stage, _)| {
            Refusal::from_decision(evaluation.policy(), &stage.trail, &stage.decision).is_none()
        },
    );
    if let Some((stage, address)) = decided {
        evaluation.set_address_decision(stage, Some(address));
    }
    evaluation.ensure_admitted()
}

/// A tunnel that needs its host's turn, though none of the slots that requests take.
struct TunnelPacing<'a> {
    evaluation: &'a TunnelEvaluation,
    admission: &'a AdmissionQueue,
    default_max_wait: Duration,
}

impl SlotRequester for TunnelPacing<'_> {
    type Facts = TunnelFacts;

    fn evaluation(&self) -> &TunnelEvaluation {
        self.evaluation
    }

    fn kind(&self) -> RequestKind {
        RequestKind::Navigation
    }

    fn pacing(&self) -> Pacing {
        let politeness = PolitenessOption::new(self.evaluation.policy(), self.evaluation.trail());
        let limits = pace::schedule_limits(self.evaluation, self.admission);
        Pacing::for_tunnel(&politeness, limits)
    }

    fn max_wait(&self) -> Duration {
        self.evaluation
            .timeouts()
            .connect_total
            .unwrap_or(self.default_max_wait)
            .min(MAX_WAIT)
    }

    fn rank(&self) -> QueueRank {
        class::tunnel_rank(&PolitenessOption::new(
            self.evaluation.policy(),
            self.evaluation.trail(),
        ))
    }
}

impl TunnelEvaluation {
    /// Returns the policy's decision, whatever the outcome is.
    pub fn verdict(&self) -> TunnelDecision {
        match self.decision().verdict {
            Verdict::Admit => TunnelDecision::Admit,
            Verdict::Reject(_) => TunnelDecision::Reject,
            Verdict::Undecided => TunnelDecision::Undecided,
        }
    }

    /// Returns the refusal of an open tunnel that has been stopped since it was opened.
    pub fn stop_refusal(&self, admission: &AdmissionQueue) -> Option<Box<Refusal>> {
        stop::current_refusal(self, admission).map(Box::new)
    }
}

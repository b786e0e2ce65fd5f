//! The loop around the stages before the origin, for requests and tunnels alike: what was decided before a wait is decided
//! again if its grounds have changed meanwhile.

use std::sync::Arc;
use std::time::Duration;

use super::admission::{AdmissionQueue, Arrival, HostSlot};
use super::evaluation::Evaluation;
use super::facts::EvaluationFacts;
use super::permit::Permit;
use super::snapshot::{ActivePolicy, PolicySnapshot};

/// A request or a tunnel that has been through the stages before the origin.
#[derive(Debug)]
pub struct PipelineResult<F: EvaluationFacts, V, H> {
    /// The permit, or the cause of its absence.
    pub outcome: Result<Permit<F::Target, V>, H>,
    /// The evaluation, under a newer policy than at the beginning if that took effect meanwhile.
    pub evaluation: Evaluation<F>,
    /// The time that it was held, if it had to wait.
    pub wait_time: Option<Duration>,
}

/// The stages before the origin, of requests or of tunnels.
pub(super) trait PipelineStages {
    /// The facts that are evaluated.
    type Facts: EvaluationFacts;
    /// The addresses that may be dialled.
    type Addresses;
    /// The data that the stages have relied on, besides the policy.
    type Basis;
    /// The cause if there is no permit.
    type Halt;

    fn active_policy(&self) -> &ActivePolicy;

    fn admission(&self) -> &AdmissionQueue;

    /// Evaluates the policy, before anything is asked of the host.
    fn evaluate(
        &self,
        facts: Self::Facts,
        snapshot: Arc<PolicySnapshot>,
    ) -> Evaluation<Self::Facts>;

    /// Runs the stages up to the host's slot.
    async fn run(
        &self,
        evaluation: &mut Evaluation<Self::Facts>,
        arrival: &mut Option<Arrival>,
    ) -> Result<Cleared<Self::Addresses, Self::Basis>, Self::Halt>;

    /// Returns `true` if what the stages relied on is outdated.
    fn is_outdated(&self, evaluation: &Evaluation<Self::Facts>, basis: &Self::Basis) -> bool;

    /// Counts what is about to be sent.
    fn charge(
        &self,
        evaluation: &Evaluation<Self::Facts>,
        slot: &mut HostSlot,
    ) -> Result<(), Self::Halt>;
}

/// The result of the stages if none of them refuses.
pub(super) struct Cleared<V, B> {
    pub(super) addresses: V,
    pub(super) slot: HostSlot,
    pub(super) basis: B,
}

/// Runs the stages, again if the snapshot of the policy has been replaced meanwhile, or if they had to wait and relied on
/// something that is outdated now. A request that runs again keeps its place in the queue.
pub(super) fn admit<S: PipelineStages>(
    stages: &S,
    facts: S::Facts,
    snapshot: Arc<PolicySnapshot>,
) -> impl Future<Output = PipelineResult<S::Facts, S::Addresses, S::Halt>> {
    // Not an `async fn`, which would store the facts next to the evaluation that they become a part of.
    let mut evaluation = stages.evaluate(facts, snapshot);
    let mut arrival = None;
    async move {
        loop {
            let outcome = match stages.run(&mut evaluation, &mut arrival).await {
                Ok(cleared) => {
                    let newer = stages.active_policy().newer_than(evaluation.snapshot());
                    let was_held = arrival.is_some();
                    if newer.is_some()
                        || was_held && stages.is_outdated(&evaluation, &cleared.basis)
                    {
                        // The slot is returned unused.
                        drop(cleared);
                        let snapshot = newer.unwrap_or_else(|| Arc::clone(evaluation.snapshot()));
                        let times = evaluation.times();
                        let facts = evaluation.into_original_facts();
                        evaluation = stages.evaluate(facts, snapshot).with_times(times);
                        continue;
                    }
                    permit(stages, &evaluation, cleared)
                }
                Err(halt) => Err(halt),
            };
            let wait_time = arrival.map(|arrival| stages.admission().time_waited(arrival));
            return PipelineResult {
                outcome,
                evaluation,
                wait_time,
            };
        }
    }
}

type PermitResult<S> = Result<
    Permit<
        <<S as PipelineStages>::Facts as EvaluationFacts>::Target,
        <S as PipelineStages>::Addresses,
    >,
    <S as PipelineStages>::Halt,
>;

fn permit<S: PipelineStages>(
    stages: &S,
    evaluation: &Evaluation<S::Facts>,
    cleared: Cleared<S::Addresses, S::Basis>,
) -> PermitResult<S> {
    let Cleared {
        addresses,
        mut slot,
        ..
    } = cleared;
    stages.charge(evaluation, &mut slot)?;
    let target = evaluation.facts().target().clone();
    Ok(Permit::new(
        target,
        addresses,
        slot,
        evaluation.send_options(),
    ))
}

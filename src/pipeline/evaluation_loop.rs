//! The loop around the stages before the origin, for requests and for tunnels. A request that had to wait is evaluated
//! again if the inputs of the decision changed during the wait.

use std::sync::Arc;
use std::time::Duration;

use super::admission::{AdmissionQueue, Arrival, HostSlot};
use super::budget::sharing::BudgetCharge;
use super::evaluation::Evaluation;
use super::facts::EvaluationFacts;
use super::permit::Permit;
use super::snapshot::{ActivePolicy, PolicySnapshot};

/// The result of the stages before the origin. Its large parts are boxed, since it is passed on by value.
#[derive(Debug)]
pub struct PipelineResult<F: EvaluationFacts, Addresses, Error> {
    /// The permit, or the reason why the request is not sent.
    pub outcome: Result<Box<Permit<F::Target, Addresses>>, Error>,
    /// The last evaluation. Its policy is newer than at the beginning if another one took effect during the wait.
    pub evaluation: Box<Evaluation<F>>,
    /// The time that it was held, if it had to wait.
    pub wait_time: Option<Duration>,
}

/// The stages before the origin, of requests or of tunnels.
pub(super) trait PipelineStages {
    /// The facts that are evaluated.
    type Facts: EvaluationFacts;
    /// The addresses that may be dialled.
    type Addresses;
    /// The inputs of the decision besides the policy, as [`Self::run`] has read them. They may change while the request
    /// waits for its slot.
    type Inputs;
    /// The outcome of a request that gets no permit: a refusal or, for a request, another end ([`NotSent`]).
    ///
    /// [`NotSent`]: super::request::incoming::NotSent
    type Error;

    fn active_policy(&self) -> &ActivePolicy;

    fn admission(&self) -> &AdmissionQueue;

    /// Evaluates the policy, before the host is contacted.
    fn evaluate(
        &self,
        facts: Self::Facts,
        snapshot: Arc<PolicySnapshot>,
    ) -> Box<Evaluation<Self::Facts>>;

    /// Runs the stages, up to and including the acquisition of the host's slot.
    async fn run(
        &mut self,
        evaluation: &mut Evaluation<Self::Facts>,
        arrival: &mut Option<Arrival>,
    ) -> Result<StagesResult<Self::Addresses, Self::Inputs>, Self::Error>;

    /// Returns `true` if the inputs have changed since [`Self::run`] has read them.
    fn is_outdated(&self, evaluation: &Evaluation<Self::Facts>, inputs: &Self::Inputs) -> bool;

    /// Charges the request to its budgets, just before it is sent.
    fn charge(
        &self,
        evaluation: &Evaluation<Self::Facts>,
        slot: &mut HostSlot,
    ) -> Result<BudgetCharge, Self::Error>;
}

/// The result of the stages if none refuses.
pub(super) enum StagesResult<Addresses, Inputs> {
    /// The request has passed them all.
    Ready(ReadyToSend<Addresses, Inputs>),
    /// An input may have changed while it was held. It is evaluated again from the first stage.
    Repeat,
}

/// A request that passed every stage, before its permit is issued.
pub(super) struct ReadyToSend<Addresses, Inputs> {
    pub(super) addresses: Addresses,
    pub(super) slot: HostSlot,
    pub(super) inputs: Inputs,
}

/// Runs the stages until their result is up to date, and issues the permit. The stages run again if a newer policy is
/// active, if the request had to wait and other inputs have changed since, or if a stage requests it. A request that runs
/// again keeps its ticket.
///
/// A refusal is final: if the wait itself ends in one (a timeout, a full queue, a stop, the shutdown), the request is
/// not evaluated again. Under a newer policy it would still have no slot, and would have to wait once more.
pub(super) fn run_until_permitted<S: PipelineStages>(
    stages: &mut S,
    facts: S::Facts,
    snapshot: Arc<PolicySnapshot>,
) -> impl Future<Output = PipelineResult<S::Facts, S::Addresses, S::Error>> {
    // Not an `async fn`, whose future would contain the facts twice: they become a part of the evaluation.
    let mut evaluation = stages.evaluate(facts, snapshot);
    let mut arrival = None;
    async move {
        let outcome = loop {
            let snapshot = match stages.run(&mut evaluation, &mut arrival).await {
                Ok(StagesResult::Ready(ready)) => {
                    match snapshot_if_outdated(stages, &evaluation, &ready, arrival) {
                        None => match charge_and_permit(stages, &evaluation, ready) {
                            Ok(Some(permit)) => break Ok(permit),
                            Ok(None) => current_snapshot(stages, &evaluation),
                            Err(error) => break Err(error),
                        },
                        // `ready` is dropped, which returns its slot unused.
                        Some(snapshot) => snapshot,
                    }
                }
                Ok(StagesResult::Repeat) => current_snapshot(stages, &evaluation),
                Err(error) => break Err(error),
            };
            let times = evaluation.times();
            let facts = evaluation.into_original_facts();
            evaluation = stages.evaluate(facts, snapshot);
            evaluation.set_times(times);
        };
        let wait_time = arrival.map(|arrival| stages.admission().time_waited(arrival));
        PipelineResult {
            outcome,
            evaluation,
            wait_time,
        }
    }
}

/// Returns the snapshot to evaluate again with, if an input of the decision has changed.
fn snapshot_if_outdated<S: PipelineStages>(
    stages: &S,
    evaluation: &Evaluation<S::Facts>,
    ready: &ReadyToSend<S::Addresses, S::Inputs>,
    arrival: Option<Arrival>,
) -> Option<Arc<PolicySnapshot>> {
    let newer = stages.active_policy().newer_than(evaluation.snapshot());
    newer.or_else(|| {
        let is_outdated = arrival.is_some() && stages.is_outdated(evaluation, &ready.inputs);
        is_outdated.then(|| Arc::clone(evaluation.snapshot()))
    })
}

/// Returns the snapshot that is active now.
fn current_snapshot<S: PipelineStages>(
    stages: &S,
    evaluation: &Evaluation<S::Facts>,
) -> Arc<PolicySnapshot> {
    let newer = stages.active_policy().newer_than(evaluation.snapshot());
    newer.unwrap_or_else(|| Arc::clone(evaluation.snapshot()))
}

type BoxedPermit<S> = Box<
    Permit<
        <<S as PipelineStages>::Facts as EvaluationFacts>::Target,
        <S as PipelineStages>::Addresses,
    >,
>;

/// Charges the request to its budgets, and issues its permit. Returns `None`, and drops the slot, which returns it unused,
/// if the request must wait for its budget.
fn charge_and_permit<S: PipelineStages>(
    stages: &S,
    evaluation: &Evaluation<S::Facts>,
    ready: ReadyToSend<S::Addresses, S::Inputs>,
) -> Result<Option<BoxedPermit<S>>, S::Error> {
    let ReadyToSend {
        addresses,
        mut slot,
        ..
    } = ready;
    if stages.charge(evaluation, &mut slot)? == BudgetCharge::MustWait {
        return Ok(None);
    }
    let target = evaluation.facts().target().clone();
    let options = evaluation.send_options();
    Ok(Some(Box::new(Permit::new(
        target, addresses, slot, options,
    ))))
}

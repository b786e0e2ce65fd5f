//! From a request to a permit: the stages before the origin, in their order.
//!
//! `identify → target → evaluate → ledger lookup → rewrite → budget → recrawl interval → destination → robots →
//! pace → permit`. Stages that are cheap and use no shared state come first: a URL that the policy rejects
//! costs no name lookup and no slot of its host.

pub mod dry_run;
mod incoming;

use std::sync::Arc;

use super::admission::{AdmissionQueue, Arrival, HostSlot};
use super::budget::sharing::BudgetCharge;
use super::destination::{AddressList, DestinationResolver};
use super::evaluation::Evaluation;
use super::evaluation_loop::{
    PipelineResult, PipelineStages, ReadyToSend, StagesResult, run_until_permitted,
};
use super::facts::RequestFacts;
use super::refusal::Refusal;
use super::robots_fetch::RobotsProvider;
use super::snapshot::{ActivePolicy, PolicySnapshot};
use super::stage::pace::{RequestPacing, WaitContext};
use super::stage::request::PolicyVerdict;
use super::stage::robots::{RobotsAllowance, RobotsVerdict};
use super::stage::{budget, destination, ledger, pace, request, robots, stop};
pub use crate::store::ledger::Ledger;

pub use incoming::{IncomingBody, IncomingRequest, NotSent};

/// A request that has been through the stages before the origin.
pub type RequestResult<Addresses> = PipelineResult<RequestFacts, Addresses, NotSent>;

/// The services that the stages use.
pub struct RequestServices<'a, D, R> {
    /// Resolves names.
    pub destinations: &'a D,
    /// Knows the robots.txt of hosts.
    pub robots: &'a R,
    /// The active policy, read again after a wait.
    pub active_policy: &'a ActivePolicy,
    /// Where requests wait for their host.
    pub admission: &'a Arc<AdmissionQueue>,
    /// The ledger, if there is one.
    pub ledger: Option<&'a Ledger>,
}

/// Takes a request through the stages before the origin. It is evaluated again if
///
/// - the policy has changed while it waited for a name, for robots.txt or for its host,
/// - the ledger or robots.txt has changed while it was held,
/// - robots.txt could not be fetched and is fetched again.
///
/// # Errors
/// The refusal of a request whose crawler or URL cannot be determined; the policy is not evaluated.
pub async fn admit_request<
    I: IncomingRequest,
    B: IncomingBody,
    D: DestinationResolver,
    R: RobotsProvider,
>(
    request: &mut I,
    body: &mut B,
    snapshot: Arc<PolicySnapshot>,
    services: &RequestServices<'_, D, R>,
) -> Result<RequestResult<D::Addresses>, Box<Refusal>> {
    let crawler = request.identify().await?;
    let target = request.target()?;
    let facts = request.facts(target, crawler);
    let profile = || request.profile();
    let wait = WaitContext {
        admission: services.admission,
        active_policy: services.active_policy,
        profile: &profile,
    };
    let mut stages = RequestStages {
        body,
        services,
        wait,
    };
    let result = run_until_permitted(&mut stages, facts, snapshot).await;
    if result.evaluation.lacks_depth() {
        result.evaluation.snapshot().counters.record_unknown_depth();
    }
    Ok(result)
}

struct RequestStages<'a, B, D, R> {
    body: &'a mut B,
    services: &'a RequestServices<'a, D, R>,
    wait: WaitContext<'a>,
}

impl<B, D: DestinationResolver, R: RobotsProvider> RequestStages<'_, B, D, R> {
    /// Evaluates the rules on a URL, with its record in the ledger. The rules come first since
    /// they determine the form of the URL under which the ledger has it.
    fn evaluate_url(&self, facts: RequestFacts, snapshot: Arc<PolicySnapshot>) -> Box<Evaluation> {
        let mut evaluation = Box::new(Evaluation::new(facts, snapshot));
        let lookup = ledger::look_up(&evaluation, self.services.ledger, self.services.admission);
        if lookup.is_some_and(|lookup| evaluation.add_ledger_lookup(lookup)) {
            evaluation.evaluate_again();
        }
        evaluation
    }

    /// Runs the stages before the host's addresses are needed.
    fn check_before_addresses(&self, evaluation: &mut Evaluation) -> Result<(), Box<Refusal>> {
        let RequestServices {
            robots, admission, ..
        } = *self.services;
        match request::check(evaluation)? {
            PolicyVerdict::Admitted => {}
            PolicyVerdict::RobotsTxtExempt => evaluation.exempt_robots_txt(),
            PolicyVerdict::HostRefused(refusal, intent) => {
                let refusal = robots::refuse_whole_host(evaluation, robots, *refusal, intent);
                return Err(Box::new(refusal));
            }
        }
        budget::check_remaining(evaluation, admission)?;
        ledger::check_recrawl_interval(evaluation, admission)
    }

    /// Runs the stage on the host's addresses, of which those that the policy rejects are dropped.
    fn check_addresses(
        &self,
        evaluation: &mut Evaluation,
        addresses: &mut D::Addresses,
    ) -> Result<(), Box<Refusal>> {
        evaluation.add_lookup_time(addresses.lookup_time());
        if evaluation.has_address_shadows() {
            evaluation.evaluate_address_shadows(&destination::all_addresses(addresses));
        }
        if let Some(decision) = destination::evaluate(evaluation, addresses) {
            evaluation.set_decision(decision);
            evaluation.ensure_admitted()?;
        }
        evaluation.add_address(addresses.first());
        destination::check_reachable(evaluation, self.services.destinations, addresses)
    }
}

impl<B: IncomingBody, D: DestinationResolver, R: RobotsProvider> PipelineStages
    for RequestStages<'_, B, D, R>
{
    type Facts = RequestFacts;
    type Addresses = D::Addresses;
    type Inputs = RobotsAllowance;
    type Error = NotSent;

    fn active_policy(&self) -> &ActivePolicy {
        self.services.active_policy
    }

    fn admission(&self) -> &AdmissionQueue {
        self.services.admission
    }

    /// A URL that is fetched instead of the requested one is evaluated as well, and not rewritten again.
    fn evaluate(&self, facts: RequestFacts, snapshot: Arc<PolicySnapshot>) -> Box<Evaluation> {
        let year = request::year(&snapshot, self.services.admission);
        let evaluation = self.evaluate_url(facts.with_year(year), snapshot);
        match request::rewritten_target(&evaluation) {
            Some(target) => {
                let snapshot = Arc::clone(evaluation.snapshot());
                let original = evaluation.into_original_facts();
                self.evaluate_url(original.with_rewritten_target(target), snapshot)
            }
            None => evaluation,
        }
    }

    async fn run(
        &mut self,
        evaluation: &mut Evaluation,
        arrival: &mut Option<Arrival>,
    ) -> Result<StagesResult<D::Addresses, RobotsAllowance>, NotSent> {
        let RequestServices {
            destinations,
            robots,
            admission,
            ..
        } = *self.services;
        if ledger::records_without_ledger_policy(evaluation)
            && let Some(ledger) = self.services.ledger
        {
            // Written in one expression: variables would make each request's future larger.
            Box::pin(ledger.wait_if_full()).await;
        }
        self.check_before_addresses(evaluation)?;
        let mut addresses = destination::resolve(evaluation, destinations).await?;
        self.check_addresses(evaluation, &mut addresses)?;
        if let Some(known) = stop::robots_txt_while_stopped(evaluation, robots, admission) {
            // Not a refusal, but nothing is sent either.
            return Err(NotSent::ServeRobots(known));
        }
        stop::wait_before_robots(evaluation, robots, &self.wait, arrival).await?;
        if arrival.is_some()
            && self
                .active_policy()
                .newer_than(evaluation.snapshot())
                .is_some()
        {
            // The new policy may refuse the host, whose robots.txt is then not fetched.
            return Ok(StagesResult::Repeat);
        }
        let robots_txt = robots::evaluate(evaluation, robots, &self.wait, arrival).await;
        evaluation.add_robots(robots_txt.terms, robots_txt.fetch_time);
        let verdict = robots_txt.verdict.map_err(|mut refusal| {
            refusal.add_origin_address(addresses.first());
            refusal
        });
        let allowance = match verdict? {
            RobotsVerdict::Allow(allowance) => allowance,
            RobotsVerdict::Serve(state) => return Err(NotSent::ServeRobots(state)),
            RobotsVerdict::Repeat => return Ok(StagesResult::Repeat),
        };
        let read_ahead = self.body.read_ahead(evaluation.body_timeouts()).await;
        read_ahead.map_err(|error| match error {
            NotSent::Refuse(refusal) => NotSent::Refuse(evaluation.refuse(*refusal)),
            NotSent::ServeRobots(_) | NotSent::ClientLeft => error,
        })?;
        budget::wait_for_share(evaluation, &self.wait, *arrival).await?;
        let pacing = RequestPacing::new(evaluation, allowance.spacing, &self.wait);
        let slot = pace::acquire_slot(&pacing, &addresses, admission, arrival).await?;
        if arrival.is_some() {
            // Another request may meanwhile have found that the host refuses connections.
            destination::check_reachable(evaluation, destinations, &addresses)?;
        }
        Ok(StagesResult::Ready(ReadyToSend {
            addresses,
            slot,
            inputs: allowance,
        }))
    }

    fn is_outdated(&self, evaluation: &Evaluation, allowance: &RobotsAllowance) -> bool {
        allowance.is_outdated(evaluation, self.services.robots) || ledger::is_outdated(evaluation)
    }

    fn charge(
        &self,
        evaluation: &Evaluation,
        slot: &mut HostSlot,
    ) -> Result<BudgetCharge, NotSent> {
        Ok(budget::spend(evaluation, self.services.admission, slot)?)
    }
}

//! From a request to a permit: the stages before the origin, in their order.
//!
//! `identify → target → evaluate → recall → rewrite → budget → recrawl interval → destination → robots →
//! pace → permit`. Cheap and certain stages come first, shared state last: a URL that the policy rejects costs no
//! name lookup and no slot of its host.

use std::sync::Arc;

use super::admission::{AdmissionQueue, Arrival, HostSlot};
use super::destination::{AddressList, DestinationResolver};
use super::evaluation::Evaluation;
use super::evaluation_loop::{
    PipelineResult, PipelineStages, ReadyToSend, StagesResult, run_until_permitted,
};
use super::facts::RequestFacts;
use super::permit::BodyTimeouts;
use super::refusal::Refusal;
use super::robots_fetch::RobotsProvider;
use super::snapshot::{ActivePolicy, PolicySnapshot};
use super::stage::pace::{RequestPacing, WaitContext};
use super::stage::request::PolicyVerdict;
use super::stage::robots::{RobotsAllowance, RobotsVerdict};
use super::stage::{budget, destination, ledger, pace, request, robots, stop};
use crate::model::crawler::Crawler;
use crate::model::profile::Profile;
use crate::robots::state::RobotsState;
pub use crate::store::ledger::Ledger;
use crate::urls::target::UrlTarget;

/// A request as it arrives. The proxy provides the data of the connection, in the order in which the pipeline needs it.
pub trait IncomingRequest: Send + Sync {
    /// Finds out which crawler sends the request.
    fn identify(&mut self) -> impl Future<Output = Result<Crawler, Box<Refusal>>> + Send;
    /// Reads the URL that the request is for.
    ///
    /// # Errors
    /// The refusal of a request that the proxy cannot forward.
    fn target(&mut self) -> Result<UrlTarget, Box<Refusal>>;
    /// Reads the facts of the request.
    fn facts(&self, target: UrlTarget, crawler: Crawler) -> RequestFacts;
    /// Returns the profile of the crawler, needed only for requests that have to wait.
    fn profile(&self) -> Profile;
}

/// The body of a request.
pub trait IncomingBody: Send {
    /// Reads the beginning of the body, with these timeouts, before the request takes a slot of its
    /// host: a client that sends slowly must not hold one meanwhile. May be called more than once.
    ///
    /// # Errors
    /// The refusal, if no valid body arrives in time.
    fn read_ahead(
        &mut self,
        timeouts: BodyTimeouts,
    ) -> impl Future<Output = Result<(), NotForwarded>> + Send;
}

/// A request without a body.
impl IncomingBody for () {
    async fn read_ahead(&mut self, _timeouts: BodyTimeouts) -> Result<(), NotForwarded> {
        Ok(())
    }
}

/// The cause if a request is not sent to its origin.
#[derive(Debug)]
pub enum NotForwarded {
    /// The proxy responds with its copy of the host's robots.txt.
    ServeRobots(Arc<RobotsState>),
    /// The proxy refuses it.
    Refuse(Box<Refusal>),
    /// The client has left in the middle of its body.
    ClientLeft,
}

impl From<Box<Refusal>> for NotForwarded {
    fn from(refusal: Box<Refusal>) -> Self {
        Self::Refuse(refusal)
    }
}

/// A request that has been through the stages before the origin.
pub type RequestResult<V> = PipelineResult<RequestFacts, V, NotForwarded>;

/// The services that the stages use.
pub struct RequestServices<'a, D, R> {
    /// Resolves names.
    pub destinations: &'a D,
    /// Knows the robots.txt of hosts.
    pub robots: &'a R,
    /// The policy in effect after a wait.
    pub active_policy: &'a ActivePolicy,
    /// Where requests wait for their host.
    pub admission: &'a Arc<AdmissionQueue>,
    /// The ledger, if there is one.
    pub ledger: Option<&'a Ledger>,
}

/// Takes a request through the stages before the origin. It is evaluated again if the policy has changed while it waited
/// for a name, for robots.txt or for its host, if the ledger or robots.txt has changed while it was held, or if robots.txt
/// could not be fetched and is fetched again.
///
/// # Errors
/// The refusal of a request without a crawler or a target, which the policy does not see.
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
    /// Evaluates the rules on a URL, with its record in the ledger. The rules come first since they choose the
    /// form of the URL that the ledger knows.
    fn evaluate_url(&self, facts: RequestFacts, snapshot: Arc<PolicySnapshot>) -> Evaluation {
        let mut evaluation = Evaluation::new(facts, snapshot);
        let recall = ledger::recall(&evaluation, self.services.ledger, self.services.admission);
        if recall.is_some_and(|recall| evaluation.add_ledger_recall(recall)) {
            evaluation.evaluate_again();
        }
        evaluation
    }
}

impl<B: IncomingBody, D: DestinationResolver, R: RobotsProvider> PipelineStages
    for RequestStages<'_, B, D, R>
{
    type Facts = RequestFacts;
    type Addresses = D::Addresses;
    type Inputs = RobotsAllowance;
    type Error = NotForwarded;

    fn active_policy(&self) -> &ActivePolicy {
        self.services.active_policy
    }

    fn admission(&self) -> &AdmissionQueue {
        self.services.admission
    }

    /// A URL that is fetched instead of the requested one is evaluated as well, and not rewritten again.
    fn evaluate(&self, facts: RequestFacts, snapshot: Arc<PolicySnapshot>) -> Evaluation {
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
    ) -> Result<StagesResult<D::Addresses, RobotsAllowance>, NotForwarded> {
        let RequestServices {
            destinations,
            robots,
            admission,
            ..
        } = *self.services;
        if ledger::is_exceptional(evaluation)
            && let Some(ledger) = self.services.ledger
        {
            // Not in variables: these would make each request's future larger.
            Box::pin(ledger.wait_if_full()).await;
        }
        match request::check(evaluation)? {
            PolicyVerdict::Admitted => {}
            PolicyVerdict::RobotsTxtExempt => evaluation.exempt_robots_txt(),
            PolicyVerdict::HostRefused(refusal, intent) => {
                let refusal = robots::refuse_whole_host(evaluation, robots, *refusal, intent);
                return Err(NotForwarded::Refuse(Box::new(refusal)));
            }
        }
        budget::check_remaining(evaluation, admission)?;
        ledger::check_recrawl_interval(evaluation, admission)?;
        let mut addresses = destination::resolve(evaluation, destinations).await?;
        evaluation.add_lookup_time(addresses.lookup_time());
        if evaluation.has_address_shadows() {
            evaluation.evaluate_address_shadows(&destination::all_addresses(&mut addresses));
        }
        if let Some(decision) = destination::evaluate(evaluation, &mut addresses) {
            evaluation.set_decision(decision);
            evaluation.ensure_admitted()?;
        }
        evaluation.add_address(addresses.first());
        destination::check_reachable(evaluation, destinations, &addresses)?;
        if let Some(known) = stop::robots_txt_while_stopped(evaluation, robots, admission) {
            return Err(NotForwarded::ServeRobots(known));
        }
        stop::wait_before_robots(evaluation, robots, &self.wait, arrival).await?;
        let robots_txt = robots::evaluate(evaluation, robots, &self.wait, arrival).await;
        evaluation.add_robots(robots_txt.usage, robots_txt.fetch_time);
        let verdict = robots_txt.verdict.map_err(|mut refusal| {
            refusal.add_origin_address(addresses.first());
            refusal
        });
        let allowance = match verdict? {
            RobotsVerdict::Allow(allowance) => allowance,
            RobotsVerdict::Serve(state) => return Err(NotForwarded::ServeRobots(state)),
            RobotsVerdict::Repeat => return Ok(StagesResult::Repeat),
        };
        let read = self.body.read_ahead(evaluation.body_timeouts()).await;
        read.map_err(|error| match error {
            NotForwarded::Refuse(refusal) => NotForwarded::Refuse(evaluation.refuse(*refusal)),
            NotForwarded::ServeRobots(_) | NotForwarded::ClientLeft => error,
        })?;
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

    fn charge(&self, evaluation: &Evaluation, slot: &mut HostSlot) -> Result<(), NotForwarded> {
        Ok(budget::spend(evaluation, self.services.admission, slot)?)
    }
}

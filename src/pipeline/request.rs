//! From a request to a permit: the stages before the origin, in their order.

use std::sync::Arc;
use std::time::Duration;

use super::admission::{Arrival, HostSlot};
use super::destination::{AddressList, DestinationResolver};
use super::evaluation::{Evaluation, RequestFacts};
use super::permit::{Permit, SendOptions};
use super::refusal::{Refusal, RefusalForm};
use super::robots_fetch::RobotsProvider;
use super::snapshot::{ActivePolicy, PolicySnapshot};
use super::stage::ledger::LedgerContext;
pub use super::stage::pace::WaitContext;
use super::stage::{budget, destination, ledger, pace, robots, scope, stop};
use crate::robots::state::RobotsState;
pub use crate::store::ledger::Ledger;

/// What becomes of a request before any byte of it is sent.
#[derive(Debug)]
#[must_use]
pub enum RequestOutcome<V> {
    /// It may be sent.
    Forward(Permit<V>),
    /// The proxy answers it with what it knows of the host's robots.txt.
    ServeRobots(Arc<RobotsState>),
    /// The proxy refuses it.
    Refuse(Box<Refusal>),
}

/// A request that has been through the stages before the origin.
#[derive(Debug)]
pub struct RequestResult<V> {
    /// What becomes of it.
    pub outcome: RequestOutcome<V>,
    /// Its judgement so far; under a newer policy than it began with if that came into force while it waited.
    pub evaluation: Evaluation,
    /// For how long it was held, if it had to wait.
    pub wait_time: Option<Duration>,
}

/// What the stages ask.
pub struct RequestServices<'a, D, R> {
    /// Addresses for names.
    pub destinations: &'a D,
    /// Hosts' robots.txt.
    pub robots: &'a R,
    /// The policy that is in force once a hold is over.
    pub active_policy: &'a ActivePolicy,
    /// Where requests wait for their turn.
    pub wait: WaitContext<'a>,
    /// What is remembered of URLs, if anything is.
    pub ledger: Option<&'a Ledger>,
}

impl<D, R> RequestServices<'_, D, R> {
    fn ledger_context(&self) -> LedgerContext<'_> {
        LedgerContext {
            ledger: self.ledger,
            admission: self.wait.admission,
        }
    }
}

/// Takes a request through the stages before the origin.
///
/// Cheap and certain first, shared state last: a URL that the policy rejects costs no look-up of a name, and no turn of
/// its host. If the policy has changed while the request waited, for its turn, for a name or for robots.txt, it is judged
/// again; so it is if the host's robots.txt, or the URL itself, has been fetched anew while it waited for its turn.
pub fn admit_request<D: DestinationResolver, R: RobotsProvider>(
    request_facts: RequestFacts,
    snapshot: Arc<PolicySnapshot>,
    services: &RequestServices<'_, D, R>,
) -> impl Future<Output = RequestResult<D::Addresses>> {
    // No `async fn`: that would keep the facts beside the judgement that they become a part of.
    let (mut judged, mut arrival) = (
        scope::evaluate(request_facts, snapshot, services.ledger_context()),
        None,
    );
    async move {
        loop {
            let outcome = match run_stages(&mut judged, services, &mut arrival).await {
                Ok(RequestStageResult::ServeRobots(known)) => RequestOutcome::ServeRobots(known),
                Ok(RequestStageResult::Passed(vetted, mut slot, going)) => {
                    let newer = services.active_policy.newer_than(&judged.snapshot);
                    let outdated = || {
                        going.is_outdated(&judged, services.robots) || ledger::is_outdated(&judged)
                    };
                    if newer.is_some() || arrival.is_some() && outdated() {
                        // Its slot goes back unused; its place in the queue it keeps.
                        drop(slot);
                        let snapshot = newer.unwrap_or(judged.snapshot);
                        let (found_in, fetched_in) = (judged.lookup_time, judged.robots_fetch_time);
                        let asked = ledger::original_facts(judged.facts, judged.ledger_entry);
                        judged = Evaluation {
                            lookup_time: found_in,
                            robots_fetch_time: fetched_in,
                            ..scope::evaluate(asked, snapshot, services.ledger_context())
                        };
                        continue;
                    }
                    match budget::spend(&judged, services.wait.admission, &mut slot) {
                        Ok(()) => {
                            let manner = SendOptions {
                                verify: judged.verify(),
                                timeouts: judged.timeouts(),
                            };
                            RequestOutcome::Forward(Permit::new(
                                judged.facts.target.clone(),
                                vetted,
                                slot,
                                manner,
                            ))
                        }
                        Err(refusal) => RequestOutcome::Refuse(refusal),
                    }
                }
                Err(refusal) => RequestOutcome::Refuse(refusal),
            };
            let held = arrival.map(|arrival| services.wait.admission.time_waited(arrival));
            return RequestResult {
                outcome,
                evaluation: judged,
                wait_time: held,
            };
        }
    }
}

async fn run_stages<D: DestinationResolver, R: RobotsProvider>(
    evaluation: &mut Evaluation,
    services: &RequestServices<'_, D, R>,
    arrival: &mut Option<Arrival>,
) -> Result<RequestStageResult<D::Addresses>, Box<Refusal>> {
    if let Err(refusal) = evaluation.ensure_admitted() {
        match scope::robots_txt_handling(evaluation) {
            scope::RobotsTxtHandling::NotRequested => return Err(refusal),
            scope::RobotsTxtHandling::HostRefused => {
                return Err(Box::new(Refusal {
                    form: RefusalForm::RobotsTxt,
                    ..*refusal
                }));
            }
            scope::RobotsTxtHandling::Exempt => evaluation.exempt_robots_txt(),
        }
    }
    budget::check_remaining(evaluation, services.wait.admission)?;
    ledger::check_recrawl_interval(evaluation, services.wait.admission)?;
    let vetted = services
        .destinations
        .vet(&evaluation.facts.target)
        .await
        .map_err(Refusal::from);
    let mut vetted = vetted.map_err(|refusal| Refusal {
        url_detail: evaluation.url_detail(refusal.stage),
        ..refusal
    })?;
    evaluation.lookup_time = vetted.lookup_time().or(evaluation.lookup_time);
    destination::evaluate(evaluation, &mut vetted)?;
    ledger::set_address(evaluation, &vetted);
    destination::check_reachable(evaluation, services.destinations, &vetted)?;
    stop::wait_before_robots(evaluation, services.robots, &services.wait, arrival).await?;
    let going = match robots::evaluate(evaluation, services.robots, services.wait.admission).await?
    {
        robots::RobotsVerdict::Allow(going) => going,
        robots::RobotsVerdict::Serve(known) => return Ok(RequestStageResult::ServeRobots(known)),
    };
    let slot =
        pace::acquire_slot(evaluation, &vetted, going.spacing, &services.wait, arrival).await?;
    if arrival.is_some() {
        // Somebody may have found meanwhile that the host refuses connections.
        destination::check_reachable(evaluation, services.destinations, &vetted)?;
    }
    Ok(RequestStageResult::Passed(vetted, slot, going))
}

/// What the stages came to.
enum RequestStageResult<V> {
    Passed(V, HostSlot, robots::RobotsAllowance),
    ServeRobots(Arc<RobotsState>),
}

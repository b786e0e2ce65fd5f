//! From a request to a permit: the stages before the origin, in their order.

use std::sync::Arc;
use std::time::Duration;

use super::destination::{Addresses, Destinations};
use super::hold::{Arrival, Slot};
use super::judged::{Asked, Judged};
use super::permit::{Manner, Permit};
use super::refusal::{Form, Refusal};
use super::robots::RobotsFiles;
use super::snapshot::{InForce, Snapshot};
use super::stage::ledger::Past;
pub use super::stage::pace::Waits;
use super::stage::{budget, destination, ledger, pace, robots, scope, stop};
use crate::robots::standing::Known;
pub use crate::store::ledger::Ledger;

/// What becomes of a request before any byte of it is sent.
#[derive(Debug)]
#[must_use]
pub enum Outcome<V> {
    /// It may be sent.
    Forward(Permit<V>),
    /// The proxy answers it with what it knows of the host's robots.txt.
    Robots(Arc<Known>),
    /// The proxy refuses it.
    Answer(Box<Refusal>),
}

/// A request that has been through the stages before the origin.
#[derive(Debug)]
pub struct Passage<V, C> {
    /// What becomes of it.
    pub outcome: Outcome<V>,
    /// Its judgement so far; under a newer policy than it began with if that came into force while it waited.
    pub judged: Judged<C>,
    /// For how long it was held, if it had to wait.
    pub held: Option<Duration>,
}

/// What the stages ask.
pub struct Way<'a, D, R, C> {
    /// Addresses for names.
    pub destinations: &'a D,
    /// Hosts' robots.txt.
    pub robots: &'a R,
    /// The policy that is in force once a hold is over.
    pub in_force: &'a InForce<C>,
    /// Where requests wait for their turn.
    pub waits: Waits<'a>,
    /// What is remembered of URLs, if anything is.
    pub ledger: Option<&'a Ledger>,
}

impl<D, R, C> Way<'_, D, R, C> {
    fn past(&self) -> Past<'_> {
        Past {
            ledger: self.ledger,
            hold: self.waits.hold,
        }
    }
}

/// Takes a request through the stages before the origin.
///
/// Cheap and certain first, shared state last: a URL that the policy rejects costs no look-up of a name, and no turn of
/// its host. If the policy has changed while the request waited, for its turn, for a name or for robots.txt, it is judged
/// again; so it is if the host's robots.txt, or the URL itself, has been fetched anew while it waited for its turn.
pub fn request<D: Destinations, R: RobotsFiles, C>(
    asked: Asked,
    snapshot: Arc<Snapshot<C>>,
    way: &Way<'_, D, R, C>,
) -> impl Future<Output = Passage<D::Vetted, C>> {
    // No `async fn`: that would keep the facts beside the judgement that they become a part of.
    let (mut judged, mut arrival) = (scope::judge(asked, snapshot, way.past()), None);
    async move {
        loop {
            let outcome = match stages(&mut judged, way, &mut arrival).await {
                Ok(Passed::Robots(known)) => Outcome::Robots(known),
                Ok(Passed::All(vetted, mut slot, going)) => {
                    let newer = way.in_force.newer(&judged.snapshot);
                    let outdated =
                        || going.is_outdated(&judged, way.robots) || ledger::is_outdated(&judged);
                    if newer.is_some() || arrival.is_some() && outdated() {
                        // Its slot goes back unused; its place in the queue it keeps.
                        drop(slot);
                        let snapshot = newer.unwrap_or(judged.snapshot);
                        let (found_in, fetched_in) = (judged.found_in, judged.fetched_in);
                        let asked = ledger::forgotten(judged.asked, judged.recalled);
                        judged = Judged {
                            found_in,
                            fetched_in,
                            ..scope::judge(asked, snapshot, way.past())
                        };
                        continue;
                    }
                    match budget::spend(&judged, way.waits.hold, &mut slot) {
                        Ok(()) => {
                            let manner = Manner {
                                verify: judged.verify(),
                                timeouts: judged.timeouts(),
                            };
                            Outcome::Forward(Permit::new(
                                judged.asked.target.clone(),
                                vetted,
                                slot,
                                manner,
                            ))
                        }
                        Err(refusal) => Outcome::Answer(refusal),
                    }
                }
                Err(refusal) => Outcome::Answer(refusal),
            };
            let held = arrival.map(|arrival| way.waits.hold.since(arrival));
            return Passage {
                outcome,
                judged,
                held,
            };
        }
    }
}

async fn stages<D: Destinations, R: RobotsFiles, C>(
    judged: &mut Judged<C>,
    way: &Way<'_, D, R, C>,
    arrival: &mut Option<Arrival>,
) -> Result<Passed<D::Vetted>, Box<Refusal>> {
    if let Err(refusal) = judged.verdict() {
        match scope::robots_txt(judged) {
            scope::RobotsTxt::NotAsked => return Err(refusal),
            scope::RobotsTxt::HostRefused => {
                return Err(Box::new(Refusal {
                    form: Form::RobotsTxt,
                    ..*refusal
                }));
            }
            scope::RobotsTxt::Exempt => judged.exempt(),
        }
    }
    budget::is_left(judged, way.waits.hold)?;
    ledger::premature(judged, way.waits.hold)?;
    let vetted = way
        .destinations
        .vet(&judged.asked.target)
        .await
        .map_err(Refusal::from);
    let mut vetted = vetted.map_err(|refusal| Refusal {
        keep: judged.keep(refusal.stage),
        ..refusal
    })?;
    judged.found_in = vetted.found_in().or(judged.found_in);
    destination::judge(judged, &mut vetted)?;
    ledger::goes_to(judged, &vetted);
    destination::answers(judged, way.destinations, &vetted)?;
    stop::before_robots(judged, way.robots, &way.waits, arrival).await?;
    let going = match robots::judge(judged, way.robots, way.waits.hold).await? {
        robots::Ruled::Go(going) => going,
        robots::Ruled::Serve(known) => return Ok(Passed::Robots(known)),
    };
    let slot = pace::hold(judged, &vetted, going.spacing, &way.waits, arrival).await?;
    if arrival.is_some() {
        // Somebody may have found meanwhile that the host refuses connections.
        destination::answers(judged, way.destinations, &vetted)?;
    }
    Ok(Passed::All(vetted, slot, going))
}

/// What the stages came to.
enum Passed<V> {
    All(V, Slot, robots::Going),
    Robots(Arc<Known>),
}

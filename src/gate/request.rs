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
pub use super::stage::pace::Waits;
use super::stage::{destination, pace, robots, scope};
use crate::robots::standing::Known;

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
}

/// Takes a request through the stages before the origin.
///
/// Cheap and certain first, shared state last: a URL that the policy rejects costs no look-up of a name, and no turn of
/// its host. If the policy has changed while the request waited, for its turn, for a name or for robots.txt, it is judged
/// again.
pub async fn request<D: Destinations, R: RobotsFiles, C>(
    asked: Asked,
    snapshot: Arc<Snapshot<C>>,
    way: &Way<'_, D, R, C>,
) -> Passage<D::Vetted, C> {
    let (mut judged, mut arrival) = (scope::judge(asked, snapshot), None);
    loop {
        let outcome = match stages(&mut judged, way, &mut arrival).await {
            Ok(Passed::Robots(known)) => Outcome::Robots(known),
            Ok(Passed::All(vetted, slot)) => {
                if let Some(newer) = way.in_force.newer(&judged.snapshot) {
                    // Its slot goes back unused; its place in the queue it keeps.
                    drop(slot);
                    judged = scope::judge(judged.asked, newer);
                    continue;
                }
                let manner = Manner { verify: judged.verify(), timeouts: judged.timeouts() };
                Outcome::Forward(Permit::new(judged.asked.target.clone(), vetted, slot, manner))
            }
            Err(refusal) => Outcome::Answer(refusal),
        };
        return Passage { outcome, judged, held: arrival.map(|arrival| way.waits.hold.since(arrival)) };
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
                return Err(Box::new(Refusal { form: Form::RobotsTxt, ..*refusal }));
            }
            scope::RobotsTxt::Exempt => judged.exempt(),
        }
    }
    let vetted = way.destinations.vet(&judged.asked.target).await.map_err(Refusal::from);
    let mut vetted = vetted.map_err(|refusal| Refusal { keep: judged.keep(refusal.stage), ..refusal })?;
    judged.found_in = vetted.found_in();
    destination::judge(judged, &mut vetted)?;
    let crawl_delay = match robots::judge(judged, way.robots, way.waits.hold).await? {
        robots::Ruled::Go(crawl_delay) => crawl_delay,
        robots::Ruled::Serve(known) => return Ok(Passed::Robots(known)),
    };
    let slot = pace::hold(judged, &vetted, crawl_delay, &way.waits, arrival).await?;
    Ok(Passed::All(vetted, slot))
}

/// What the stages came to.
enum Passed<V> {
    All(V, Slot),
    Robots(Arc<Known>),
}

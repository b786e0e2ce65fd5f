//! From a request to a permit: the stages before the origin, in their order.

use std::sync::Arc;

use super::destination::Destinations;
use super::judged::{Asked, Judged};
use super::permit::Permit;
use super::refusal::{Form, Refusal};
use super::snapshot::Snapshot;
use super::stage::{destination, scope};

/// What becomes of a request before any byte of it is sent.
#[derive(Debug)]
#[must_use]
pub enum Outcome<V> {
    /// It may be sent.
    Forward(Permit<V>),
    /// The proxy answers it.
    Answer(Box<Refusal>),
}

/// A request that has been through the stages before the origin.
#[derive(Debug)]
pub struct Passage<V, C> {
    /// What becomes of it.
    pub outcome: Outcome<V>,
    /// Its judgement so far.
    pub judged: Judged<C>,
}

/// Takes a request through the stages before the origin.
///
/// Cheap and certain first, shared state last: a URL that the policy rejects costs no look-up of a name.
pub async fn request<D: Destinations, C>(
    asked: Asked,
    snapshot: Arc<Snapshot<C>>,
    destinations: &D,
) -> Passage<D::Vetted, C> {
    let mut judged = scope::judge(asked, snapshot);
    let outcome = match stages(&mut judged, destinations).await {
        Ok(vetted) => Outcome::Forward(Permit::new(judged.asked.target.clone(), vetted)),
        Err(refusal) => Outcome::Answer(refusal),
    };
    Passage { outcome, judged }
}

async fn stages<D: Destinations, C>(
    judged: &mut Judged<C>,
    destinations: &D,
) -> Result<D::Vetted, Box<Refusal>> {
    if let Err(refusal) = judged.verdict() {
        match scope::robots_txt(judged) {
            scope::RobotsTxt::NotAsked => return Err(refusal),
            scope::RobotsTxt::HostRefused => {
                return Err(Box::new(Refusal { form: Form::RobotsTxt, ..*refusal }));
            }
            scope::RobotsTxt::Exempt => judged.exempt(),
        }
    }
    let vetted = destinations.vet(&judged.asked.target).await.map_err(Refusal::from);
    let mut vetted = vetted.map_err(|refusal| Refusal { keep: judged.keep(refusal.stage), ..refusal })?;
    destination::judge(judged, &mut vetted)?;
    Ok(vetted)
}

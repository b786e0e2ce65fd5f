//! Pace: the last stage before the origin. The policy's politeness, and the wait that it asks for.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::gate::destination::Addresses;
use crate::gate::hold::{Arrival, Asking, Hold, SentAway, Slot};
use crate::gate::judged::{Asked, Judged};
use crate::gate::refusal::Refusal;
use crate::policy::fact::Dest;
use crate::policy::options::politeness::{PaceKey, Politeness};
use crate::politeness::pace::{Class, Jitter, LONGEST, Pace, Rate};
use crate::store::Key;
use crate::vocab::crawler::May;
use crate::vocab::domain::registrable;
use crate::vocab::profile::Profile;
use crate::vocab::stage::Stage;

/// What a wait needs to know beside the request.
pub struct Waits<'a> {
    /// Where requests wait.
    pub hold: &'a Arc<Hold>,
    /// The crawler's profile: asked only for requests that have to wait.
    pub profile: &'a (dyn Fn() -> Profile + Send + Sync),
}

/// Waits for the host's turn. `crawl_delay` is what its robots.txt asks for; `arrival` is when the request first had
/// to wait, if it was judged before.
pub(in crate::gate) async fn hold<C>(
    judged: &Judged<C>,
    vetted: &impl Addresses,
    crawl_delay: Option<Duration>,
    waits: &Waits<'_>,
    arrival: &mut Option<Arrival>,
) -> Result<Slot, Box<Refusal>> {
    let politeness = Politeness::of(judged.policy(), &judged.trail);
    let asked = &judged.asked;
    let class = class(asked);
    let address = if politeness.key() == PaceKey::Address { vetted.first() } else { None };
    let address = address.as_ref().map(IpAddr::to_string);
    let name = match (politeness.key(), &address) {
        (PaceKey::Address, Some(address)) => address,
        (PaceKey::RegistrableDomain, _) => registrable(&asked.target),
        (PaceKey::Host | PaceKey::Address, _) => asked.target.host(),
    };
    let asking = Asking {
        key: Key { name, class },
        pace: pace(&politeness, class, crawl_delay),
        overflow: politeness.overflow(),
        crawler: &asked.crawler,
    };
    let patience = || {
        let max_hold = politeness.max_hold().unwrap_or_else(|| (waits.profile)().max_hold());
        patience(max_hold, asked, waits.hold.longest())
    };
    waits.hold.admit(&asking, arrival, patience).await.map_err(|away| Box::new(refusal(judged, away)))
}

fn class(asked: &Asked) -> Class {
    match asked.facts().dest {
        Some(Dest::Embed) => Class::Embed,
        Some(Dest::Navigation) | None => Class::Navigation,
    }
}

/// The limits of the class. A Crawl-delay is about pages: with it on what belongs to them none would be complete.
fn pace(politeness: &Politeness<'_>, class: Class, crawl_delay: Option<Duration>) -> Pace {
    let jitter = politeness.jitter().map_or(Jitter::NONE, |(from, to)| Jitter::new(from, to));
    match class {
        Class::Navigation => {
            let pages = politeness.pages();
            let rate = pages.rate.map(|(count, per)| Rate::new(count, per, pages.burst));
            let (delay, concurrency) = (pages.delay.min(LONGEST), pages.concurrency);
            Pace { delay, jitter, rate, concurrency }.at_least(crawl_delay)
        }
        Class::Embed => {
            let embeds = politeness.embeds();
            let (delay, concurrency) = (embeds.delay.min(LONGEST), embeds.concurrency);
            Pace { delay, jitter, rate: None, concurrency }
        }
    }
}

/// `Crawl-Max-Wait` shortens what the policy or the profile allows; for crawlers that may, it lengthens it up to a limit.
fn patience(max_hold: Duration, asked: &Asked, longest: Duration) -> Duration {
    let most = if asked.crawler.may(May::Wait) { max_hold.max(longest) } else { max_hold };
    asked.max_wait.unwrap_or(max_hold).min(most).min(LONGEST)
}

fn refusal<C>(judged: &Judged<C>, away: SentAway) -> Refusal {
    let (stage, retry_after) = (Stage::Pace, Some(away.retry_after));
    Refusal { retry_after, keep: judged.keep(stage), ..Refusal::new(away.reason, stage) }
}

//! Pace: the last stage before the origin. The policy's politeness, and the wait that it asks for.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::gate::destination::Addresses;
use crate::gate::hold::{Arrival, Asking, Hold, SentAway, Slot};
use crate::gate::judged::{Asked, Judged};
use crate::gate::refusal::Refusal;
use crate::metrics::record::Keep;
use crate::policy::fact::Dest;
use crate::policy::options::politeness::{PaceKey, Politeness};
use crate::politeness::pace::{Class, Jitter, LONGEST, Pace, Rate};
use crate::store::Key;
use crate::vocab::crawler::{Crawler, May};
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
    let (host, class, crawler) = (asked.target.host(), class(asked), &asked.crawler);
    let pace = pace(&politeness, class, crawl_delay);
    let patience = || {
        let max_hold = politeness.max_hold().unwrap_or_else(|| (waits.profile)().max_hold());
        patience(max_hold, asked, waits.hold.longest())
    };
    let subject = Subject { politeness, host, class, crawler, what: asked.target.as_str() };
    let slot = subject.admit(pace, vetted, waits.hold, arrival, patience).await;
    slot.map_err(|away| Box::new(refusal(away, judged.keep(Stage::Pace))))
}

/// Waits until a tunnel may be opened: one turn of its host, though none of the slots that requests have.
pub(in crate::gate) async fn open(
    subject: Subject<'_>,
    vetted: &impl Addresses,
    hold: &Arc<Hold>,
    arrival: &mut Option<Arrival>,
    patience: Duration,
) -> Result<Slot, Refusal> {
    let pace = Pace { concurrency: u32::MAX, ..pace(&subject.politeness, subject.class, None) };
    let slot = subject.admit(pace, vetted, hold, arrival, || patience).await;
    slot.map_err(|away| refusal(away, Keep::Host))
}

/// Who wants to go where.
pub(in crate::gate) struct Subject<'a> {
    /// The option, as the rules have left it.
    pub(in crate::gate) politeness: Politeness<'a>,
    /// The host in canonical form.
    pub(in crate::gate) host: &'a str,
    /// A page, or what belongs to one.
    pub(in crate::gate) class: Class,
    /// Who asks.
    pub(in crate::gate) crawler: &'a Crawler,
    /// What for.
    pub(in crate::gate) what: &'a str,
}

impl Subject<'_> {
    async fn admit(
        &self,
        pace: Pace,
        vetted: &impl Addresses,
        hold: &Arc<Hold>,
        arrival: &mut Option<Arrival>,
        patience: impl FnOnce() -> Duration,
    ) -> Result<Slot, SentAway> {
        let key = self.politeness.key();
        let address = if key == PaceKey::Address { vetted.first() } else { None };
        let address = address.as_ref().map(IpAddr::to_string);
        let name = name(key, address.as_deref(), self.host);
        let (key, overflow) = (Key { name, class: self.class }, self.politeness.overflow());
        let asking = Asking { key, pace, overflow, crawler: self.crawler, what: self.what };
        hold.admit(&asking, arrival, patience).await
    }
}

/// What is paced as one with a host; the address is asked for only where it is the key.
pub(in crate::gate) fn name<'a>(key: PaceKey, address: Option<&'a str>, host: &'a str) -> &'a str {
    match (key, address) {
        (PaceKey::Address, Some(address)) => address,
        (PaceKey::RegistrableDomain, _) => registrable(host),
        (PaceKey::Host | PaceKey::Address, _) => host,
    }
}

/// How a request of the proxy's own is paced for this one: as a page.
pub(in crate::gate) fn of_pages<C>(judged: &Judged<C>) -> (PaceKey, Pace) {
    let politeness = Politeness::of(judged.policy(), &judged.trail);
    (politeness.key(), pace(&politeness, Class::Navigation, None))
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

fn refusal(away: SentAway, keep: Keep) -> Refusal {
    Refusal { retry_after: Some(away.retry_after), keep, ..Refusal::new(away.reason, Stage::Pace) }
}

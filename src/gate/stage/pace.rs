//! Pace: the last stage before the origin. The policy's politeness, and the wait that it asks for.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::gate::destination::Addresses;
use crate::gate::hold::{Arrival, Asking, Hold, SentAway, Slot, Terms};
use crate::gate::judged::{Asked, Judged};
use crate::gate::refusal::Refusal;
use crate::gate::schedules::scheduled;
use crate::gate::stage::{class, stop};
use crate::metrics::record::Keep;
use crate::policy::fact::Dest;
use crate::policy::options::politeness::{Overflow, PaceKey, PerAddress, Politeness};
use crate::politeness::adaptive::Adaptive;
use crate::politeness::order::Order;
use crate::politeness::pace::{Jitter, Kind, LONGEST, Pace, Rate};
use crate::politeness::schedule::Limits;
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

/// Waits for the host's turn. `spacing` is what its robots.txt asks for; `arrival` is when the request first had to
/// wait, if it was judged before.
pub(in crate::gate) async fn hold<C>(
    judged: &Judged<C>,
    vetted: &impl Addresses,
    spacing: Option<Duration>,
    waits: &Waits<'_>,
    arrival: &mut Option<Arrival>,
) -> Result<Slot, Box<Refusal>> {
    match at_once(judged, spacing, waits, *arrival) {
        Some(slot) => Ok(slot),
        // Boxed, so that those that go at once are not as big as those that wait.
        None => Box::pin(in_turn(judged, vetted, spacing, waits, arrival)).await,
    }
}

/// The slot of a request that nothing holds and that is paced with its host alone.
fn at_once<C>(
    judged: &Judged<C>,
    spacing: Option<Duration>,
    waits: &Waits<'_>,
    arrival: Option<Arrival>,
) -> Option<Slot> {
    if arrival.is_some() || !waits.hold.stops().is_clear() {
        return None;
    }
    let politeness = Politeness::of(judged.policy(), &judged.trail);
    let (asked, kind) = (&judged.asked, kind(&judged.asked));
    let Pacing {
        key,
        pace,
        per_address,
    } = Pacing::of(&politeness, kind, limits(judged, waits.hold), spacing);
    if key == PaceKey::Address || per_address.is_some() {
        return None;
    }
    waits.hold.at_once(
        Key {
            name: name(key, None, asked.target.host()),
            kind,
        },
        &pace,
    )
}

/// As [`hold`], for all others.
async fn in_turn<C>(
    judged: &Judged<C>,
    vetted: &impl Addresses,
    spacing: Option<Duration>,
    waits: &Waits<'_>,
    arrival: &mut Option<Arrival>,
) -> Result<Slot, Box<Refusal>> {
    let politeness = Politeness::of(judged.policy(), &judged.trail);
    let asked = &judged.asked;
    let (host, kind, crawler) = (asked.target.host(), kind(asked), &asked.crawler);
    let pacing = || Pacing::of(&politeness, kind, limits(judged, waits.hold), spacing);
    let patience = || longest_wait(&politeness, asked, waits);
    let terms = || Terms {
        patience: patience(),
        rank: class::rank(judged, &politeness, waits.hold),
    };
    let overflow = politeness.overflow();
    let mut subject = Subject {
        pacing: pacing(),
        overflow,
        host,
        kind,
        crawler,
        what: asked.target.as_str(),
    };
    let stoppable = || stop::Subject::request(judged);
    loop {
        stop::outlast(stoppable, waits.hold, arrival, patience).await?;
        let slot = subject.admit(vetted, waits.hold, arrival, terms).await;
        let slot = slot.map_err(|away| Box::new(refusal(away, judged.keep(Stage::Pace))))?;
        if arrival.is_none() {
            return Ok(slot);
        }
        // Its turn goes back unused if it was stopped while it waited for that, or if a window of the schedule has begun
        // or ended.
        let before = std::mem::replace(&mut subject.pacing, pacing());
        if before == subject.pacing && stop::standing(stoppable, waits.hold).is_none() {
            return Ok(slot);
        }
    }
}

/// For how long a request may wait, for its turn and for the end of a stop together.
pub(in crate::gate) fn longest_wait(
    politeness: &Politeness<'_>,
    asked: &Asked,
    waits: &Waits<'_>,
) -> Duration {
    let max_hold = politeness
        .max_hold()
        .unwrap_or_else(|| (waits.profile)().max_hold());
    patience(max_hold, asked, waits.hold.longest())
}

/// Waits until a tunnel may be opened: one turn of its host, though none of the slots that requests have.
pub(in crate::gate) async fn open(
    subject: &Subject<'_>,
    vetted: &impl Addresses,
    hold: &Arc<Hold>,
    arrival: &mut Option<Arrival>,
    terms: Terms,
) -> Result<Slot, Refusal> {
    let slot = subject.admit(vetted, hold, arrival, || terms).await;
    slot.map_err(|away| refusal(away, Keep::Host))
}

/// Who wants to go where.
pub(in crate::gate) struct Subject<'a> {
    /// How it is paced.
    pub(in crate::gate) pacing: Pacing,
    /// Whether it waits at all.
    pub(in crate::gate) overflow: Overflow,
    /// The host in canonical form.
    pub(in crate::gate) host: &'a str,
    /// A page, or what belongs to one.
    pub(in crate::gate) kind: Kind,
    /// Who asks.
    pub(in crate::gate) crawler: &'a Crawler,
    /// What for.
    pub(in crate::gate) what: &'a str,
}

impl Subject<'_> {
    /// Waits for the turn of its host and, where that is paced too, of its address.
    pub(in crate::gate) async fn admit(
        &self,
        vetted: &impl Addresses,
        hold: &Arc<Hold>,
        arrival: &mut Option<Arrival>,
        terms: impl FnOnce() -> Terms,
    ) -> Result<Slot, SentAway> {
        let key = self.pacing.key;
        let address = if key == PaceKey::Address {
            vetted.first()
        } else {
            None
        };
        let address = address.as_ref().map(IpAddr::to_string);
        let asking = self.asking(name(key, address.as_deref(), self.host), self.pacing.pace);
        let dialled = self.pacing.per_address.zip(vetted.first());
        let Some((pace, address)) = dialled else {
            return hold.admit(&asking, arrival, terms).await;
        };
        // No host has such a name.
        let name = format!("@{address}");
        let at_address = self.asking(&name, pace);
        Box::pin(hold.admit_both(&asking, &at_address, arrival, terms())).await
    }

    fn asking<'s>(&'s self, name: &'s str, pace: Pace) -> Asking<'s> {
        let (key, overflow) = (
            Key {
                name,
                kind: self.kind,
            },
            self.overflow,
        );
        Asking {
            key,
            pace,
            overflow,
            crawler: self.crawler,
            what: self.what,
        }
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

/// How a request of the proxy's own is paced for this one, as a page, and the order of those it may wait among. `spacing`
/// is what the host's robots.txt asks for.
pub(in crate::gate) fn of_pages<C>(
    judged: &Judged<C>,
    hold: &Hold,
    spacing: Option<Duration>,
) -> (Pacing, Order) {
    let politeness = Politeness::of(judged.policy(), &judged.trail);
    let pacing = Pacing::of(&politeness, Kind::Navigation, limits(judged, hold), spacing);
    (pacing, class::order(&politeness))
}

/// The limits that a schedule sets for now.
fn limits<C>(judged: &Judged<C>, hold: &Hold) -> Limits {
    judged
        .snapshot
        .schedules
        .now(judged.policy(), &judged.trail, || hold.wall())
}

pub(super) fn kind(asked: &Asked) -> Kind {
    match asked.facts().dest {
        Some(Dest::Embed) => Kind::Embed,
        Some(Dest::Navigation) | None => Kind::Navigation,
    }
}

/// How a request is paced: with those of its key, and with those of its address.
#[derive(Clone, Copy, PartialEq)]
pub(in crate::gate) struct Pacing {
    /// What is paced as one.
    pub(in crate::gate) key: PaceKey,
    /// The limits of the key.
    pub(in crate::gate) pace: Pace,
    /// The limits of the address, if it has any.
    pub(in crate::gate) per_address: Option<Pace>,
}

impl Pacing {
    /// What the option says, with what a schedule puts in its place, and with what a robots.txt asks for.
    pub(in crate::gate) fn of(
        politeness: &Politeness<'_>,
        kind: Kind,
        limits: Limits,
        spacing: Option<Duration>,
    ) -> Self {
        let pace = pace(politeness, kind, limits, spacing);
        let per_address = politeness
            .per_address()
            .map(|limits| of_address(limits, kind));
        Self {
            key: politeness.key(),
            pace,
            per_address,
        }
    }

    /// The same for a tunnel: a turn, though none of the slots that requests have.
    pub(in crate::gate) fn of_tunnel(politeness: &Politeness<'_>, limits: Limits) -> Self {
        let slotless = |pace| Pace {
            concurrency: u32::MAX,
            ..pace
        };
        let Self {
            key,
            pace,
            per_address,
        } = Self::of(politeness, Kind::Navigation, limits, None);
        Self {
            key,
            pace: slotless(pace),
            per_address: per_address.map(slotless),
        }
    }
}

/// The limits of the kind. A Crawl-delay is about pages: with it on what belongs to them none would be complete. So are
/// the limits of a schedule.
fn pace(
    politeness: &Politeness<'_>,
    kind: Kind,
    limits: Limits,
    spacing: Option<Duration>,
) -> Pace {
    let jitter = politeness
        .jitter()
        .map_or(Jitter::NONE, |(from, to)| Jitter::new(from, to));
    let bytes = politeness.bytes_per_second();
    match kind {
        Kind::Navigation => {
            let pages = scheduled(politeness.pages(), limits);
            let rate = pages
                .rate
                .map(|(count, per)| Rate::new(count, per, pages.burst));
            let (delay, concurrency) = (pages.delay.min(LONGEST), pages.concurrency);
            let adaptive = politeness
                .adaptive()
                .map(|(factor, min, max)| Adaptive::new(factor, min, max));
            Pace {
                delay,
                jitter,
                rate,
                concurrency,
                adaptive,
                bytes,
            }
            .at_least(spacing)
        }
        Kind::Embed => {
            let embeds = politeness.embeds();
            let (delay, concurrency) = (embeds.delay.min(LONGEST), embeds.concurrency);
            Pace {
                delay,
                jitter,
                concurrency,
                bytes,
                ..Pace::FREE
            }
        }
    }
}

/// The delay of an address is for pages, as a Crawl-delay is; its hosts have jitter enough.
fn of_address(limits: PerAddress, kind: Kind) -> Pace {
    let delay = match kind {
        Kind::Navigation => limits.delay.min(LONGEST),
        Kind::Embed => Duration::ZERO,
    };
    Pace {
        delay,
        concurrency: limits.concurrency,
        ..Pace::FREE
    }
}

/// `Crawl-Max-Wait` shortens what the policy or the profile allows; for crawlers that may, it lengthens it up to a limit.
fn patience(max_hold: Duration, asked: &Asked, longest: Duration) -> Duration {
    let most = if asked.crawler.may(May::Wait) {
        max_hold.max(longest)
    } else {
        max_hold
    };
    asked.max_wait.unwrap_or(max_hold).min(most).min(LONGEST)
}

fn refusal(away: SentAway, keep: Keep) -> Refusal {
    Refusal {
        retry_after: Some(away.retry_after),
        keep,
        ..Refusal::new(away.reason, Stage::Pace)
    }
}

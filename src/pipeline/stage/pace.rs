//! Pace: the last stage before the origin. The policy's politeness, and the wait that it asks for.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::metrics::record::UrlRetention;
use crate::model::crawler::{Crawler, CrawlerHint};
use crate::model::profile::Profile;
use crate::model::stage::Stage;
use crate::pacing::adaptive::AdaptiveDelay;
use crate::pacing::pace::{HostPace, Jitter, MAX_WAIT, RateLimit, RequestKind};
use crate::pacing::queue::WaitOrder;
use crate::pacing::schedule::ScheduleLimits;
use crate::pipeline::admission::{
    AdmissionQueue, AdmissionRefusal, AdmissionRequest, Arrival, HostSlot, WaitTerms,
};
use crate::pipeline::destination::AddressList;
use crate::pipeline::evaluation::{Evaluation, RequestFacts};
use crate::pipeline::refusal::Refusal;
use crate::pipeline::schedules::apply_limits;
use crate::pipeline::stage::{class, stop};
use crate::policy::fact::FetchDest;
use crate::policy::options::politeness::{AddressLimits, Overflow, PaceKey, PolitenessOption};
use crate::store::LimiterKey;
use crate::urls::domain::registrable_domain;

/// What a wait needs to know beside the request.
pub struct WaitContext<'a> {
    /// Where requests wait.
    pub admission: &'a Arc<AdmissionQueue>,
    /// The crawler's profile: asked only for requests that have to wait.
    pub profile: &'a (dyn Fn() -> Profile + Send + Sync),
}

/// Waits for the host's turn. `spacing` is what its robots.txt asks for; `arrival` is when the request first had to
/// wait, if it was judged before.
pub(crate) async fn acquire_slot(
    evaluation: &Evaluation,
    vetted: &impl AddressList,
    spacing: Option<Duration>,
    wait: &WaitContext<'_>,
    arrival: &mut Option<Arrival>,
) -> Result<HostSlot, Box<Refusal>> {
    match try_acquire_slot(evaluation, spacing, wait, *arrival) {
        Some(slot) => Ok(slot),
        // Boxed, so that those that go at once are not as big as those that wait.
        None => {
            Box::pin(acquire_slot_in_turn(
                evaluation, vetted, spacing, wait, arrival,
            ))
            .await
        }
    }
}

/// The slot of a request that nothing holds and that is paced with its host alone.
fn try_acquire_slot(
    evaluation: &Evaluation,
    spacing: Option<Duration>,
    wait: &WaitContext<'_>,
    arrival: Option<Arrival>,
) -> Option<HostSlot> {
    if arrival.is_some() || !wait.admission.stops().is_clear() {
        return None;
    }
    let politeness = PolitenessOption::new(evaluation.policy(), &evaluation.trail);
    let (asked, kind) = (&evaluation.facts, request_kind(&evaluation.facts));
    let Pacing {
        key,
        pace,
        per_address,
    } = Pacing::new(
        &politeness,
        kind,
        schedule_limits(evaluation, wait.admission),
        spacing,
    );
    if key == PaceKey::Address || per_address.is_some() {
        return None;
    }
    wait.admission.try_admit(
        LimiterKey {
            name: pace_name(key, None, asked.target.host()),
            kind,
        },
        &pace,
    )
}

/// As [`hold`], for all others.
async fn acquire_slot_in_turn(
    evaluation: &Evaluation,
    vetted: &impl AddressList,
    spacing: Option<Duration>,
    wait: &WaitContext<'_>,
    arrival: &mut Option<Arrival>,
) -> Result<HostSlot, Box<Refusal>> {
    let politeness = PolitenessOption::new(evaluation.policy(), &evaluation.trail);
    let asked = &evaluation.facts;
    let (host, kind, crawler) = (asked.target.host(), request_kind(asked), &asked.crawler);
    let pacing = || {
        Pacing::new(
            &politeness,
            kind,
            schedule_limits(evaluation, wait.admission),
            spacing,
        )
    };
    let patience = || longest_wait(&politeness, asked, wait);
    let terms = || WaitTerms {
        patience: patience(),
        rank: class::rank(evaluation, &politeness, wait.admission),
    };
    let overflow = politeness.overflow();
    let mut subject = PaceSubject {
        pacing: pacing(),
        overflow,
        host,
        kind,
        crawler,
        resource: asked.target.as_str(),
    };
    let stoppable = || stop::StopSubject::for_request(evaluation);
    loop {
        stop::wait_for_stops(stoppable, wait.admission, arrival, patience).await?;
        let slot = subject.admit(vetted, wait.admission, arrival, terms).await;
        let slot =
            slot.map_err(|away| Box::new(refusal(away, evaluation.url_detail(Stage::Pace))))?;
        if arrival.is_none() {
            return Ok(slot);
        }
        // Its turn goes back unused if it was stopped while it waited for that, or if a window of the schedule has begun
        // or ended.
        let before = std::mem::replace(&mut subject.pacing, pacing());
        if before == subject.pacing && stop::current_refusal(stoppable, wait.admission).is_none() {
            return Ok(slot);
        }
    }
}

/// For how long a request may wait, for its turn and for the end of a stop together.
pub(crate) fn longest_wait(
    politeness: &PolitenessOption<'_>,
    request_facts: &RequestFacts,
    wait: &WaitContext<'_>,
) -> Duration {
    let max_hold = politeness
        .max_hold()
        .unwrap_or_else(|| (wait.profile)().max_hold());
    effective_patience(max_hold, request_facts, wait.admission.max_wait())
}

/// Waits until a tunnel may be opened: one turn of its host, though none of the slots that requests have.
pub(crate) async fn acquire_tunnel_slot(
    subject: &PaceSubject<'_>,
    vetted: &impl AddressList,
    admission: &Arc<AdmissionQueue>,
    arrival: &mut Option<Arrival>,
    terms: WaitTerms,
) -> Result<HostSlot, Refusal> {
    let slot = subject.admit(vetted, admission, arrival, || terms).await;
    slot.map_err(|away| refusal(away, UrlRetention::Host))
}

/// Who wants to go where.
pub(crate) struct PaceSubject<'a> {
    /// How it is paced.
    pub(crate) pacing: Pacing,
    /// Whether it waits at all.
    pub(crate) overflow: Overflow,
    /// The host in canonical form.
    pub(crate) host: &'a str,
    /// A page, or what belongs to one.
    pub(crate) kind: RequestKind,
    /// Who asks.
    pub(crate) crawler: &'a Crawler,
    /// What for.
    pub(crate) resource: &'a str,
}

impl PaceSubject<'_> {
    /// Waits for the turn of its host and, where that is paced too, of its address.
    pub(crate) async fn admit(
        &self,
        vetted: &impl AddressList,
        admission: &Arc<AdmissionQueue>,
        arrival: &mut Option<Arrival>,
        terms: impl FnOnce() -> WaitTerms,
    ) -> Result<HostSlot, AdmissionRefusal> {
        let key = self.pacing.key;
        let address = if key == PaceKey::Address {
            vetted.first()
        } else {
            None
        };
        let address = address.as_ref().map(IpAddr::to_string);
        let asking = self.admission_request(
            pace_name(key, address.as_deref(), self.host),
            self.pacing.pace,
        );
        let dialled = self.pacing.per_address.zip(vetted.first());
        let Some((pace, address)) = dialled else {
            return admission.admit(&asking, arrival, terms).await;
        };
        // No host has such a name.
        let name = format!("@{address}");
        let at_address = self.admission_request(&name, pace);
        Box::pin(admission.admit_host_and_address(&asking, &at_address, arrival, terms())).await
    }

    fn admission_request<'s>(&'s self, name: &'s str, pace: HostPace) -> AdmissionRequest<'s> {
        let (key, overflow) = (
            LimiterKey {
                name,
                kind: self.kind,
            },
            self.overflow,
        );
        AdmissionRequest {
            key,
            pace,
            overflow,
            crawler: self.crawler,
            resource: self.resource,
        }
    }
}

/// What is paced as one with a host; the address is asked for only where it is the key.
pub(crate) fn pace_name<'a>(key: PaceKey, address: Option<&'a str>, host: &'a str) -> &'a str {
    match (key, address) {
        (PaceKey::Address, Some(address)) => address,
        (PaceKey::RegistrableDomain, _) => registrable_domain(host),
        (PaceKey::Host | PaceKey::Address, _) => host,
    }
}

/// How a request of the proxy's own is paced for this one, as a page, and the order of those it may wait among. `spacing`
/// is what the host's robots.txt asks for.
pub(crate) fn page_pacing(
    evaluation: &Evaluation,
    admission: &AdmissionQueue,
    spacing: Option<Duration>,
) -> (Pacing, WaitOrder) {
    let politeness = PolitenessOption::new(evaluation.policy(), &evaluation.trail);
    let pacing = Pacing::new(
        &politeness,
        RequestKind::Navigation,
        schedule_limits(evaluation, admission),
        spacing,
    );
    (pacing, class::order(&politeness))
}

/// The limits that a schedule sets for now.
fn schedule_limits(evaluation: &Evaluation, admission: &AdmissionQueue) -> ScheduleLimits {
    evaluation
        .snapshot
        .schedules
        .current_limits(evaluation.policy(), &evaluation.trail, || admission.wall())
}

pub(super) fn request_kind(request_facts: &RequestFacts) -> RequestKind {
    match request_facts.policy_facts().dest {
        Some(FetchDest::Embed) => RequestKind::Embed,
        Some(FetchDest::Navigation) | None => RequestKind::Navigation,
    }
}

/// How a request is paced: with those of its key, and with those of its address.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Pacing {
    /// What is paced as one.
    pub(crate) key: PaceKey,
    /// The limits of the key.
    pub(crate) pace: HostPace,
    /// The limits of the address, if it has any.
    pub(crate) per_address: Option<HostPace>,
}

impl Pacing {
    /// What the option says, with what a schedule puts in its place, and with what a robots.txt asks for.
    pub(crate) fn new(
        politeness: &PolitenessOption<'_>,
        kind: RequestKind,
        limits: ScheduleLimits,
        spacing: Option<Duration>,
    ) -> Self {
        let pace = build_pace(politeness, kind, limits, spacing);
        let per_address = politeness
            .per_address()
            .map(|limits| address_pace(limits, kind));
        Self {
            key: politeness.key(),
            pace,
            per_address,
        }
    }

    /// The same for a tunnel: a turn, though none of the slots that requests have.
    pub(crate) fn for_tunnel(politeness: &PolitenessOption<'_>, limits: ScheduleLimits) -> Self {
        let slotless = |pace| HostPace {
            concurrency: u32::MAX,
            ..pace
        };
        let Self {
            key,
            pace,
            per_address,
        } = Self::new(politeness, RequestKind::Navigation, limits, None);
        Self {
            key,
            pace: slotless(pace),
            per_address: per_address.map(slotless),
        }
    }
}

/// The limits of the kind. A Crawl-delay is about pages: with it on what belongs to them none would be complete. So are
/// the limits of a schedule.
fn build_pace(
    politeness: &PolitenessOption<'_>,
    kind: RequestKind,
    limits: ScheduleLimits,
    spacing: Option<Duration>,
) -> HostPace {
    let jitter = politeness
        .jitter()
        .map_or(Jitter::NONE, |(from, to)| Jitter::new(from, to));
    let bytes = politeness.bytes_per_second();
    match kind {
        RequestKind::Navigation => {
            let pages = apply_limits(politeness.pages(), limits);
            let rate = pages
                .rate
                .map(|(count, per)| RateLimit::new(count, per, pages.burst));
            let (delay, concurrency) = (pages.delay.min(MAX_WAIT), pages.concurrency);
            let adaptive = politeness
                .adaptive()
                .map(|(factor, min, max)| AdaptiveDelay::new(factor, min, max));
            HostPace {
                delay,
                jitter,
                rate,
                concurrency,
                adaptive,
                bytes_per_second: bytes,
            }
            .with_min_delay(spacing)
        }
        RequestKind::Embed => {
            let embeds = politeness.embeds();
            let (delay, concurrency) = (embeds.delay.min(MAX_WAIT), embeds.concurrency);
            HostPace {
                delay,
                jitter,
                concurrency,
                bytes_per_second: bytes,
                ..HostPace::UNLIMITED
            }
        }
    }
}

/// The delay of an address is for pages, as a Crawl-delay is; its hosts have jitter enough.
fn address_pace(limits: AddressLimits, kind: RequestKind) -> HostPace {
    let delay = match kind {
        RequestKind::Navigation => limits.delay.min(MAX_WAIT),
        RequestKind::Embed => Duration::ZERO,
    };
    HostPace {
        delay,
        concurrency: limits.concurrency,
        ..HostPace::UNLIMITED
    }
}

/// `Crawl-Max-Wait` shortens what the policy or the profile allows; for crawlers that may, it lengthens it up to a limit.
fn effective_patience(
    max_hold: Duration,
    request_facts: &RequestFacts,
    longest: Duration,
) -> Duration {
    let most = if request_facts.crawler.allows_hint(CrawlerHint::Wait) {
        max_hold.max(longest)
    } else {
        max_hold
    };
    request_facts
        .max_wait
        .unwrap_or(max_hold)
        .min(most)
        .min(MAX_WAIT)
}

fn refusal(admission_refusal: AdmissionRefusal, keep: UrlRetention) -> Refusal {
    Refusal {
        retry_after: Some(admission_refusal.retry_after),
        url_detail: keep,
        ..Refusal::new(admission_refusal.reason, Stage::Pace)
    }
}

//! Pace: the last stage before the origin, which waits as long as the policy's politeness requires.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::model::crawler::{Crawler, CrawlerHint};
use crate::model::profile::Profile;
use crate::model::stage::Stage;
use crate::pacing::adaptive::AdaptiveDelay;
use crate::pacing::pace::{HostPace, Jitter, MAX_WAIT, RateLimit, RequestKind};
use crate::pacing::queue::{QueueRank, WaitOrder};
use crate::pacing::schedule::ScheduleLimits;
use crate::pipeline::admission::{
    AdmissionQueue, AdmissionRefusal, AdmissionRequest, Arrival, HostSlot, LimiterLoad,
    TurnForecast, WaitTerms,
};
use crate::pipeline::destination::AddressList;
use crate::pipeline::evaluation::Evaluation;
use crate::pipeline::facts::{EvaluationFacts, RequestFacts};
use crate::pipeline::refusal::Refusal;
use crate::pipeline::schedules::apply_limits;
use crate::pipeline::snapshot::ActivePolicy;
use crate::pipeline::stage::{class, stop};
use crate::policy::fact::FetchDest;
use crate::policy::options::politeness::{AddressLimits, Overflow, PaceKey, PolitenessOption};
use crate::store::LimiterKey;
use crate::urls::domain::registrable_domain;

/// The context of a request that has to wait.
pub(crate) struct WaitContext<'a> {
    /// Where requests wait.
    pub(crate) admission: &'a Arc<AdmissionQueue>,
    /// The policy in effect, which may change during a wait.
    pub(crate) active_policy: &'a ActivePolicy,
    /// Returns the crawler's profile; called only for requests that have to wait.
    pub(crate) profile: &'a (dyn Fn() -> Profile + Send + Sync),
}

/// A request or a tunnel that needs a slot of its host.
pub(crate) trait SlotRequester {
    /// The facts that are evaluated.
    type Facts: EvaluationFacts;

    fn evaluation(&self) -> &Evaluation<Self::Facts>;
    /// Returns the kind of the request: a page, or a resource of one.
    fn kind(&self) -> RequestKind;
    /// Returns its limits at the moment.
    fn pacing(&self) -> Pacing;
    /// Returns the maximum time that it may wait.
    fn max_wait(&self) -> Duration;
    /// Returns its rank among others that wait.
    fn rank(&self) -> QueueRank;
}

/// A request that needs a slot of its host.
pub(crate) struct RequestPacing<'a> {
    evaluation: &'a Evaluation,
    /// The time between requests that the host's robots.txt requests.
    spacing: Option<Duration>,
    wait: &'a WaitContext<'a>,
}

impl<'a> RequestPacing<'a> {
    pub(crate) fn new(
        evaluation: &'a Evaluation,
        spacing: Option<Duration>,
        wait: &'a WaitContext<'a>,
    ) -> Self {
        Self {
            evaluation,
            spacing,
            wait,
        }
    }
}

impl SlotRequester for RequestPacing<'_> {
    type Facts = RequestFacts;

    fn evaluation(&self) -> &Evaluation {
        self.evaluation
    }

    fn kind(&self) -> RequestKind {
        request_kind(self.evaluation.facts())
    }

    fn pacing(&self) -> Pacing {
        let limits = schedule_limits(self.evaluation, self.wait.admission);
        Pacing::new(
            &politeness(self.evaluation),
            self.kind(),
            limits,
            self.spacing,
        )
    }

    fn max_wait(&self) -> Duration {
        max_wait(self.evaluation, self.wait)
    }

    fn rank(&self) -> QueueRank {
        class::rank(self.evaluation, self.wait.admission)
    }
}

/// Waits for a slot of the host. `arrival` is set if it has to wait, or had to before it was evaluated again.
pub(crate) async fn acquire_slot<S: SlotRequester>(
    requester: &S,
    addresses: &impl AddressList,
    admission: &Arc<AdmissionQueue>,
    arrival: &mut Option<Arrival>,
) -> Result<HostSlot, Box<Refusal>> {
    match try_acquire_slot(requester, admission, *arrival) {
        Some(slot) => Ok(slot),
        // Boxed, so that the future of a request that is not held stays small.
        None => {
            Box::pin(acquire_slot_in_turn(
                requester, addresses, admission, arrival,
            ))
            .await
        }
    }
}

/// Returns a slot if nothing holds the request and it is paced with its host alone.
fn try_acquire_slot<S: SlotRequester>(
    requester: &S,
    admission: &Arc<AdmissionQueue>,
    arrival: Option<Arrival>,
) -> Option<HostSlot> {
    if arrival.is_some() || !admission.stops().is_clear() {
        return None;
    }
    let Pacing {
        key,
        pace,
        per_address,
    } = requester.pacing();
    if key == PaceKey::Address || per_address.is_some() {
        return None;
    }
    let key = LimiterKey {
        name: pace_name(key, None, requester.evaluation().facts().host()),
        kind: requester.kind(),
    };
    admission.try_acquire(key, &pace)
}

/// Waits until the request has a slot and no stop applies.
async fn acquire_slot_in_turn<S: SlotRequester>(
    requester: &S,
    addresses: &impl AddressList,
    admission: &Arc<AdmissionQueue>,
    arrival: &mut Option<Arrival>,
) -> Result<HostSlot, Box<Refusal>> {
    let evaluation = requester.evaluation();
    let mut subject = PaceSubject::new(requester);
    loop {
        stop::wait_for_stops(evaluation, admission, arrival, || requester.max_wait()).await?;
        let terms = || WaitTerms {
            max_wait: requester.max_wait(),
            rank: requester.rank(),
        };
        let slot = subject
            .acquire_slot(addresses, admission, arrival, terms)
            .await;
        let slot =
            slot.map_err(|refused| evaluation.refuse(refusal(refused, requester.max_wait())))?;
        if arrival.is_none() {
            return Ok(slot);
        }
        // The slot is returned unused if a stop was given while it waited, or if a window of the schedule has begun or
        // ended.
        let previous = std::mem::replace(&mut subject.pacing, requester.pacing());
        if previous == subject.pacing && stop::current_refusal(evaluation, admission).is_none() {
            return Ok(slot);
        }
    }
}

/// The prospect of a request at this stage, for an explanation.
#[derive(Clone, Debug)]
pub struct PaceForecast {
    /// The limiter at which it would wait longest.
    pub turn: TurnForecast,
    /// The refusal, if its turn does not come in time, and `true` if it is held before.
    pub(crate) refusal: Option<(Box<Refusal>, bool)>,
}

/// Returns the prospect of a request. `address` is the one that it would be sent to, if that is known.
pub(crate) fn forecast(
    requester: &RequestPacing<'_>,
    address: Option<IpAddr>,
    admission: &AdmissionQueue,
) -> PaceForecast {
    let subject = PaceSubject::new(requester);
    let terms = WaitTerms {
        max_wait: requester.max_wait(),
        rank: requester.rank(),
    };
    let turn = subject.forecast(address, admission, terms);
    let refusal = turn.refusal.map(|refused| {
        let is_held = refused.follows_wait(subject.overflow);
        let refusal = refusal(refused, terms.max_wait);
        (requester.evaluation.refuse(refusal), is_held)
    });
    PaceForecast { turn, refusal }
}

fn politeness<F: EvaluationFacts>(evaluation: &Evaluation<F>) -> PolitenessOption<'_> {
    PolitenessOption::new(evaluation.policy(), evaluation.trail())
}

/// Returns the maximum time that a request may wait, for its host's turn and for the end of a stop together.
pub(crate) fn max_wait(evaluation: &Evaluation, wait: &WaitContext<'_>) -> Duration {
    let max_hold = politeness(evaluation)
        .max_hold()
        .unwrap_or_else(|| (wait.profile)().max_hold());
    effective_max_wait(max_hold, evaluation.facts(), wait.admission.max_wait())
}

/// A request that a limiter paces.
pub(crate) struct PaceSubject<'a> {
    pub(crate) pacing: Pacing,
    /// The choice between waiting and being refused.
    pub(crate) overflow: Overflow,
    pub(crate) host: &'a str,
    pub(crate) kind: RequestKind,
    pub(crate) crawler: &'a Crawler,
    /// The URL, or the host of a tunnel.
    pub(crate) resource: &'a str,
}

impl<'a> PaceSubject<'a> {
    fn new<S: SlotRequester>(requester: &'a S) -> Self {
        let evaluation = requester.evaluation();
        let facts = evaluation.facts();
        Self {
            pacing: requester.pacing(),
            overflow: politeness(evaluation).overflow(),
            host: facts.host(),
            kind: requester.kind(),
            crawler: facts.crawler(),
            resource: facts.resource(),
        }
    }

    /// Returns the prospect at the host's limiter and, if the address is known and paced too, at that of the address.
    fn forecast(
        &self,
        address: Option<IpAddr>,
        admission: &AdmissionQueue,
        terms: WaitTerms,
    ) -> TurnForecast {
        let key = self.pacing.key;
        let text = address.map(|address| address.to_string());
        let host_request =
            self.admission_request(pace_name(key, text.as_deref(), self.host), self.pacing.pace);
        let host = admission.forecast(&host_request, terms);
        match self.pacing.per_address.zip(address) {
            Some((pace, address)) => {
                let name = address_limiter_name(address);
                let address_request = self.admission_request(&name, pace);
                host.join(admission.forecast(&address_request, terms))
            }
            None => host,
        }
    }
}

impl PaceSubject<'_> {
    /// Acquires a slot of the host and, if it is paced too, of the address.
    pub(crate) async fn acquire_slot(
        &self,
        addresses: &impl AddressList,
        admission: &Arc<AdmissionQueue>,
        arrival: &mut Option<Arrival>,
        terms: impl FnOnce() -> WaitTerms,
    ) -> Result<HostSlot, AdmissionRefusal> {
        let key = self.pacing.key;
        let address = if key == PaceKey::Address {
            addresses.first()
        } else {
            None
        };
        let address = address.as_ref().map(IpAddr::to_string);
        let host_request = self.admission_request(
            pace_name(key, address.as_deref(), self.host),
            self.pacing.pace,
        );
        let Some((pace, address)) = self.pacing.per_address.zip(addresses.first()) else {
            return admission.acquire(&host_request, arrival, terms).await;
        };
        let name = address_limiter_name(address);
        let address_request = self.admission_request(&name, pace);
        Box::pin(admission.acquire_host_and_address(
            &host_request,
            &address_request,
            arrival,
            terms(),
        ))
        .await
    }

    fn admission_request<'s>(&'s self, name: &'s str, pace: HostPace) -> AdmissionRequest<'s> {
        AdmissionRequest {
            key: LimiterKey {
                name,
                kind: self.kind,
            },
            pace,
            overflow: self.overflow,
            crawler: self.crawler,
            resource: self.resource,
        }
    }
}

/// Returns the name of the limiter of an address that is paced in addition to its hosts. It is not the name of any host.
fn address_limiter_name(address: IpAddr) -> String {
    format!("@{address}")
}

/// Returns the name of the limiter for a host. The address is used only if it is the key.
pub(crate) fn pace_name<'a>(key: PaceKey, address: Option<&'a str>, host: &'a str) -> &'a str {
    match (key, address) {
        (PaceKey::Address, Some(address)) => address,
        (PaceKey::RegistrableDomain, _) => registrable_domain(host),
        (PaceKey::Host | PaceKey::Address, _) => host,
    }
}

/// Returns the limits of a request that the proxy makes on behalf of this one, as a page, and the order that it waits
/// in. `spacing` is the time between requests that the host's robots.txt requests.
pub(crate) fn page_pacing(
    evaluation: &Evaluation,
    admission: &AdmissionQueue,
    spacing: Option<Duration>,
) -> (Pacing, WaitOrder) {
    let politeness = politeness(evaluation);
    let limits = schedule_limits(evaluation, admission);
    let pacing = Pacing::new(&politeness, RequestKind::Navigation, limits, spacing);
    (pacing, class::order(&politeness))
}

/// Returns the limits that a schedule sets at the moment.
pub(crate) fn schedule_limits<F: EvaluationFacts>(
    evaluation: &Evaluation<F>,
    admission: &AdmissionQueue,
) -> ScheduleLimits {
    let schedules = &evaluation.snapshot().schedules;
    schedules.current_limits(evaluation.policy(), evaluation.trail(), || admission.wall())
}

pub(super) fn request_kind(request_facts: &RequestFacts) -> RequestKind {
    match request_facts.policy_facts().dest {
        Some(FetchDest::Embed) => RequestKind::Embed,
        Some(FetchDest::Navigation) | None => RequestKind::Navigation,
    }
}

/// The limits of a request: those of its key and those of its address.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Pacing {
    /// The kind of limiter.
    pub(crate) key: PaceKey,
    /// The limits of that.
    pub(crate) pace: HostPace,
    /// The limits of the address, if it has any.
    pub(crate) per_address: Option<HostPace>,
}

impl Pacing {
    /// Combines the option, the limits of its schedule, and the spacing that robots.txt requests.
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

    /// Returns the limits of a tunnel, which takes a turn of its host but none of the slots that requests take.
    pub(crate) fn for_tunnel(politeness: &PolitenessOption<'_>, limits: ScheduleLimits) -> Self {
        let Self {
            key,
            pace,
            per_address,
        } = Self::new(politeness, RequestKind::Navigation, limits, None);
        Self {
            key,
            pace: without_slots(pace),
            per_address: per_address.map(without_slots),
        }
    }
}

fn without_slots(pace: HostPace) -> HostPace {
    HostPace {
        concurrency: u32::MAX,
        ..pace
    }
}

/// Returns the limits of the kind. A Crawl-delay and the limits of a schedule apply to pages only: with a delay on what
/// is embedded in them no page would be complete.
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
            let adaptive = politeness
                .adaptive()
                .map(|(factor, min, max)| AdaptiveDelay::new(factor, min, max));
            HostPace {
                delay: pages.delay.min(MAX_WAIT),
                jitter,
                rate,
                concurrency: pages.concurrency,
                adaptive,
                bytes_per_second: bytes,
            }
            .with_min_delay(spacing)
        }
        RequestKind::Embed => {
            let embeds = politeness.embeds();
            HostPace {
                delay: embeds.delay.min(MAX_WAIT),
                jitter,
                concurrency: embeds.concurrency,
                bytes_per_second: bytes,
                ..HostPace::UNLIMITED
            }
        }
    }
}

/// Returns the limits of an address. Its delay applies to pages only, as a Crawl-delay does; the jitter of its hosts is
/// enough.
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

/// Applies `Crawl-Max-Wait`, which shortens the wait that the policy or the profile allows; for crawlers that may do
/// so, it also lengthens it, up to `max_hinted_wait`.
fn effective_max_wait(
    max_hold: Duration,
    request_facts: &RequestFacts,
    max_hinted_wait: Duration,
) -> Duration {
    let limit = if request_facts.crawler.allows_hint(CrawlerHint::Wait) {
        max_hold.max(max_hinted_wait)
    } else {
        max_hold
    };
    request_facts
        .max_wait
        .unwrap_or(max_hold)
        .min(limit)
        .min(MAX_WAIT)
}

fn refusal(refusal: AdmissionRefusal, max_wait: Duration) -> Refusal {
    Refusal {
        retry_after: Some(refusal.retry_after),
        detail: refusal
            .load
            .map(|load| Cow::Owned(load_text(load, max_wait))),
        ..Refusal::new(refusal.cause.reason(), Stage::Pace)
    }
}

/// Formats `the host gets a request every 1.25 s, 30 others wait for it, and 16 fit into the 20 s for which one is held`.
fn load_text(load: LimiterLoad, max_wait: Duration) -> String {
    let LimiterLoad {
        interval,
        concurrency,
        waiting,
    } = load;
    let seconds = |time: Duration| time.as_millis() as f64 / 1_000.0;
    if interval.as_millis() == 0 {
        return format!(
            "the host gets at most {concurrency} at once, and {waiting} others wait for it"
        );
    }
    let fitting = max_wait.as_millis() / interval.as_millis();
    format!(
        "the host gets a request every {} s, {waiting} others wait for it, and {fitting} fit into the {} s for which one \
         is held",
        seconds(interval),
        seconds(max_wait)
    )
}

//! Dry runs: a described request goes through the stages before the origin, in their order, and is not sent.
//!
//! A dry run takes no slot for the request, charges no budget and counts no decision. It reads what the proxy knows; names are
//! resolved and robots.txt is fetched only on request, in the host's turn as for any request. What was not asked is part of
//! the result.

use std::fmt::Debug;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crate::ledger::record::UnixMillis;
use crate::model::crawler::Crawler;
use crate::model::profile::Profile;
use crate::model::words::words;
use crate::pipeline::destination::DestinationResolver;
use crate::pipeline::evaluation::Evaluation;
use crate::pipeline::evaluation_loop::PipelineStages as _;
use crate::pipeline::facts::RequestFacts;
use crate::pipeline::refusal::Refusal;
use crate::pipeline::robots_fetch::RobotsProvider;
use crate::pipeline::robots_fetch::inspection::RobotsFileStatus;
use crate::pipeline::snapshot::PolicySnapshot;
pub use crate::pipeline::stage::pace::PaceForecast;
use crate::pipeline::stage::pace::{self, RequestPacing, WaitContext};
use crate::pipeline::stage::robots::{self, CachedRobotsVerdict, RobotsVerdict};
use crate::pipeline::stage::{destination, stop};
use crate::policy::cases::{CaseFacts, CaseTarget};
use crate::policy::fact::{Fact, LedgerPresence};
use crate::policy::options::politeness::{Overflow, PaceKey, PolitenessOption};
use crate::robots::state::RobotsState;
use crate::urls::target::UrlTarget;

use super::{RequestServices, RequestStages};

/// The time after which a dry run no longer waits for a robots.txt that is being fetched. With the time for the name, it is
/// less than clients of the API wait for.
const FETCH_TIMEOUT: Duration = Duration::from_secs(4);

/// Runs requests dry, in the running proxy.
pub trait DryRunner: Debug + Send + Sync {
    /// Runs one.
    fn dry_run(&self, request: DryRunRequest) -> Pin<Box<dyn Future<Output = DryRun> + Send + '_>>;
}

/// A request that was written down.
#[derive(Clone, Debug)]
pub struct DryRunRequest {
    facts: RequestFacts,
    profile: Profile,
    /// The address that the host is assumed to have.
    address: Option<IpAddr>,
    /// The presence in the ledger that the URL is assumed to have.
    presence: Option<LedgerPresence>,
    lookups: LookupPermission,
    /// `true` if this process has the records of the host.
    reads_ledger: bool,
}

/// The permission of a dry run to send something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupPermission {
    /// It resolves the name and fetches robots.txt if they are not cached, as a request would.
    Fetch,
    /// It uses only what is cached.
    CacheOnly,
}

impl DryRunRequest {
    /// Creates a request from the facts of a case; `None` for a tunnel, and if the method is not valid.
    pub fn new(
        facts: &CaseFacts,
        crawler: Crawler,
        user_agent: Option<&str>,
        profile: Profile,
        lookups: LookupPermission,
    ) -> Option<Self> {
        let CaseTarget::Url(target) = facts.target() else {
            return None;
        };
        let given = facts.facts();
        let request = RequestFacts::from_given(target.clone(), crawler, &given)?;
        Some(Self {
            facts: request.with_user_agent(user_agent),
            profile,
            address: match given.address {
                Fact::Known(address) => address,
                Fact::Unknown => None,
            },
            presence: facts.ledger_presence(),
            lookups,
            reads_ledger: true,
        })
    }

    /// Returns the host of its URL.
    pub fn host(&self) -> &str {
        self.facts.target.host()
    }

    /// Returns the request for a node that does not own its host: nothing is sent, and the ledger has no current records.
    #[must_use]
    pub fn at_other_node(self) -> Self {
        Self {
            lookups: LookupPermission::CacheOnly,
            reads_ledger: false,
            ..self
        }
    }
}

/// The result of a dry run.
#[derive(Debug)]
pub struct DryRun {
    /// The policy that it was evaluated under.
    pub snapshot: Arc<PolicySnapshot>,
    /// The URL that would be fetched.
    pub target: UrlTarget,
    /// `true` if the policy fetches it instead of the requested one.
    pub is_rewritten: bool,
    pub end: DryRunEnd,
    /// The parent proxy through which it would be sent.
    pub parent: Option<Box<str>>,
    /// The record of the URL, if the policy depends on it.
    pub ledger: Option<DryRunLedger>,
    /// The addresses that would be dialled, if they are known.
    pub addresses: Option<DryRunAddresses>,
    /// The host's robots.txt, if it was asked.
    pub robots: Option<DryRunRobots>,
    /// The stop that covers the request, if it was asked for and there is one.
    pub stop: Option<Box<Refusal>>,
    /// The prospect of its turn, if the request gets that far.
    pub pace: Option<PaceForecast>,
    /// The questions that may decide, too, and were not asked.
    pub not_asked: Vec<NotAsked>,
}

/// The end of a request.
#[derive(Debug)]
pub enum DryRunEnd {
    /// It would be sent.
    Sent,
    /// It would be answered with the proxy's copy of the host's robots.txt.
    RobotsTxtServed,
    Refused {
        refusal: Box<Refusal>,
        /// The longest time for which it would be held before; `None` if it would be refused at once.
        held_for: Option<Duration>,
    },
}

/// The record of the URL in a dry run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DryRunLedger {
    pub presence: LedgerPresence,
    pub source: DryRunLedgerSource,
    /// The number of links from a seed, if it is known.
    pub depth: Option<u32>,
    /// The time of the first request; `None` without a record.
    pub first_seen: Option<UnixMillis>,
    /// The time at which a document was last fetched.
    pub last_fetched: Option<UnixMillis>,
}

/// The source of the presence in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DryRunLedgerSource {
    /// It is part of the question.
    Given,
    Ledger,
}

/// The addresses of a dry run.
#[derive(Debug)]
pub struct DryRunAddresses {
    /// Those that passed every check, the preferred one first.
    pub addresses: Vec<IpAddr>,
    pub source: DryRunAddressSource,
}

/// The source of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DryRunAddressSource {
    /// They are part of the question.
    Given,
    /// They were known, or the host is an address.
    Known,
    /// The name was resolved.
    Resolved,
}

/// The host's robots.txt in a dry run.
#[derive(Debug)]
pub enum DryRunRobots {
    /// The policy ignores it.
    NotObeyed,
    Known {
        /// Its state.
        status: RobotsFileStatus,
        /// The product token that it was asked about.
        agent: Box<str>,
        age: Duration,
    },
}

/// A question that a dry run did not ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAsked {
    /// The thing.
    pub subject: NotAskedSubject,
    /// The reason.
    pub why: &'static str,
}

words! {
    /// The things that may decide about a request and that an explanation may leave out, in the order of the
    /// stages.
    pub enum NotAskedSubject {
        Budgets = "budgets",
        Ledger = "ledger",
        Addresses = "addresses",
        RobotsTxt = "robots.txt",
        Stops = "stops",
        Pace = "pace",
    }
}

const NOT_CACHED: &str = "not in the cache";

/// Runs a request through the stages without sending it.
pub async fn dry_run<D: DestinationResolver, R: RobotsProvider>(
    request: DryRunRequest,
    services: &RequestServices<'_, D, R>,
) -> DryRun {
    let profile = request.profile;
    let profile = || profile;
    let services = &RequestServices {
        ledger: services.ledger.filter(|_| request.reads_ledger),
        ..*services
    };
    let wait = WaitContext {
        admission: services.admission,
        active_policy: services.active_policy,
        profile: &profile,
    };
    let stages = RequestStages {
        body: &mut (),
        services,
        wait,
    };
    let snapshot = services.active_policy.load();
    let mut evaluation = stages.evaluate(request.facts.clone(), Arc::clone(&snapshot));
    let ledger = DryRunLedger::new(&evaluation, request.presence);
    if let Some(presence) = request.presence {
        evaluation.set_ledger_presence(presence);
    }
    let mut run = DryRun {
        snapshot,
        target: evaluation.facts().target.clone(),
        is_rewritten: evaluation.facts().rewritten_from().is_some(),
        end: DryRunEnd::Sent,
        parent: None,
        ledger,
        addresses: None,
        robots: None,
        stop: None,
        pace: None,
        not_asked: vec![],
    };
    if !request.reads_ledger && request.presence.is_none() && run.snapshot.uses_ledger {
        run.add_not_asked(NotAskedSubject::Ledger, "the owner of the host has it");
    }
    let result = run.run_stages(&mut evaluation, &request, &stages).await;
    if let Err(end) = result {
        run.end = end;
    }
    run
}

impl DryRunLedger {
    /// Returns the record that an evaluation has found, with the presence that is assumed, if one is.
    fn new(evaluation: &Evaluation, given: Option<LedgerPresence>) -> Option<Self> {
        let entry = evaluation.ledger_entry();
        if given.is_none() && entry.is_none() {
            return None;
        }
        let record = entry.and_then(|entry| entry.record.as_ref());
        Some(Self {
            presence: given.unwrap_or(evaluation.facts().in_ledger()),
            source: match given {
                Some(_) => DryRunLedgerSource::Given,
                None => DryRunLedgerSource::Ledger,
            },
            depth: entry.and_then(|entry| entry.depth),
            first_seen: record.map(|record| record.first_seen),
            last_fetched: record.and_then(|record| record.last_fetched),
        })
    }
}

impl From<Box<Refusal>> for DryRunEnd {
    fn from(refusal: Box<Refusal>) -> Self {
        Self::Refused {
            refusal,
            held_for: None,
        }
    }
}

impl DryRun {
    async fn run_stages<D: DestinationResolver, R: RobotsProvider>(
        &mut self,
        evaluation: &mut Evaluation,
        request: &DryRunRequest,
        stages: &RequestStages<'_, (), D, R>,
    ) -> Result<(), DryRunEnd> {
        stages.check_before_addresses(evaluation)?;
        self.parent = evaluation.parent().map(Box::from);
        self.check_addresses(evaluation, request, stages).await?;
        // The robots.txt of the host's real addresses, which the policy has not judged, is not fetched.
        let lookups = match request.address {
            Some(_) => LookupPermission::CacheOnly,
            None => request.lookups,
        };
        self.check_robots_and_stops(evaluation, lookups, stages)
            .await
    }

    /// Runs the stage on addresses as far as they are known.
    async fn check_addresses<D: DestinationResolver, R: RobotsProvider>(
        &mut self,
        evaluation: &mut Evaluation,
        request: &DryRunRequest,
        stages: &RequestStages<'_, (), D, R>,
    ) -> Result<(), Box<Refusal>> {
        if let Some(address) = request.address {
            let why = "the given one counts, without the rules of egress";
            self.add_not_asked(NotAskedSubject::Addresses, why);
            self.addresses = Some(DryRunAddresses {
                addresses: vec![address],
                source: DryRunAddressSource::Given,
            });
            let decision = destination::evaluate_address(evaluation, address);
            evaluation.set_decision(decision);
            return evaluation.ensure_admitted();
        }
        let destinations = stages.services.destinations;
        let egress = destination::egress_choice(evaluation);
        let known = destinations.vet_known(&evaluation.facts().target, egress);
        let (vetted, source) = match (known, request.lookups) {
            (Some(known), _) => (
                known.map_err(|error| evaluation.refuse(error.into())),
                DryRunAddressSource::Known,
            ),
            (None, LookupPermission::Fetch) => (
                destination::resolve(evaluation, destinations).await,
                DryRunAddressSource::Resolved,
            ),
            (None, LookupPermission::CacheOnly) => {
                self.add_not_asked(NotAskedSubject::Addresses, NOT_CACHED);
                return Ok(());
            }
        };
        let mut addresses = vetted?;
        let result = stages.check_addresses(evaluation, &mut addresses);
        if evaluation.parent().is_some() {
            let why = "the parent proxy resolves the name";
            self.add_not_asked(NotAskedSubject::Addresses, why);
            return result;
        }
        self.addresses = Some(DryRunAddresses {
            addresses: destination::all_addresses(&mut addresses).into_vec(),
            source,
        });
        result
    }

    async fn check_robots_and_stops<D: DestinationResolver, R: RobotsProvider>(
        &mut self,
        evaluation: &Evaluation,
        lookups: LookupPermission,
        stages: &RequestStages<'_, (), D, R>,
    ) -> Result<(), DryRunEnd> {
        let RequestServices {
            robots, admission, ..
        } = *stages.services;
        if stop::robots_txt_while_stopped(evaluation, robots, admission).is_some() {
            return Err(DryRunEnd::RobotsTxtServed);
        }
        self.stop = stop::current_refusal(evaluation, admission).map(Box::new);
        let must_fetch = robots::must_fetch(evaluation, robots);
        if must_fetch && let Some(stop) = &self.stop {
            let end = held(evaluation, stages, stop.clone());
            self.add_not_asked(NotAskedSubject::RobotsTxt, "a stop comes first");
            return Err(end);
        }
        if must_fetch && lookups == LookupPermission::Fetch {
            let fetch = robots::fetch_for_explanation(evaluation, robots, admission);
            // The fetch goes on; `evaluate_cached` reports what is known by then.
            let _ = tokio::time::timeout(FETCH_TIMEOUT, fetch).await;
        }
        let spacing = self.check_robots(evaluation, lookups, stages)?;
        if let Some(stop) = &self.stop {
            return Err(held(evaluation, stages, stop.clone()));
        }
        self.check_pace(evaluation, spacing, stages)
    }

    /// Applies the robots.txt that is cached, and returns the spacing that it requests.
    fn check_robots<D: DestinationResolver, R: RobotsProvider>(
        &mut self,
        evaluation: &Evaluation,
        lookups: LookupPermission,
        stages: &RequestStages<'_, (), D, R>,
    ) -> Result<Option<Duration>, DryRunEnd> {
        let RequestServices {
            robots, admission, ..
        } = *stages.services;
        match robots::evaluate_cached(evaluation, robots, admission) {
            CachedRobotsVerdict::NotObeyed => {
                self.robots = Some(DryRunRobots::NotObeyed);
                Ok(None)
            }
            CachedRobotsVerdict::NotCached => {
                let why = match lookups {
                    LookupPermission::Fetch => "still being fetched: ask again",
                    LookupPermission::CacheOnly => NOT_CACHED,
                };
                self.add_not_asked(NotAskedSubject::RobotsTxt, why);
                Ok(None)
            }
            CachedRobotsVerdict::AwaitsAttempt(state, refusal) => {
                self.add_robots(evaluation, &state, (admission.now(), admission.wall()));
                Err(held(evaluation, stages, refusal))
            }
            CachedRobotsVerdict::Decided(state, verdict) => {
                self.add_robots(evaluation, &state, (admission.now(), admission.wall()));
                match verdict? {
                    RobotsVerdict::Allow(allowance) => Ok(allowance.spacing),
                    RobotsVerdict::Serve(_) => Err(DryRunEnd::RobotsTxtServed),
                    RobotsVerdict::Repeat => Ok(None),
                }
            }
        }
    }

    fn add_robots(
        &mut self,
        evaluation: &Evaluation,
        state: &Arc<RobotsState>,
        times: (Instant, SystemTime),
    ) {
        let base = evaluation.facts().target.base();
        let status = RobotsFileStatus::new(base, evaluation.verify(), state, times);
        self.robots = status.map(|status| DryRunRobots::Known {
            age: times.0.saturating_duration_since(state.fetched_at()),
            status,
            agent: evaluation.robots_agent().token().into(),
        });
    }

    fn check_pace<D: DestinationResolver, R: RobotsProvider>(
        &mut self,
        evaluation: &Evaluation,
        spacing: Option<Duration>,
        stages: &RequestStages<'_, (), D, R>,
    ) -> Result<(), DryRunEnd> {
        let politeness = PolitenessOption::new(evaluation.policy(), evaluation.trail());
        let address = self
            .addresses
            .as_ref()
            .and_then(|known| known.addresses.first().copied());
        if address.is_none() {
            if politeness.key() == PaceKey::Address {
                self.add_not_asked(NotAskedSubject::Pace, "the address is paced, and not known");
                return Ok(());
            }
            if politeness.per_address().is_some() {
                let why = "that of the address, which is not known";
                self.add_not_asked(NotAskedSubject::Pace, why);
            }
        }
        let pacing = RequestPacing::new(evaluation, spacing, &stages.wait);
        let forecast = pace::forecast(&pacing, address, stages.services.admission);
        let end = forecast
            .refusal
            .clone()
            .map(|(refusal, is_held)| DryRunEnd::Refused {
                refusal,
                held_for: is_held.then_some(forecast.turn.max_wait),
            });
        self.pace = Some(forecast);
        end.map_or(Ok(()), Err)
    }

    fn add_not_asked(&mut self, subject: NotAskedSubject, why: &'static str) {
        self.not_asked.push(NotAsked { subject, why });
    }
}

/// Returns the end of a request that is held, unless the policy refuses to, and refused if the cause lasts.
fn held<D: DestinationResolver, R: RobotsProvider>(
    evaluation: &Evaluation,
    stages: &RequestStages<'_, (), D, R>,
    refusal: Box<Refusal>,
) -> DryRunEnd {
    let politeness = PolitenessOption::new(evaluation.policy(), evaluation.trail());
    let held_for = match politeness.overflow() {
        Overflow::Hold => Some(pace::max_wait(evaluation, &stages.wait)),
        Overflow::Refuse => None,
    };
    DryRunEnd::Refused { refusal, held_for }
}

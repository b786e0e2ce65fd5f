//! The stages from a request to its permit, in the test process and without sockets.

use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crawlgate::clock::{Clock, TimeSpan};
use crawlgate::metrics::Metrics;
use crawlgate::model::certificate_verification::CertificateVerification;
use crawlgate::model::crawler::Crawler;
use crawlgate::model::profile::Profile;
use crawlgate::model::reason::Reason;
use crawlgate::pipeline::admission::{AdmissionLimits, AdmissionQueue, HostSlot};
use crawlgate::pipeline::destination::{
    AddressList, DestinationError, DestinationResolver, EgressChoice, RemainingAddresses,
};
use crawlgate::pipeline::facts::RequestFacts;
use crawlgate::pipeline::refusal::Refusal;
use crawlgate::pipeline::request::dry_run::{DryRun, DryRunRequest, DryRunner, dry_run};
use crawlgate::pipeline::request::{
    IncomingRequest, NotSent, RequestResult, RequestServices, admit_request,
};
use crawlgate::pipeline::robots_fetch::{CachedRobots, RobotsFetchRequest, RobotsProvider};
use crawlgate::pipeline::snapshot::{ActivePolicy, PolicySnapshot};
use crawlgate::pipeline::stop_registry::StopRegistry;
use crawlgate::pipeline::tunnel::{TunnelFacts, TunnelResult, TunnelServices, admit_tunnel};
use crawlgate::policy::Policy;
use crawlgate::robots::fetch_outcome::RobotsFetchOutcome;
use crawlgate::robots::state::{RobotsFetchResult, RobotsState};
use crawlgate::store::HostStore;
use crawlgate::urls::target::{HostTarget, UrlTarget};
use tokio::task::JoinHandle;

/// The snapshot of a policy, with metrics of its own.
pub(crate) fn snapshot_of(policy: impl Into<Arc<Policy>>) -> PolicySnapshot {
    let policy = policy.into();
    let metrics = Metrics::new(&[], &[]).unwrap();
    let counters = metrics.register_policy(policy.name(), policy.revision(), [], &Clock::system());
    PolicySnapshot::new(policy, counters)
}

/// The facts of a GET with these header fields.
pub(crate) fn request_facts(crawler: Crawler, url: &str, fields: &[(&str, &str)]) -> RequestFacts {
    let mut head = http::Request::builder().uri(url);
    for (name, value) in fields {
        head = head.header(*name, *value);
    }
    let (parts, ()) = head.body(()).unwrap().into_parts();
    RequestFacts::new(UrlTarget::parse(url).unwrap(), crawler, &parts)
}

/// A request whose crawler and target are known.
pub(crate) struct KnownRequest(pub(crate) RequestFacts);

impl IncomingRequest for KnownRequest {
    async fn identify(&mut self) -> Result<Crawler, Box<Refusal>> {
        Ok(self.0.crawler.clone())
    }

    fn target(&mut self) -> Result<UrlTarget, Box<Refusal>> {
        Ok(self.0.target.clone())
    }

    fn facts(&self, _target: UrlTarget, _crawler: Crawler) -> RequestFacts {
        self.0.clone()
    }

    fn profile(&self) -> Profile {
        Profile::Generic
    }
}

/// A state in the cache of robots.txt.
#[derive(Clone)]
pub(crate) enum ScriptedState {
    Fresh(Arc<RobotsState>),
    Expired(Arc<RobotsState>),
    /// Too old to apply.
    Outdated(Arc<RobotsState>),
}

impl ScriptedState {
    pub(crate) fn cached(&self) -> Option<CachedRobots> {
        match self {
            Self::Fresh(state) => Some(CachedRobots::Fresh(Arc::clone(state))),
            Self::Expired(state) => Some(CachedRobots::Expired(Arc::clone(state))),
            Self::Outdated(_) => None,
        }
    }

    fn state(&self) -> &Arc<RobotsState> {
        match self {
            Self::Fresh(state) | Self::Expired(state) | Self::Outdated(state) => state,
        }
    }
}

/// The robots.txt files of all hosts, and the number of their fetches.
#[derive(Clone, Default)]
pub(crate) struct ScriptedRobots {
    /// The state before the first fetch; after it, no host has a robots.txt.
    pub(crate) before_fetch: Option<ScriptedState>,
    /// If not set, a fetch is a failure of the test.
    pub(crate) may_fetch: bool,
    fetches: Arc<AtomicUsize>,
}

impl ScriptedRobots {
    /// Every host has this robots.txt.
    pub(crate) fn with_file(file: &str, now: Instant) -> Self {
        let fetched = RobotsFetchResult {
            status: Some(200),
            body: file.as_bytes(),
            ..RobotsFetchResult::failed(RobotsFetchOutcome::File)
        };
        let state = RobotsState::from_fetch(None, &fetched, now);
        Self {
            before_fetch: Some(ScriptedState::Fresh(Arc::new(state))),
            ..Self::default()
        }
    }

    pub(crate) fn fetches(&self) -> usize {
        self.fetches.load(Ordering::SeqCst)
    }
}

/// The state after a fetch without a file. The time of the fetch is always the same, since the pipeline evaluates a
/// request again if the state is newer.
pub(crate) fn robots_state(outcome: RobotsFetchOutcome) -> Arc<RobotsState> {
    static FETCHED_AT: OnceLock<Instant> = OnceLock::new();
    let fetched_at = *FETCHED_AT.get_or_init(|| Clock::from_runtime().now());
    let result = RobotsFetchResult::failed(outcome);
    Arc::new(RobotsState::from_fetch(None, &result, fetched_at))
}

impl RobotsProvider for ScriptedRobots {
    fn cached(&self, _: &UrlTarget, _: CertificateVerification) -> Option<CachedRobots> {
        if self.fetches() > 0 {
            return Some(CachedRobots::Fresh(robots_state(
                RobotsFetchOutcome::Absent,
            )));
        }
        self.before_fetch.as_ref().and_then(ScriptedState::cached)
    }

    fn last_known(&self, _: &UrlTarget, _: CertificateVerification) -> Option<Arc<RobotsState>> {
        let state = self.before_fetch.as_ref()?.state();
        state.is_known().then(|| Arc::clone(state))
    }

    fn refresh(
        &self,
        _: &UrlTarget,
        _: CertificateVerification,
        _: Option<Instant>,
        _: impl FnOnce() -> RobotsFetchRequest,
    ) {
        assert!(self.may_fetch, "a robots.txt is renewed");
    }

    async fn fetch(&self, _: &UrlTarget, _: RobotsFetchRequest) -> Arc<RobotsState> {
        assert!(self.may_fetch, "a robots.txt is fetched");
        self.fetches.fetch_add(1, Ordering::SeqCst);
        robots_state(RobotsFetchOutcome::Absent)
    }
}

/// The addresses of a host in a test.
#[derive(Debug)]
pub(crate) struct StaticAddresses(pub(crate) Vec<IpAddr>);

impl AddressList for StaticAddresses {
    fn retain(&mut self, keep: &mut dyn FnMut(IpAddr) -> bool) -> RemainingAddresses {
        self.0.retain(|address| keep(*address));
        if self.0.is_empty() {
            RemainingAddresses::None
        } else {
            RemainingAddresses::Some
        }
    }

    fn first(&self) -> Option<IpAddr> {
        self.0.first().copied()
    }

    fn lookup_time(&self) -> Option<TimeSpan> {
        None
    }
}

type AddressFunction = dyn Fn(&str) -> Vec<IpAddr> + Send + Sync;

/// A resolver that finds addresses by a function of the host.
#[derive(Clone)]
pub(crate) struct StaticResolver {
    addresses: Arc<AddressFunction>,
    lookups: Arc<AtomicUsize>,
}

impl StaticResolver {
    pub(crate) fn new(addresses: impl Fn(&str) -> Vec<IpAddr> + Send + Sync + 'static) -> Self {
        Self {
            addresses: Arc::new(addresses),
            lookups: Arc::default(),
        }
    }

    /// Every host is on 127.0.0.1.
    pub(crate) fn loopback() -> Self {
        Self::new(|_| vec![IpAddr::V4(Ipv4Addr::LOCALHOST)])
    }

    /// The number of look-ups.
    pub(crate) fn lookups(&self) -> usize {
        self.lookups.load(Ordering::SeqCst)
    }

    fn look_up(&self, host: &str) -> StaticAddresses {
        self.lookups.fetch_add(1, Ordering::SeqCst);
        StaticAddresses((self.addresses)(host))
    }
}

impl DestinationResolver for StaticResolver {
    type Addresses = StaticAddresses;

    async fn vet(
        &self,
        target: &UrlTarget,
        _: EgressChoice<'_>,
    ) -> Result<StaticAddresses, DestinationError> {
        Ok(self.look_up(target.host()))
    }

    async fn vet_host(
        &self,
        host: &HostTarget,
        _: EgressChoice<'_>,
    ) -> Result<StaticAddresses, DestinationError> {
        Ok(self.look_up(host.host()))
    }
}

/// The pipeline under a policy.
#[derive(Clone)]
pub(crate) struct TestPipeline {
    pub(crate) active_policy: Arc<ActivePolicy>,
    pub(crate) admission: Arc<AdmissionQueue>,
    pub(crate) robots: ScriptedRobots,
    pub(crate) resolver: StaticResolver,
    pub(crate) clock: Clock,
    pub(crate) metrics: Metrics,
}

/// The result of a request.
#[derive(Debug)]
pub(crate) struct Admission {
    pub(crate) outcome: Result<HostSlot, Box<Refusal>>,
    /// The time for which the request was held.
    pub(crate) wait_time: Option<Duration>,
    /// The revision of the policy that decided.
    pub(crate) revision: String,
    pub(crate) at: Instant,
}

impl Admission {
    /// The slot, and the time for which the request was held.
    #[track_caller]
    pub(crate) fn admitted(self) -> (HostSlot, Option<Duration>) {
        let slot = self.outcome.unwrap_or_else(|refusal| panic!("{refusal:?}"));
        (slot, self.wait_time)
    }

    /// The reason, and the seconds of `Retry-After`.
    #[track_caller]
    pub(crate) fn refused(self) -> (Reason, Option<u64>) {
        let refusal = self.outcome.unwrap_err();
        let retry_after = refusal.retry_after.map(|time| time.as_secs());
        (refusal.reason, retry_after)
    }

    /// The reason of a refusal.
    pub(crate) fn reason(&self) -> Option<Reason> {
        self.outcome.as_ref().err().map(|refusal| refusal.reason)
    }
}

impl TestPipeline {
    /// A pipeline in which every host is on 127.0.0.1 and has no robots.txt.
    pub(crate) fn new(snapshot: PolicySnapshot, limits: AdmissionLimits, clock: Clock) -> Self {
        let metrics = Metrics::new(&[], &[]).unwrap();
        let admission =
            AdmissionQueue::new(HostStore::new(), limits, clock.clone(), metrics.clone());
        Self {
            active_policy: Arc::new(ActivePolicy::new(snapshot)),
            admission: Arc::new(admission),
            robots: ScriptedRobots::default(),
            resolver: StaticResolver::loopback(),
            clock,
            metrics,
        }
    }

    pub(crate) fn stops(&self) -> &StopRegistry {
        self.admission.stops()
    }

    pub(crate) fn services(&self) -> RequestServices<'_, StaticResolver, ScriptedRobots> {
        RequestServices {
            destinations: &self.resolver,
            robots: &self.robots,
            active_policy: &self.active_policy,
            admission: &self.admission,
            ledger: None,
        }
    }

    /// Takes a request to its permit or to its refusal.
    pub(crate) async fn admit(
        &self,
        crawler: Crawler,
        url: &str,
        fields: &[(&str, &str)],
    ) -> RequestResult<StaticAddresses> {
        let mut request = KnownRequest(request_facts(crawler, url, fields));
        admit_request(
            &mut request,
            &mut (),
            self.active_policy.load(),
            &self.services(),
        )
        .await
        .unwrap()
    }

    pub(crate) async fn ask(&self, url: &str) -> Admission {
        self.ask_with(url, &[]).await
    }

    pub(crate) async fn ask_with(&self, url: &str, fields: &[(&str, &str)]) -> Admission {
        self.ask_as(Crawler::anonymous(), url, fields).await
    }

    pub(crate) async fn ask_as(
        &self,
        crawler: Crawler,
        url: &str,
        fields: &[(&str, &str)],
    ) -> Admission {
        let result = self.admit(crawler, url, fields).await;
        let outcome = match result.outcome {
            Ok(permit) => Ok(permit.redeem().2),
            Err(NotSent::ServeRobots(_)) => panic!("no test requests a robots.txt"),
            Err(NotSent::ClientLeft) => panic!("no test has a body"),
            Err(NotSent::Refuse(refusal)) => Err(refusal),
        };
        Admission {
            outcome,
            wait_time: result.wait_time,
            revision: result.evaluation.policy().revision().to_owned(),
            at: self.clock.now(),
        }
    }

    /// Takes a CONNECT to its permit or to its refusal.
    pub(crate) async fn admit_tunnel(
        &self,
        authority: &str,
        max_wait: Duration,
    ) -> TunnelResult<StaticAddresses> {
        let facts = TunnelFacts {
            host: HostTarget::parse_authority(authority).unwrap(),
            crawler: Crawler::anonymous(),
        };
        let services = TunnelServices {
            destinations: &self.resolver,
            active_policy: &self.active_policy,
            admission: &self.admission,
            max_wait,
        };
        admit_tunnel(facts, self.active_policy.load(), &services).await
    }

    /// Makes a request on a task of its own.
    pub(crate) fn start(&self, url: &str) -> JoinHandle<Admission> {
        let pipeline = self.clone();
        let url = url.to_owned();
        tokio::spawn(async move { pipeline.ask(&url).await })
    }

    /// The value of a series, after a sweep of the hosts.
    #[track_caller]
    pub(crate) fn metric(&self, series: &str) -> f64 {
        self.admission.sweep();
        let text = self.metrics.render();
        let mut lines = text.lines();
        let value = lines.find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        value
            .unwrap_or_else(|| panic!("no {series}"))
            .parse()
            .unwrap()
    }

    /// Waits until this number of requests are held.
    pub(crate) async fn wait_until_held(&self, count: f64) {
        let start = Instant::now();
        while self.metric("crawlgate_held_requests") != count {
            assert!(
                start.elapsed() < Duration::from_secs(5),
                "{count} requests are not held"
            );
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Dry runs through a pipeline of its own, which knows no host.
struct PipelineRuns(TestPipeline);

impl std::fmt::Debug for PipelineRuns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PipelineRuns")
    }
}

impl DryRunner for PipelineRuns {
    fn dry_run(&self, request: DryRunRequest) -> Pin<Box<dyn Future<Output = DryRun> + Send + '_>> {
        Box::pin(async move { dry_run(request, &self.0.services()).await })
    }
}

/// Dry runs under a policy, in a pipeline that has seen no request.
pub(crate) fn dry_runner(active_policy: &Arc<ActivePolicy>) -> Arc<dyn DryRunner> {
    let limits = AdmissionLimits {
        per_host: 10,
        total: 10,
        max_wait: Duration::from_secs(60),
    };
    let clock = Clock::system();
    let metrics = Metrics::new(&[], &[]).unwrap();
    let admission = AdmissionQueue::new(HostStore::new(), limits, clock.clone(), metrics.clone());
    Arc::new(PipelineRuns(TestPipeline {
        active_policy: Arc::clone(active_policy),
        admission: Arc::new(admission),
        robots: ScriptedRobots::default(),
        resolver: StaticResolver::loopback(),
        clock,
        metrics,
    }))
}

//! The gate alone, with time that stands still, for tests of stops.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crawlgate::clock::Clock;
use crawlgate::metrics::Metrics;
use crawlgate::model::certificate_verification::CertificateVerification;
use crawlgate::model::crawler::Crawler;
use crawlgate::model::reason::Reason;
use crawlgate::model::rule_id::Slug;
use crawlgate::pipeline::admission::{AdmissionLimits, AdmissionQueue, HostSlot};
use crawlgate::pipeline::facts::RequestFacts;
use crawlgate::pipeline::refusal::Refusal;
use crawlgate::pipeline::request::{NotForwarded, RequestResult, RequestServices, admit_request};
use crawlgate::pipeline::robots_fetch::{CachedRobots, RobotsFetchRequest, RobotsProvider};
use crawlgate::pipeline::snapshot::{ActivePolicy, PolicySnapshot};
use crawlgate::pipeline::stop_registry::StopRegistry;
use crawlgate::policy::compile;
use crawlgate::policy::source::MemoryFileSystem;
use crawlgate::robots::fetch_outcome::RobotsFetchOutcome;
use crawlgate::robots::state::{RobotsFetchResult, RobotsState};
use crawlgate::store::HostStore;
use crawlgate::urls::target::UrlTarget;
use tokio::task::JoinHandle;

use crate::support::way::{Anywhere, KnownRequest, snapshot_of};

pub(super) const SECOND: Duration = Duration::from_secs(1);

/// Robots.txt that is known from the first fetch on, and allows all; before that, what an old fetch has come to, if there
/// was one.
#[derive(Clone, Default)]
pub(super) struct Files {
    fetched: Arc<AtomicUsize>,
    pub(super) before: Option<RobotsFetchOutcome>,
}

impl Files {
    pub(super) fn fetched(&self) -> usize {
        self.fetched.load(Ordering::SeqCst)
    }
}

/// All of one fetch, however often it is asked for: a newer one would have requests judged again.
fn known(ending: RobotsFetchOutcome) -> Arc<RobotsState> {
    static FETCHED: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    let now = *FETCHED.get_or_init(|| Clock::from_runtime().now());
    Arc::new(RobotsState::from_fetch(
        None,
        &RobotsFetchResult::failed(ending),
        now,
    ))
}

impl RobotsProvider for Files {
    fn cached(&self, _: &UrlTarget, _: CertificateVerification) -> Option<CachedRobots> {
        if self.fetched() > 0 {
            return Some(CachedRobots::Fresh(known(RobotsFetchOutcome::Absent)));
        }
        self.before
            .map(|ending| CachedRobots::Expired(known(ending)))
    }

    fn refresh(
        &self,
        _: &UrlTarget,
        _: CertificateVerification,
        _: impl FnOnce() -> RobotsFetchRequest,
    ) {
    }

    async fn fetch(&self, _: &UrlTarget, _: RobotsFetchRequest) -> Arc<RobotsState> {
        self.fetched.fetch_add(1, Ordering::SeqCst);
        known(RobotsFetchOutcome::Absent)
    }
}

#[derive(Clone)]
pub(super) struct Bench {
    pub(super) in_force: Arc<ActivePolicy>,
    pub(super) hold: Arc<AdmissionQueue>,
    metrics: Metrics,
    pub(super) files: Files,
    pub(super) clock: Clock,
}

/// What came of a request, and when.
pub(super) struct Came {
    pub(super) outcome: Result<HostSlot, Box<Refusal>>,
    pub(super) held: Option<Duration>,
    pub(super) revision: String,
    pub(super) at: Instant,
}

impl Bench {
    pub(super) fn new(politeness: &str, rules: &str) -> Self {
        Self::with_places(politeness, rules, 100)
    }

    pub(super) fn with_places(politeness: &str, rules: &str, of_all: usize) -> Self {
        let (clock, metrics) = (Clock::from_runtime(), Metrics::new(&[], &[]).unwrap());
        let limits = AdmissionLimits {
            per_host: 100,
            total: of_all,
            max_wait: 60 * SECOND,
        };
        let hold = Arc::new(AdmissionQueue::new(
            HostStore::new(),
            limits,
            clock.clone(),
            metrics.clone(),
        ));
        let in_force = Arc::new(ActivePolicy::new(snapshot(politeness, rules)));
        Self {
            in_force,
            hold,
            metrics,
            files: Files::default(),
            clock,
        }
    }

    pub(super) fn stops(&self) -> &StopRegistry {
        self.hold.stops()
    }

    pub(super) async fn ask(&self, crawler: &Crawler, url: &str, fields: &[(&str, &str)]) -> Came {
        let mut head = http::Request::builder().uri(url);
        for (name, value) in fields {
            head = head.header(*name, *value);
        }
        let (parts, ()) = head.body(()).unwrap().into_parts();
        let asked = RequestFacts::new(UrlTarget::parse(url).unwrap(), crawler.clone(), &parts);
        let way = RequestServices {
            destinations: &Anywhere,
            robots: &self.files,
            active_policy: &self.in_force,
            admission: &self.hold,
            ledger: None,
        };
        let RequestResult {
            outcome,
            evaluation: judged,
            wait_time: held,
        } = admit_request(&mut KnownRequest(asked), self.in_force.load(), &way)
            .await
            .unwrap();
        let outcome = match outcome {
            Ok(permit) => Ok(permit.redeem().2),
            Err(NotForwarded::ServeRobots(_)) => panic!("nobody asks for a robots.txt"),
            Err(NotForwarded::Refuse(refusal)) => Err(refusal),
        };
        let revision = judged.policy().revision().to_owned();
        Came {
            outcome,
            held,
            revision,
            at: self.clock.now(),
        }
    }

    pub(super) fn start(&self, url: &str) -> JoinHandle<Came> {
        let (bench, url) = (self.clone(), url.to_owned());
        tokio::spawn(async move { bench.ask(&Crawler::anonymous(), &url, &[]).await })
    }

    pub(super) fn gauge(&self, name: &str) -> f64 {
        self.hold.sweep();
        let text = self.metrics.render();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name}")).parse().unwrap()
    }
}

impl Came {
    pub(super) fn went(self) -> (HostSlot, Option<Duration>) {
        (
            self.outcome.unwrap_or_else(|refusal| panic!("{refusal:?}")),
            self.held,
        )
    }

    /// The reason, and the seconds of `Retry-After`.
    pub(super) fn refused(self) -> (Reason, Option<u64>) {
        let refusal = self.outcome.unwrap_err();
        (
            refusal.reason,
            refusal.retry_after.map(|time| time.as_secs()),
        )
    }
}

pub(super) fn snapshot(politeness: &str, rules: &str) -> PolicySnapshot {
    let text = format!(
        "policy: 1\nname: p\noptions: {{ disposition: allow, politeness: {politeness} }}\nrules: [{rules}]\n"
    );
    let compiled = compile::load(&MemoryFileSystem::new().with_file("p.yaml", text), "p.yaml");
    snapshot_of(
        compiled
            .unwrap_or_else(|problems| panic!("{problems:?}"))
            .policy,
    )
}

pub(super) fn crawler(name: &str) -> Crawler {
    Crawler::new(&Slug::new(name).unwrap())
}

pub(super) const FREE: &str = "{ delay: 0s, max_hold: 20s }";

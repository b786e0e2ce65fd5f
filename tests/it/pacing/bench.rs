//! A gate under a policy, hosts with addresses and robots.txt that a test gives them, and a clock of the test's.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use crawlgate::clock::Clock;
use crawlgate::metrics::Metrics;
use crawlgate::model::certificate_verification::CertificateVerification;
use crawlgate::model::crawler::Crawler;
use crawlgate::model::reason::Reason;
use crawlgate::pipeline::admission::{AdmissionLimits, AdmissionQueue, HostSlot};
use crawlgate::pipeline::destination::{
    AddressList, DestinationError, DestinationResolver, RemainingAddresses,
};
use crawlgate::pipeline::facts::RequestFacts;
use crawlgate::pipeline::request::{NotForwarded, RequestResult, RequestServices, admit_request};
use crawlgate::pipeline::robots_fetch::{CachedRobots, RobotsFetchRequest, RobotsProvider};
use crawlgate::pipeline::snapshot::ActivePolicy;
use crawlgate::pipeline::tunnel::{TunnelFacts, TunnelServices, admit_tunnel};
use crawlgate::policy::compile;
use crawlgate::policy::source::MemoryFileSystem;
use crawlgate::robots::fetch_outcome::RobotsFetchOutcome;
use crawlgate::robots::state::{RobotsFetchResult, RobotsState};
use crawlgate::store::HostStore;
use crawlgate::urls::target::{HostTarget, UrlTarget};

use crate::support::way::{KnownRequest, snapshot_of};
use tokio::task::JoinHandle;

/// Every host has the same robots.txt.
struct OneFile(Arc<RobotsState>);

impl RobotsProvider for OneFile {
    fn cached(
        &self,
        _target: &UrlTarget,
        _verify: CertificateVerification,
    ) -> Option<CachedRobots> {
        Some(CachedRobots::Fresh(Arc::clone(&self.0)))
    }

    fn refresh(
        &self,
        _target: &UrlTarget,
        _verify: CertificateVerification,
        _errand: impl FnOnce() -> RobotsFetchRequest,
    ) {
        unreachable!("it is fresh")
    }

    async fn fetch(&self, _target: &UrlTarget, _errand: RobotsFetchRequest) -> Arc<RobotsState> {
        unreachable!("it is known")
    }
}

/// Hosts of one letter before the dot have the address 192.0.2.1, others 192.0.2.2.
struct TwoAddresses;

struct At(IpAddr);

impl AddressList for At {
    fn retain(&mut self, _keep: &mut dyn FnMut(IpAddr) -> bool) -> RemainingAddresses {
        RemainingAddresses::Some
    }

    fn first(&self) -> Option<IpAddr> {
        Some(self.0)
    }

    fn lookup_time(&self) -> Option<crawlgate::clock::TimeSpan> {
        None
    }
}

fn address_of(host: &str) -> At {
    let last = if host.find('.') == Some(1) { 1 } else { 2 };
    At(IpAddr::V4(Ipv4Addr::new(192, 0, 2, last)))
}

impl DestinationResolver for TwoAddresses {
    type Addresses = At;

    async fn vet(&self, target: &UrlTarget) -> Result<At, DestinationError> {
        Ok(address_of(target.host()))
    }

    async fn vet_host(&self, host: &HostTarget) -> Result<At, DestinationError> {
        Ok(address_of(host.host()))
    }
}

/// The gate.
#[derive(Clone)]
pub(super) struct Bench {
    in_force: Arc<ActivePolicy>,
    robots: Arc<OneFile>,
    pub(super) hold: Arc<AdmissionQueue>,
    metrics: Metrics,
}

/// What came of a request.
#[derive(Debug)]
pub(super) enum Came {
    /// It went, having been held for this long.
    Went(HostSlot, Option<Duration>),
    /// It was refused, to come back after so many seconds.
    Refused(Reason, Option<u64>),
}

impl Came {
    pub(super) fn went(self) -> (HostSlot, Option<Duration>) {
        match self {
            Self::Went(slot, held) => (slot, held),
            Self::Refused(..) => panic!("{self:?}"),
        }
    }

    pub(super) fn refused(self) -> (Reason, Option<u64>) {
        match self {
            Self::Went(..) => panic!("{self:?}"),
            Self::Refused(reason, after) => (reason, after),
        }
    }
}

impl Bench {
    /// Options in YAML's flow style, behind `disposition: allow`; robots.txt is not asked for.
    pub(super) fn new(politeness: &str, clock: Clock) -> Self {
        Self::with_robots("{ obey: false }", politeness, "", "", clock)
    }

    /// The options `robots` and `politeness`, rules, and the robots.txt of every host.
    pub(super) fn with_robots(
        robots: &str,
        politeness: &str,
        rules: &str,
        file: &str,
        clock: Clock,
    ) -> Self {
        let text = format!(
            "policy: 1\nname: p\noptions: {{ disposition: allow, robots: {robots}, politeness: {politeness} }}\n\
             rules: [{rules}]\n"
        );
        let files = MemoryFileSystem::new().with_file("p.yaml", text);
        let compiled = compile::load(&files, "p.yaml");
        let policy = compiled
            .unwrap_or_else(|problems| panic!("{problems:?}"))
            .policy;
        let fetched = RobotsFetchResult {
            status: Some(200),
            body: file.as_bytes(),
            ..RobotsFetchResult::failed(RobotsFetchOutcome::File)
        };
        let known = Arc::new(RobotsState::from_fetch(None, &fetched, clock.now()));
        let metrics = Metrics::new(&[], &[]).unwrap();
        let limits = AdmissionLimits {
            per_host: 100,
            total: 1_000,
            max_wait: Duration::from_secs(600),
        };
        let hold = Arc::new(AdmissionQueue::new(
            HostStore::new(),
            limits,
            clock,
            metrics.clone(),
        ));
        let in_force = Arc::new(ActivePolicy::new(snapshot_of(policy)));
        Self {
            in_force,
            robots: Arc::new(OneFile(known)),
            hold,
            metrics,
        }
    }

    pub(super) async fn ask(&self, url: &str) -> Came {
        self.ask_for(url, "document").await
    }

    /// `dest` is what a browser asks it for: `document`, `image`.
    pub(super) async fn ask_for(&self, url: &str, dest: &str) -> Came {
        let head = http::Request::builder()
            .uri(url)
            .header("sec-fetch-dest", dest);
        let (parts, ()) = head.body(()).unwrap().into_parts();
        let asked = RequestFacts::new(UrlTarget::parse(url).unwrap(), Crawler::anonymous(), &parts);
        let way = RequestServices {
            destinations: &TwoAddresses,
            robots: &*self.robots,
            active_policy: &self.in_force,
            admission: &self.hold,
            ledger: None,
        };
        let RequestResult {
            outcome,
            wait_time: held,
            ..
        } = admit_request(&mut KnownRequest(asked), self.in_force.load(), &way)
            .await
            .unwrap();
        match outcome {
            Ok(permit) => Came::Went(permit.redeem().2, held),
            Err(NotForwarded::ServeRobots(_)) => unreachable!("nobody asks for it"),
            Err(NotForwarded::Refuse(refusal)) => Came::Refused(
                refusal.reason,
                refusal.retry_after.map(|after| after.as_secs()),
            ),
        }
    }

    pub(super) async fn open_tunnel(&self, host: &str) -> Option<HostSlot> {
        let asked = TunnelFacts {
            host: HostTarget::parse_authority(host).unwrap(),
            crawler: Crawler::anonymous(),
        };
        let way = TunnelServices {
            destinations: &TwoAddresses,
            active_policy: &self.in_force,
            admission: &self.hold,
            max_wait: Duration::ZERO,
        };
        let passage = admit_tunnel(asked, self.in_force.load(), &way).await;
        passage.outcome.ok().map(|permit| permit.redeem().2)
    }

    /// One that goes, is sent, and ends with so many bytes of an answer. For how long it was held.
    pub(super) async fn pass(&self, url: &str, bytes: usize) -> Option<Duration> {
        let (mut slot, held) = self.ask(url).await.went();
        slot.record_sent();
        slot.record_received(bytes);
        slot.record_response(http::StatusCode::OK, &http::HeaderMap::new());
        held
    }

    pub(super) fn start(&self, url: &str) -> JoinHandle<Came> {
        let (bench, url) = (self.clone(), url.to_owned());
        tokio::spawn(async move { bench.ask(&url).await })
    }

    pub(super) fn metric(&self, name: &str) -> f64 {
        self.hold.sweep();
        let text = self.metrics.render();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name}")).parse().unwrap()
    }
}

/// Lets everything that is ready run, without time passing.
pub(super) async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

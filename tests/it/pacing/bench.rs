//! A gate under a policy, hosts with addresses and robots.txt that a test gives them, and a clock of the test's.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use crawlgate::clock::Clock;
use crawlgate::gate::destination::{Addresses, Destinations, Remaining, Unreachable};
use crawlgate::gate::hold::{Hold, HoldLimits, Slot};
use crawlgate::gate::judged::Asked;
use crawlgate::gate::request::{Outcome, Passage, Waits, Way, request};
use crawlgate::gate::robots::{Errand, Found, RobotsFiles};
use crawlgate::gate::snapshot::{InForce, Snapshot};
use crawlgate::gate::tunnel::{TunnelAsked, TunnelWay, tunnel};
use crawlgate::metrics::Metrics;
use crawlgate::policy::compile;
use crawlgate::policy::source::MemoryFiles;
use crawlgate::robots::ending::Ending;
use crawlgate::robots::standing::{Fetched, Known};
use crawlgate::store::Store;
use crawlgate::vocab::crawler::Crawler;
use crawlgate::vocab::profile::Profile;
use crawlgate::vocab::reason::Reason;
use crawlgate::vocab::target::{HostTarget, UrlTarget};
use crawlgate::vocab::verify::Verify;
use tokio::task::JoinHandle;

/// Every host has the same robots.txt.
struct OneFile(Arc<Known>);

impl RobotsFiles for OneFile {
    fn known(&self, _target: &UrlTarget, _verify: Verify) -> Option<Found> {
        Some(Found::Fresh(Arc::clone(&self.0)))
    }

    fn renew(&self, _target: &UrlTarget, _verify: Verify, _errand: impl FnOnce() -> Errand) {
        unreachable!("it is fresh")
    }

    async fn fetch(&self, _target: &UrlTarget, _errand: Errand) -> Arc<Known> {
        unreachable!("it is known")
    }
}

/// Hosts of one letter before the dot have the address 192.0.2.1, others 192.0.2.2.
struct TwoAddresses;

struct At(IpAddr);

impl Addresses for At {
    fn retain(&mut self, _keep: &mut dyn FnMut(IpAddr) -> bool) -> Remaining {
        Remaining::Some
    }

    fn first(&self) -> Option<IpAddr> {
        Some(self.0)
    }

    fn found_in(&self) -> Option<crawlgate::clock::Lapse> {
        None
    }
}

fn address_of(host: &str) -> At {
    let last = if host.find('.') == Some(1) { 1 } else { 2 };
    At(IpAddr::V4(Ipv4Addr::new(192, 0, 2, last)))
}

impl Destinations for TwoAddresses {
    type Vetted = At;

    async fn vet(&self, target: &UrlTarget) -> Result<At, Unreachable> {
        Ok(address_of(target.host()))
    }

    async fn vet_host(&self, host: &HostTarget) -> Result<At, Unreachable> {
        Ok(address_of(host.host()))
    }
}

/// The gate.
#[derive(Clone)]
pub(super) struct Bench {
    in_force: Arc<InForce<()>>,
    robots: Arc<OneFile>,
    pub(super) hold: Arc<Hold>,
    metrics: Metrics,
}

/// What came of a request.
#[derive(Debug)]
pub(super) enum Came {
    /// It went, having been held for this long.
    Went(Slot, Option<Duration>),
    /// It was refused, to come back after so many seconds.
    Refused(Reason, Option<u64>),
}

impl Came {
    pub(super) fn went(self) -> (Slot, Option<Duration>) {
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
        let files = MemoryFiles::new().with("p.yaml", text);
        let compiled = compile::load(&files, "p.yaml");
        let policy = compiled
            .unwrap_or_else(|problems| panic!("{problems:?}"))
            .policy;
        let fetched = Fetched {
            status: Some(200),
            body: file.as_bytes(),
            ..Fetched::failed(Ending::File)
        };
        let known = Arc::new(Known::after(None, &fetched, clock.now()));
        let metrics = Metrics::new(&[], &[]).unwrap();
        let limits = HoldLimits {
            of_one: 100,
            of_all: 1_000,
            longest: Duration::from_secs(600),
        };
        let hold = Arc::new(Hold::new(Store::embedded(), limits, clock, metrics.clone()));
        let in_force = Arc::new(InForce::new(Snapshot::new(policy, ())));
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
        let asked = Asked::new(UrlTarget::parse(url).unwrap(), Crawler::anonymous(), &parts);
        let waits = Waits {
            hold: &self.hold,
            profile: &|| Profile::Generic,
        };
        let way = Way {
            destinations: &TwoAddresses,
            robots: &*self.robots,
            in_force: &self.in_force,
            waits,
            ledger: None,
        };
        let Passage { outcome, held, .. } = request(asked, self.in_force.load(), &way).await;
        match outcome {
            Outcome::Forward(permit) => Came::Went(permit.redeem().2, held),
            Outcome::Robots(_) => unreachable!("nobody asks for it"),
            Outcome::Answer(refusal) => Came::Refused(
                refusal.reason,
                refusal.retry_after.map(|after| after.as_secs()),
            ),
        }
    }

    pub(super) async fn open_tunnel(&self, host: &str) -> Option<Slot> {
        let asked = TunnelAsked {
            host: HostTarget::parse_authority(host).unwrap(),
            crawler: Crawler::anonymous(),
        };
        let way = TunnelWay {
            destinations: &TwoAddresses,
            in_force: &self.in_force,
            hold: &self.hold,
            patience: Duration::ZERO,
        };
        let passage = tunnel(asked, self.in_force.load(), &way).await;
        passage.outcome.ok().map(|permit| permit.redeem().2)
    }

    /// One that goes, is sent, and ends with so many bytes of an answer. For how long it was held.
    pub(super) async fn pass(&self, url: &str, bytes: usize) -> Option<Duration> {
        let (mut slot, held) = self.ask(url).await.went();
        slot.sent();
        slot.received(bytes);
        slot.answered(http::StatusCode::OK, &http::HeaderMap::new());
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

//! The crawlers: each asks some hosts for one page after the other, through the gate.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crawlgate::clock::Clock;
use crawlgate::metrics::Metrics;
use crawlgate::model::crawler::{Crawler, CrawlerHint};
use crawlgate::model::rule_id::Slug;
use crawlgate::pacing::stops::StopReason;
use crawlgate::pipeline::admission::{AdmissionLimits, AdmissionQueue, HostSlot};
use crawlgate::pipeline::request::{NotSent, RequestServices, admit_request};
use crawlgate::pipeline::snapshot::ActivePolicy;
use crawlgate::pipeline::stop_registry::StopTarget;
use crawlgate::store::HostStore;
use fastrand::Rng;
use http::StatusCode;
use http::header::{HeaderMap, HeaderValue, RETRY_AFTER};
use tokio::time::{sleep, sleep_until, timeout, timeout_at};

use super::laws::{GrantKind, LawVerdict, Laws, ObservedGrant};
use super::sites::{CLASSES, Extra, STOPPED, STOPS, Sort, Temper, address_of, policy, sort_of};
use crate::support::pipeline::{KnownRequest, ScriptedRobots, StaticResolver, request_facts};

/// The size of the simulation.
#[derive(Clone, Copy)]
pub(super) struct Scale {
    pub(super) crawlers: usize,
    pub(super) sites: usize,
    pub(super) time: Duration,
}

/// The number of crawlers of a host.
const CRAWLERS_OF_A_HOST: usize = 6;
/// To open a connection takes so long; sometimes one must be opened.
pub(super) const DIAL: Duration = Duration::from_millis(5);
/// Every so often a policy comes into force that says the same.
const RELOADS: Duration = Duration::from_secs(400);
/// The longest that any crawler waits, and the wait of those that come again.
const PATIENCE: (&str, &str) = ("600", "20");

/// The world under simulation.
pub(super) struct Crawl {
    active_policy: ActivePolicy,
    admission: Arc<AdmissionQueue>,
    metrics: Metrics,
    clock: Clock,
    laws: Mutex<Laws>,
    began: Instant,
    end: tokio::time::Instant,
}

/// The behaviour of a crawler that has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// It waits.
    Patient,
    /// It waits, and leaves now and then.
    Leaves,
    /// It is refused, and returns after its Retry-After.
    Obeys,
    /// It is refused, and returns at once.
    Ignores,
}

/// One crawler at one host.
struct Visit {
    crawl: Arc<Crawl>,
    crawler: Crawler,
    number: usize,
    host: usize,
    sort: &'static Sort,
    manner: Manner,
    rng: Rng,
}

impl Crawl {
    pub(super) async fn run(scale: Scale, seed: u64) -> LawVerdict {
        let crawl = Arc::new(Self::new(scale, seed));
        let mut visits = vec![];
        let mut rng = Rng::with_seed(seed);
        for host in 0..scale.sites {
            for turn in 0..CRAWLERS_OF_A_HOST {
                let number = (host * 7 + turn) % scale.crawlers;
                let visit = Visit::new(&crawl, number, host, turn, rng.fork());
                visits.push(tokio::spawn(visit.run()));
            }
        }
        let others = [
            tokio::spawn(Arc::clone(&crawl).reload()),
            tokio::spawn(Arc::clone(&crawl).halt()),
        ];
        for visit in visits {
            visit.await.expect("no crawler panics");
        }
        for other in others {
            other.abort();
            let _ = other.await;
        }
        crawl.nothing_is_left().await;
        let crawl = Arc::into_inner(crawl).expect("all crawlers have ended");
        crawl
            .laws
            .into_inner()
            .expect("not poisoned")
            .verdict(scale.time)
    }

    fn new(scale: Scale, seed: u64) -> Self {
        let metrics = Metrics::new(&[], &[]).unwrap();
        let clock = Clock::from_runtime();
        let limits = AdmissionLimits {
            per_host: 1_000,
            total: 10_000,
            max_wait: Duration::from_secs(600),
        };
        let admission = AdmissionQueue::new(
            HostStore::with_seed(seed),
            limits,
            clock.clone(),
            metrics.clone(),
        );
        let began = clock.now();
        let laws = Mutex::new(Laws::new(scale.sites, scale.crawlers, began));
        let end = tokio::time::Instant::now() + scale.time;
        Self {
            active_policy: ActivePolicy::new(policy(0)),
            admission: Arc::new(admission),
            metrics,
            clock,
            laws,
            began,
            end,
        }
    }

    async fn reload(self: Arc<Self>) {
        for version in 1.. {
            sleep(RELOADS).await;
            self.active_policy.replace(policy(version));
            self.admission.sweep();
        }
    }

    /// The actions of operators.
    async fn halt(self: Arc<Self>) {
        let stops = self.admission.stops();
        loop {
            sleep(STOPS / 2).await;
            let target = StopTarget::parse("*.halt.test").unwrap();
            let stop = stops
                .add(target, StopReason::new("it is too much").unwrap(), None)
                .unwrap()
                .stop;
            self.laws().halts(true);
            sleep(STOPPED).await;
            self.laws().halts(false);
            stops.lift(stop.id).unwrap();
            sleep(STOPS / 2 - STOPPED).await;
        }
    }

    /// Nobody waits, nothing is under way, and once it has rested no host is remembered.
    async fn nothing_is_left(&self) {
        let gauge = |name: &str| {
            let text = self.metrics.render();
            let line = text.lines().find_map(|line| {
                line.strip_prefix(name)?
                    .strip_prefix(' ')
                    .map(str::to_owned)
            });
            line.unwrap_or_else(|| panic!("{name}"))
        };
        self.admission.sweep();
        let left = ["crawlgate_held_requests", "crawlgate_leases"].map(gauge);
        sleep(Duration::from_secs(4 * 3_600)).await;
        self.admission.sweep();
        let remembered = gauge("crawlgate_hosts_tracked");
        if (left.concat(), remembered.as_str()) != ("00".to_owned(), "0") {
            self.laws().violation(format!(
                "held and under way: {left:?}, remembered: {remembered}"
            ));
        }
    }

    fn laws(&self) -> MutexGuard<'_, Laws> {
        self.laws.lock().expect("not poisoned")
    }
}

impl Visit {
    fn new(crawl: &Arc<Crawl>, number: usize, host: usize, turn: usize, rng: Rng) -> Self {
        let manner = match turn {
            0..=2 => Manner::Patient,
            3 => Manner::Leaves,
            4 => Manner::Obeys,
            _ => Manner::Ignores,
        };
        crawl
            .laws()
            .expects(host, number, manner == Manner::Patient);
        let name = Slug::new(&format!("crawler-{number}")).unwrap();
        let crawler = Crawler::new(&name).with_hints([CrawlerHint::Wait]);
        Self {
            crawl: Arc::clone(crawl),
            crawler,
            number,
            host,
            sort: sort_of(host),
            manner,
            rng,
        }
    }

    async fn run(mut self) {
        let end = self.crawl.end;
        let mut page = 0_usize;
        // They do not all begin at one moment.
        sleep(Duration::from_millis(self.rng.u64(0..2_000))).await;
        while tokio::time::Instant::now() < end {
            match timeout_at(end, self.page(page)).await {
                // The end: waiting requests leave.
                Err(_) => return,
                Ok(Some(pause)) => {
                    sleep_until((tokio::time::Instant::now() + pause).min(end)).await
                }
                Ok(None) => page += 1,
            }
        }
    }

    /// A page, and what belongs to it. Says for how long to pause if the page has to be asked for again.
    async fn page(&mut self, page: usize) -> Option<Duration> {
        let (class, folder) = CLASSES[(page + self.number) % CLASSES.len()];
        let url = format!(
            "http://h{}.{}.test/{folder}/{}/{page}",
            self.host, self.sort.name, self.number
        );
        if self.sort.extra == Extra::Strict && self.manner == Manner::Patient {
            self.crawl
                .laws()
                .asks(self.host, self.number, class, self.crawl.clock.now());
        }
        let pause = self.ask(GrantKind::Page, &url).await;
        self.crawl.laws().waits_no_more(self.host, self.number);
        if let (None, Extra::Embeds(_, number)) = (pause, self.sort.extra) {
            for embed in 0..number {
                self.ask(GrantKind::Embed, &format!("{url}/{embed}.png"))
                    .await;
            }
        }
        pause
    }

    /// Asks for something until it has come; says for how long to pause if it has to be asked for again.
    async fn ask(&mut self, kind: GrantKind, url: &str) -> Option<Duration> {
        let patient = matches!(self.manner, Manner::Patient | Manner::Leaves);
        let wait = if patient { PATIENCE.0 } else { PATIENCE.1 };
        let asked = self.crawl.clock.now();
        let leaves = self.manner == Manner::Leaves && self.rng.u8(0..20) == 0;
        let crawl = Arc::clone(&self.crawl);
        let asking = ask(&crawl, self.crawler.clone(), (kind, url), wait);
        let came = if leaves {
            let patience = Duration::from_millis(self.rng.u64(0..30_000));
            match timeout(patience, asking).await {
                Ok(came) => came,
                Err(_) => return Some(Duration::from_millis(100)),
            }
        } else {
            asking.await
        };
        match came {
            Ok(slot) => {
                let host = self.host;
                let crawler = self.number;
                let granted = self.crawl.clock.now();
                let grant = ObservedGrant {
                    host,
                    crawler,
                    kind,
                    asked,
                    granted,
                };
                self.crawl.laws().granted(grant);
                self.fetch(grant, slot).await;
                None
            }
            Err(reported) => Some(if self.manner == Manner::Ignores {
                Duration::from_secs(1)
            } else {
                reported
            }),
        }
    }

    /// One exchange with the origin.
    async fn fetch(&mut self, grant: ObservedGrant, mut slot: HostSlot) {
        // Counted down even if the crawl ends meanwhile.
        let _under_way = UnderWay(&self.crawl, grant);
        if self.rng.u8(0..4) == 0 {
            sleep(DIAL).await;
        }
        slot.record_sent();
        self.crawl.laws().sent(grant, self.crawl.clock.now());
        sleep(self.sort.latency).await;
        let now = self.crawl.clock.now();
        let chance = if self.sort.temper.is_down(now - self.crawl.began) {
            0
        } else {
            self.rng.u8(0..100)
        };
        let (status, reported) = match (self.sort.temper, chance) {
            (Temper::Steady, _) | (_, 10..) => (StatusCode::OK, None),
            (Temper::Flaky, 0..5) => {
                slot.record_failure();
                self.crawl.laws().failed(grant, now);
                return;
            }
            (Temper::Flaky, _) => (StatusCode::INTERNAL_SERVER_ERROR, None),
            (Temper::Tired, 0..5) => (StatusCode::SERVICE_UNAVAILABLE, Some(self.rng.u64(1..120))),
            (Temper::Tired, _) => (StatusCode::TOO_MANY_REQUESTS, None),
        };
        let told_as: HeaderMap = reported
            .into_iter()
            .map(|reported| (RETRY_AFTER, HeaderValue::from(reported)))
            .collect();
        match status {
            StatusCode::OK => self.crawl.laws().answered_well(grant),
            StatusCode::INTERNAL_SERVER_ERROR => self.crawl.laws().failed(grant, now),
            _ => self
                .crawl
                .laws()
                .complained(grant, reported.map(Duration::from_secs), now),
        }
        slot.record_response(status, &told_as);
        sleep(self.sort.body).await;
    }
}

struct UnderWay<'a>(&'a Crawl, ObservedGrant);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.laws().ended(self.1);
    }
}

/// Through the gate: the slot, or when to come again.
async fn ask(
    crawl: &Crawl,
    crawler: Crawler,
    (kind, url): (GrantKind, &str),
    wait: &str,
) -> Result<HostSlot, Duration> {
    let dest = match kind {
        GrantKind::Page => "document",
        GrantKind::Embed => "image",
    };
    let fields = [("crawl-max-wait", wait), ("sec-fetch-dest", dest)];
    let asked = request_facts(crawler, url, &fields);
    let services = RequestServices {
        destinations: &StaticResolver::new(|host| vec![address_of(host)]),
        robots: &ScriptedRobots::default(),
        active_policy: &crawl.active_policy,
        admission: &crawl.admission,
        ledger: None,
    };
    match admit_request(
        &mut KnownRequest(asked),
        &mut (),
        crawl.active_policy.load(),
        &services,
    )
    .await
    .unwrap()
    .outcome
    {
        Ok(permit) => Ok(permit.redeem().2),
        Err(NotSent::ServeRobots(_)) => unreachable!("the policy does not obey"),
        Err(NotSent::ClientLeft) => unreachable!("there is no body"),
        Err(NotSent::Refuse(refusal)) => Err(refusal.retry_after.expect("only for some time")),
    }
}

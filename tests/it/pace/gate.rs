//! The gate's stages up to the permit, without a socket: who waits, who goes, who is sent away.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crawlgate::clock::Clock;
use crawlgate::metrics::Metrics;
use crawlgate::model::crawler::{Crawler, CrawlerHint};
use crawlgate::model::reason::Reason;
use crawlgate::pipeline::admission::{AdmissionLimits, AdmissionQueue, HostSlot};
use crawlgate::pipeline::destination::{DestinationError, DestinationResolver};
use crawlgate::pipeline::facts::RequestFacts;
use crawlgate::pipeline::request::{NotForwarded, RequestResult, RequestServices, admit_request};
use crawlgate::pipeline::shadow::ShadowPolicy;
use crawlgate::pipeline::snapshot::{ActivePolicy, PolicySnapshot};
use crawlgate::pipeline::tunnel::{TunnelFacts, TunnelServices, admit_tunnel};
use crawlgate::policy::compile;
use crawlgate::policy::source::MemoryFileSystem;
use crawlgate::store::HostStore;
use crawlgate::urls::target::{HostTarget, UrlTarget};
use http::StatusCode;
use tokio::task::JoinHandle;

use crate::support::way::{Anywhere, Here, KnownRequest, NoRobots, snapshot_of};

const SOON: Duration = Duration::from_millis(150);

/// A gate under a policy.
#[derive(Clone)]
pub(super) struct Bench {
    pub(super) in_force: Arc<ActivePolicy>,
    pub(super) hold: Arc<AdmissionQueue>,
    metrics: Metrics,
}

/// What came of a request.
#[derive(Debug)]
pub(super) enum Came {
    /// It went, having waited for this long.
    Went(HostSlot, Option<Duration>),
    /// It was refused for this reason, to come back after this time, by this policy.
    Refused(Reason, Option<Duration>, String),
}

impl Bench {
    fn new(politeness: &str) -> Self {
        Self::with_limits(politeness, 100)
    }

    /// By the time of the runtime, which may stand still.
    pub(super) fn of_runtime(politeness: &str) -> Self {
        Self::by_clock(Clock::from_runtime(), 100, snapshot(politeness, ""))
    }

    fn with_limits(politeness: &str, of_one: usize) -> Self {
        Self::by_clock(Clock::system(), of_one, snapshot(politeness, ""))
    }

    pub(super) fn by_clock(clock: Clock, of_one: usize, snapshot: PolicySnapshot) -> Self {
        let metrics = Metrics::new(&[], &[]).unwrap();
        let limits = AdmissionLimits {
            per_host: of_one,
            total: 1_000,
            max_wait: Duration::from_secs(2),
        };
        let hold = Arc::new(AdmissionQueue::new(
            HostStore::new(),
            limits,
            clock,
            metrics.clone(),
        ));
        Self {
            in_force: Arc::new(ActivePolicy::new(snapshot)),
            hold,
            metrics,
        }
    }

    pub(super) async fn ask(&self, url: &str, fields: &[(&str, &str)]) -> Came {
        self.ask_as(Crawler::anonymous(), url, fields).await
    }

    pub(super) async fn ask_as(
        &self,
        crawler: Crawler,
        url: &str,
        fields: &[(&str, &str)],
    ) -> Came {
        let passage = self.passage(crawler, url, fields).await;
        let RequestResult {
            outcome,
            evaluation: judged,
            wait_time: held,
        } = passage;
        match outcome {
            Ok(permit) => Came::Went(permit.redeem().2, held),
            Err(NotForwarded::ServeRobots(_)) => {
                unreachable!("the policies of these tests do not obey")
            }
            Err(NotForwarded::Refuse(refusal)) => Came::Refused(
                refusal.reason,
                refusal.retry_after,
                judged.policy().revision().to_owned(),
            ),
        }
    }

    pub(super) async fn passage(
        &self,
        crawler: Crawler,
        url: &str,
        fields: &[(&str, &str)],
    ) -> RequestResult<Here> {
        let mut head = http::Request::builder().uri(url);
        for (name, value) in fields {
            head = head.header(*name, *value);
        }
        let (parts, ()) = head.body(()).unwrap().into_parts();
        let asked = RequestFacts::new(UrlTarget::parse(url).unwrap(), crawler, &parts);
        let way = RequestServices {
            destinations: &Anywhere,
            robots: &NoRobots,
            active_policy: &self.in_force,
            admission: &self.hold,
            ledger: None,
        };
        admit_request(&mut KnownRequest(asked), self.in_force.load(), &way)
            .await
            .unwrap()
    }

    /// Reloads the same policy with a shadow policy after half a second.
    async fn add_shadow_later(&self, politeness: &str) {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let shadow = snapshot(politeness, "{ id: no, forbid: { host: a.test } }");
        let shadow = ShadowPolicy {
            policy: Arc::clone(&shadow.policy),
            counters: Arc::clone(&shadow.counters),
        };
        let live = snapshot(politeness, "").with_shadow(Some(Arc::new(shadow)));
        self.in_force.replace(live);
    }

    /// One that goes, is sent, and ends at once.
    async fn pass(&self, url: &str) {
        let (slot, _) = self.ask(url, &[]).await.went();
        slot.record_sent();
    }

    fn start(&self, url: &str) -> JoinHandle<Came> {
        let (bench, url) = (self.clone(), url.to_owned());
        tokio::spawn(async move { bench.ask(&url, &[]).await })
    }

    pub(super) fn gauge(&self, name: &str) -> f64 {
        self.hold.sweep();
        let text = self.metrics.render();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name}")).parse().unwrap()
    }

    pub(super) async fn until_held(&self, count: f64) {
        let began = Instant::now();
        while self.gauge("crawlgate_held_requests") != count {
            assert!(
                began.elapsed() < Duration::from_secs(5),
                "{count} are to be held"
            );
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

impl Came {
    pub(super) fn went(self) -> (HostSlot, Option<Duration>) {
        match self {
            Self::Went(slot, held) => (slot, held),
            Self::Refused(..) => panic!("{self:?}"),
        }
    }

    pub(super) fn refused(self) -> (Reason, Option<u64>, String) {
        match self {
            Self::Went(..) => panic!("{self:?}"),
            Self::Refused(reason, after, revision) => {
                (reason, after.map(|time| time.as_secs()), revision)
            }
        }
    }
}

pub(super) fn snapshot(politeness: &str, rules: &str) -> PolicySnapshot {
    let text = format!(
        "policy: 1\nname: p\noptions: {{ disposition: allow, robots: {{ obey: false }}, politeness: {politeness} }}\nrules: [{rules}]\n"
    );
    let compiled = compile::load(&MemoryFileSystem::new().with_file("p.yaml", text), "p.yaml");
    snapshot_of(
        compiled
            .unwrap_or_else(|problems| panic!("{problems:?}"))
            .policy,
    )
}

#[tokio::test]
async fn the_second_waits_for_the_delay_and_is_told_so() {
    let bench = Bench::new("{ delay: 200ms, jitter: none }");
    let began = Instant::now();
    bench.pass("http://a.test/1").await;
    let (_slot, held) = bench.ask("http://a.test/2", &[]).await.went();
    assert!(began.elapsed() >= Duration::from_millis(200));
    assert!(held.unwrap() >= Duration::from_millis(199), "{held:?}");
    let (_slot, held) = bench.ask("http://b.test/", &[]).await.went();
    assert_eq!(held, None);
}

#[tokio::test]
async fn keys_are_hosts_addresses_or_domains() {
    for (key, first, second, one) in [
        ("host", "http://a.test/", "http://a.test:81/", true),
        (
            "host",
            "http://a.example.com/",
            "http://b.example.com/",
            false,
        ),
        (
            "registrable_domain",
            "http://a.example.com/",
            "http://b.example.com/",
            true,
        ),
        (
            "registrable_domain",
            "http://a.github.io/",
            "http://b.github.io/",
            false,
        ),
        ("address", "http://a.test/", "http://b.test/", true),
    ] {
        let bench = Bench::new(&format!("{{ key: {key}, delay: 10s, max_hold: 0s }}"));
        bench.pass(first).await;
        let waits = matches!(
            bench.ask(second, &[]).await,
            Came::Refused(Reason::RateLimited, ..)
        );
        assert_eq!(waits, one, "{key}: {first} {second}");
    }
}

#[tokio::test]
async fn what_belongs_to_a_page_has_limits_of_its_own() {
    let bench = Bench::new("{ delay: 10s, max_hold: 0s, embeds: { concurrency: 2 } }");
    bench.pass("http://a.test/").await;
    let embed = [("sec-fetch-dest", "image")];
    let _slots = [
        bench.ask("http://a.test/1.png", &embed).await.went(),
        bench.ask("http://a.test/2.png", &embed).await.went(),
    ];
    assert_eq!(
        bench.ask("http://a.test/3.png", &embed).await.refused().0,
        Reason::RateLimited
    );
}

#[tokio::test]
async fn how_long_it_waits_is_the_rules_the_profiles_or_the_clients() {
    let may_wait = || Crawler::anonymous().with_hints([CrawlerHint::Wait]);
    for (max_hold, asked, crawler, waits_ms) in [
        ("100ms", None, Crawler::anonymous(), 100),
        ("100ms", Some("5"), Crawler::anonymous(), 100),
        ("10s", Some("0.1"), Crawler::anonymous(), 100),
        ("100ms", Some("0.3"), may_wait(), 300),
        ("100ms", Some("soon"), may_wait(), 100),
        ("10s", Some("0"), may_wait(), 0),
    ] {
        let bench = Bench::new(&format!(
            "{{ delay: 1m, jitter: none, max_hold: {max_hold} }}"
        ));
        bench.pass("http://a.test/").await;
        let fields: Vec<_> = asked
            .map(|wait| ("crawl-max-wait", wait))
            .into_iter()
            .collect();
        let began = Instant::now();
        let (reason, after, _) = bench
            .ask_as(crawler, "http://a.test/2", &fields)
            .await
            .refused();
        let waited = u64::try_from(began.elapsed().as_millis()).unwrap();
        assert!(
            (waits_ms..waits_ms + 150).contains(&waited),
            "{max_hold} {asked:?}: {waited} ms"
        );
        assert_eq!((reason, after), (Reason::RateLimited, Some(60)));
    }
}

#[tokio::test]
async fn who_may_not_wait_or_finds_no_place_is_sent_away_at_once() {
    let bench = Bench::new("{ delay: 1m, overflow: refuse }");
    bench.pass("http://a.test/").await;
    assert_eq!(
        bench.ask("http://a.test/2", &[]).await.refused().0,
        Reason::RateLimited
    );

    let bench = Bench::with_limits("{ delay: 1m, jitter: none }", 2);
    bench.pass("http://a.test/").await;
    let waiting = [
        bench.start("http://a.test/2"),
        bench.start("http://a.test/3"),
    ];
    bench.until_held(2.0).await;
    let (reason, after, _) = bench.ask("http://a.test/4", &[]).await.refused();
    assert_eq!((reason, after), (Reason::QueueFull, Some(180)));
    waiting.iter().for_each(JoinHandle::abort);
    bench.until_held(0.0).await;
    assert_eq!(
        bench.gauge("crawlgate_held_disconnects_total{crawler=\"anonymous\"}"),
        2.0
    );
    assert_eq!(bench.gauge("crawlgate_leases"), 0.0);
}

#[tokio::test]
async fn they_go_in_the_order_of_arrival_and_who_leaves_is_passed_over() {
    let bench = Bench::new("{ delay: 0s, concurrency: 1 }");
    let (first, _) = bench.ask("http://a.test/0", &[]).await.went();
    let mut waiting = vec![];
    for number in 1..=5_u32 {
        waiting.push(bench.start(&format!("http://a.test/{number}")));
        bench.until_held(f64::from(number)).await;
    }
    // The head, one in the middle and the last.
    for place in [4, 2, 0] {
        waiting.remove(place).abort();
    }
    bench.until_held(2.0).await;
    drop(first);
    let (second, _) = waiting.remove(0).await.unwrap().went();
    assert!(tokio::time::timeout(SOON, &mut waiting[0]).await.is_err());
    drop(second);
    drop(waiting.remove(0).await.unwrap().went());
    assert_eq!(
        (
            bench.gauge("crawlgate_held_requests"),
            bench.gauge("crawlgate_leases")
        ),
        (0.0, 0.0)
    );
}

/// A name that is looked up while the policy changes.
struct Slow<'a>(&'a ActivePolicy, &'static str);

impl DestinationResolver for Slow<'_> {
    type Addresses = Here;

    async fn vet(&self, _target: &UrlTarget) -> Result<Here, DestinationError> {
        if self.0.load().policy.rules().is_empty() {
            self.0.replace(snapshot("{ delay: 0s }", self.1));
        }
        Ok(Here)
    }

    async fn vet_host(&self, _host: &HostTarget) -> Result<Here, DestinationError> {
        Ok(Here)
    }
}

#[tokio::test]
async fn a_policy_that_changes_while_anything_is_waited_for_judges_again() {
    for (rule, refused) in [
        ("{ id: no, forbid: { path: /2 } }", true),
        ("{ id: no, forbid: { path: /3 } }", false),
    ] {
        let bench = Bench::new("{ delay: 0s }");
        let (parts, ()) = http::Request::builder()
            .uri("http://a.test/2")
            .body(())
            .unwrap()
            .into_parts();
        let asked = RequestFacts::new(
            UrlTarget::parse("http://a.test/2").unwrap(),
            Crawler::anonymous(),
            &parts,
        );
        let slow = Slow(&bench.in_force, rule);
        let way = RequestServices {
            destinations: &slow,
            robots: &NoRobots,
            active_policy: &bench.in_force,
            admission: &bench.hold,
            ledger: None,
        };
        let RequestResult {
            outcome,
            evaluation,
            ..
        } = admit_request(&mut KnownRequest(asked), bench.in_force.load(), &way)
            .await
            .unwrap();
        assert_eq!(
            matches!(outcome, Err(NotForwarded::Refuse(_))),
            refused,
            "{rule}"
        );
        assert_eq!(
            evaluation.policy().revision(),
            bench.in_force.load().policy.revision()
        );
        drop(outcome);
        assert_eq!(bench.gauge("crawlgate_leases"), 0.0);
    }
}

/// A reload that only adds a shadow policy leaves the revision of the active policy as it is.
#[tokio::test(start_paused = true)]
async fn a_held_request_and_a_held_tunnel_see_a_shadow_policy_that_was_added_meanwhile() {
    let politeness = "{ delay: 1s, jitter: none, max_hold: 60s }";
    let bench = Bench::of_runtime(politeness);
    bench.pass("http://a.test/1").await;
    let request = bench.passage(Crawler::anonymous(), "http://a.test/2", &[]);
    let (request, ()) = tokio::join!(request, bench.add_shadow_later(politeness));
    assert!(request.outcome.is_ok() && request.wait_time.is_some());
    assert!(request.evaluation.shadow_notes().is_some());

    let bench = Bench::of_runtime(politeness);
    bench.pass("http://a.test/1").await;
    let facts = TunnelFacts {
        host: HostTarget::parse_authority("a.test:443").unwrap(),
        crawler: Crawler::anonymous(),
    };
    let services = TunnelServices {
        destinations: &Anywhere,
        active_policy: &bench.in_force,
        admission: &bench.hold,
        max_wait: Duration::from_secs(10),
    };
    let tunnel = admit_tunnel(facts, bench.in_force.load(), &services);
    let (tunnel, ()) = tokio::join!(tunnel, bench.add_shadow_later(politeness));
    assert!(tunnel.outcome.is_ok() && tunnel.wait_time.is_some());
    assert!(tunnel.evaluation.shadow_notes().is_some());
}

#[tokio::test]
async fn who_comes_again_stands_where_it_stood() {
    let bench = Bench::new("{ delay: 0s, concurrency: 1 }");
    let (first, _) = bench.ask("http://a.test/0", &[]).await.went();
    let hasty = [("crawl-max-wait", "0")];
    assert_eq!(
        bench.ask("http://a.test/1", &hasty).await.refused().0,
        Reason::RateLimited
    );
    let later = bench.start("http://a.test/2");
    bench.until_held(1.0).await;
    let again = bench.start("http://a.test/1");
    bench.until_held(2.0).await;
    drop(first);
    let (second, _) = again.await.unwrap().went();
    assert!(!later.is_finished());
    drop(second);
    drop(later.await.unwrap().went());
}

#[tokio::test]
async fn a_policy_that_changes_during_a_hold_judges_again() {
    let politeness = "{ delay: 300ms, jitter: none }";
    for (politeness_then, rule, reason) in [
        (
            politeness,
            "{ id: no, forbid: { path: /2 } }",
            Some(Reason::Rule),
        ),
        (
            politeness,
            "{ id: yes, when: { path: /2 }, then: allow }",
            None,
        ),
        (
            "{ delay: 1m, max_hold: 400ms }",
            "",
            Some(Reason::RateLimited),
        ),
    ] {
        let bench = Bench::new(politeness);
        bench.pass("http://a.test/1").await;
        let waiting = bench.start("http://a.test/2");
        bench.until_held(1.0).await;
        bench.in_force.replace(snapshot(politeness_then, rule));
        let newer = bench.in_force.load().policy.revision().to_owned();
        match (waiting.await.unwrap(), reason) {
            (Came::Went(..), None) => {}
            (Came::Refused(found, _, revision), Some(reason)) => {
                assert_eq!((found, revision), (reason, newer), "{rule}");
            }
            (came, _) => panic!("{rule}: {came:?}"),
        }
        assert_eq!(
            (
                bench.gauge("crawlgate_held_requests"),
                bench.gauge("crawlgate_leases")
            ),
            (0.0, 0.0)
        );
    }
}

#[tokio::test]
async fn who_waits_when_the_proxy_goes_down_is_sent_away_at_once() {
    let bench = Bench::new("{ delay: 1m }");
    bench.pass("http://a.test/").await;
    let waiting = [
        bench.start("http://a.test/2"),
        bench.start("http://a.test/3"),
    ];
    bench.until_held(2.0).await;
    bench.hold.close();
    for waits in waiting {
        let came = tokio::time::timeout(SOON, waits).await.unwrap();
        assert_eq!(came.unwrap().refused().0, Reason::ShuttingDown);
    }
    assert_eq!(
        bench.ask("http://a.test/4", &[]).await.refused().0,
        Reason::ShuttingDown
    );
    bench.pass("http://b.test/").await;
}

#[tokio::test]
async fn an_origin_that_asks_for_rest_gets_it() {
    let bench = Bench::new("{ delay: 0s, max_hold: 0s }");
    for (field, after) in [(Some("120"), 120), (None, 7), (Some("soon"), 7)] {
        let host = field.unwrap_or("none");
        let (mut slot, _) = bench.ask(&format!("http://{host}.test/"), &[]).await.went();
        let fields = field.map(|value| (http::header::RETRY_AFTER, value.parse().unwrap()));
        slot.record_response(
            StatusCode::SERVICE_UNAVAILABLE,
            &fields.into_iter().collect(),
        );
        drop(slot);
        let (reason, told, _) = bench
            .ask(&format!("http://{host}.test/"), &[])
            .await
            .refused();
        assert_eq!(reason, Reason::HostBackoff);
        assert!(
            (after - 2..=after).contains(&told.unwrap()),
            "{field:?}: {told:?}"
        );
    }
    assert_eq!(bench.gauge("crawlgate_hosts_backing_off"), 3.0);
}

/// Four threads, many hosts, many that leave: everybody ends, and nothing is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn in_a_crowd_everybody_ends() {
    let bench = Bench::with_limits("{ delay: 1ms, jitter: 1.0..2.0, concurrency: 2 }", 1_000);
    let mut rng = fastrand::Rng::with_seed(7);
    let mut crowd = vec![];
    for number in 0..600 {
        let (bench, host, stays) = (bench.clone(), number % 5, rng.u64(0..12));
        let leaves = rng.u8(..) < 100;
        crowd.push(tokio::spawn(async move {
            let one = async {
                let (slot, _) = bench.ask(&format!("http://{host}.test/"), &[]).await.went();
                slot.record_sent();
                tokio::time::sleep(Duration::from_millis(stays % 4)).await;
            };
            let patience = if leaves {
                Duration::from_millis(stays * 5)
            } else {
                Duration::from_secs(15)
            };
            tokio::time::timeout(patience, one).await.is_ok() || leaves
        }));
    }
    for one in crowd {
        assert!(one.await.unwrap(), "one has waited for ever");
    }
    for gauge in ["crawlgate_held_requests", "crawlgate_leases"] {
        assert_eq!(bench.gauge(gauge), 0.0, "{gauge}");
    }
}

//! The stages of the pipeline up to the permit, without sockets: waits, admissions and refusals.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crawlgate::clock::Clock;
use crawlgate::model::crawler::{Crawler, CrawlerHint};
use crawlgate::model::reason::Reason;
use crawlgate::pipeline::admission::AdmissionLimits;
use crawlgate::pipeline::destination::{DestinationError, DestinationResolver, EgressChoice};
use crawlgate::pipeline::request::{NotSent, RequestResult, RequestServices, admit_request};
use crawlgate::pipeline::shadow::ShadowPolicy;
use crawlgate::pipeline::snapshot::{ActivePolicy, PolicySnapshot};
use crawlgate::pipeline::tunnel::{TunnelFacts, TunnelServices, admit_tunnel};
use crawlgate::urls::target::{HostTarget, UrlTarget};
use http::StatusCode;
use tokio::task::JoinHandle;

use crate::support::pipeline::{
    KnownRequest, StaticAddresses, StaticResolver, TestPipeline, request_facts, snapshot_of,
};
use crate::support::policy::compile_policy;

const SOON: Duration = Duration::from_millis(150);

pub(super) fn pipeline(politeness: &str) -> TestPipeline {
    pipeline_with_limit(politeness, 100)
}

/// A pipeline on the time of the runtime, which may be paused.
pub(super) fn pipeline_on_runtime_clock(politeness: &str) -> TestPipeline {
    pipeline_by_clock(Clock::from_runtime(), 100, snapshot(politeness, ""))
}

/// A pipeline that holds at most this number of requests per host.
fn pipeline_with_limit(politeness: &str, per_host: usize) -> TestPipeline {
    pipeline_by_clock(Clock::system(), per_host, snapshot(politeness, ""))
}

pub(super) fn pipeline_by_clock(
    clock: Clock,
    per_host: usize,
    snapshot: PolicySnapshot,
) -> TestPipeline {
    let limits = AdmissionLimits {
        per_host,
        total: 1_000,
        max_wait: Duration::from_secs(2),
    };
    TestPipeline::new(snapshot, limits, clock)
}

impl TestPipeline {
    /// Reloads the same policy with a shadow policy after half a second.
    async fn add_shadow_later(&self, politeness: &str) {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let shadow = snapshot(politeness, "{ id: no, forbid: { host: a.test } }");
        let shadow = ShadowPolicy::new(Arc::clone(&shadow.policy), Arc::clone(&shadow.counters));
        let live = snapshot(politeness, "").with_shadow(Some(Arc::new(shadow)));
        self.active_policy.replace(live);
    }

    /// Makes a request that is admitted, sent, and ends at once.
    async fn pass(&self, url: &str) {
        let (slot, _) = self.ask(url).await.admitted();
        slot.record_sent();
    }
}

pub(super) fn snapshot(politeness: &str, rules: &str) -> PolicySnapshot {
    let text = format!(
        "policy: 1\nname: p\noptions: {{ disposition: allow, robots: {{ obey: false }}, politeness: {politeness} }}\nrules: [{rules}]\n"
    );
    snapshot_of(compile_policy(text).policy)
}

#[tokio::test]
async fn the_second_request_waits_for_the_delay() {
    let bench = pipeline("{ delay: 200ms, jitter: none }");
    let began = Instant::now();
    bench.pass("http://a.test/1").await;
    let (_slot, held) = bench.ask("http://a.test/2").await.admitted();
    assert!(began.elapsed() >= Duration::from_millis(200));
    assert!(held.unwrap() >= Duration::from_millis(199), "{held:?}");
    let (_slot, held) = bench.ask("http://b.test/").await.admitted();
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
        let bench = pipeline(&format!("{{ key: {key}, delay: 10s, max_hold: 0s }}"));
        bench.pass(first).await;
        let waits = bench.ask(second).await.reason() == Some(Reason::RateLimited);
        assert_eq!(waits, one, "{key}: {first} {second}");
    }
}

#[tokio::test]
async fn embedded_resources_have_their_own_limits() {
    let bench = pipeline("{ delay: 10s, max_hold: 0s, embeds: { concurrency: 2 } }");
    bench.pass("http://a.test/").await;
    let embed = [("sec-fetch-dest", "image")];
    let _slots = [
        bench
            .ask_with("http://a.test/1.png", &embed)
            .await
            .admitted(),
        bench
            .ask_with("http://a.test/2.png", &embed)
            .await
            .admitted(),
    ];
    assert_eq!(
        bench
            .ask_with("http://a.test/3.png", &embed)
            .await
            .refused()
            .0,
        Reason::RateLimited
    );
}

#[tokio::test]
async fn the_longest_wait_comes_from_the_rule_or_the_client() {
    fn may_wait() -> crawlgate::model::crawler::Crawler {
        Crawler::anonymous().with_hints([CrawlerHint::Wait])
    }
    for (max_hold, asked, crawler, waits_ms) in [
        ("100ms", None, Crawler::anonymous(), 100),
        ("100ms", Some("5"), Crawler::anonymous(), 100),
        ("10s", Some("0.1"), Crawler::anonymous(), 100),
        ("100ms", Some("0.3"), may_wait(), 300),
        ("100ms", Some("soon"), may_wait(), 100),
        ("10s", Some("0"), may_wait(), 0),
    ] {
        let bench = pipeline(&format!(
            "{{ delay: 1m, jitter: none, max_hold: {max_hold} }}"
        ));
        bench.pass("http://a.test/").await;
        let fields: Vec<_> = asked
            .map(|wait| ("crawl-max-wait", wait))
            .into_iter()
            .collect();
        let began = Instant::now();
        let (reason, after) = bench
            .ask_as(crawler, "http://a.test/2", &fields)
            .await
            .refused();
        let waited = u64::try_from(began.elapsed().as_millis()).unwrap();
        assert!(
            (waits_ms..waits_ms + 1_000).contains(&waited),
            "{max_hold} {asked:?}: {waited} ms"
        );
        assert_eq!((reason, after), (Reason::RateLimited, Some(60)));
    }
}

#[tokio::test]
async fn requests_that_cannot_wait_are_refused_at_once() {
    let bench = pipeline("{ delay: 1m, overflow: refuse }");
    bench.pass("http://a.test/").await;
    assert_eq!(
        bench.ask("http://a.test/2").await.refused().0,
        Reason::RateLimited
    );

    let bench = pipeline_with_limit("{ delay: 1m, jitter: none }", 2);
    bench.pass("http://a.test/").await;
    let waiting = [
        bench.start("http://a.test/2"),
        bench.start("http://a.test/3"),
    ];
    bench.wait_until_held(2.0).await;
    let (reason, after) = bench.ask("http://a.test/4").await.refused();
    assert_eq!((reason, after), (Reason::QueueFull, Some(180)));
    waiting.iter().for_each(JoinHandle::abort);
    bench.wait_until_held(0.0).await;
    assert_eq!(
        bench.metric("crawlgate_held_disconnects_total{crawler=\"anonymous\"}"),
        2.0
    );
    assert_eq!(bench.metric("crawlgate_leases"), 0.0);
}

#[tokio::test]
async fn held_requests_go_in_order_of_arrival_without_departed_ones() {
    let bench = pipeline("{ delay: 0s, concurrency: 1 }");
    let (first, _) = bench.ask("http://a.test/0").await.admitted();
    let mut waiting = vec![];
    for number in 1..=5_u32 {
        waiting.push(bench.start(&format!("http://a.test/{number}")));
        bench.wait_until_held(f64::from(number)).await;
    }
    // The first, a middle one and the last.
    for place in [4, 2, 0] {
        waiting.remove(place).abort();
    }
    bench.wait_until_held(2.0).await;
    drop(first);
    let (second, _) = waiting.remove(0).await.unwrap().admitted();
    assert!(tokio::time::timeout(SOON, &mut waiting[0]).await.is_err());
    drop(second);
    drop(waiting.remove(0).await.unwrap().admitted());
    assert_eq!(bench.metric("crawlgate_held_requests"), 0.0);
    assert_eq!(bench.metric("crawlgate_leases"), 0.0);
}

/// A look-up during which the policy changes.
struct Slow<'a>(&'a ActivePolicy, &'static str);

impl DestinationResolver for Slow<'_> {
    type Addresses = StaticAddresses;

    async fn vet(
        &self,
        _target: &UrlTarget,
        _egress: EgressChoice<'_>,
    ) -> Result<StaticAddresses, DestinationError> {
        if self.0.load().policy.rules().is_empty() {
            self.0.replace(snapshot("{ delay: 0s }", self.1));
        }
        Ok(StaticAddresses(vec![Ipv4Addr::LOCALHOST.into()]))
    }

    async fn vet_host(
        &self,
        _host: &HostTarget,
        _egress: EgressChoice<'_>,
    ) -> Result<StaticAddresses, DestinationError> {
        Ok(StaticAddresses(vec![Ipv4Addr::LOCALHOST.into()]))
    }
}

#[tokio::test]
async fn a_policy_change_during_resolution_evaluates_again() {
    for (rule, refused) in [
        ("{ id: no, forbid: { path: /2 } }", true),
        ("{ id: no, forbid: { path: /3 } }", false),
    ] {
        let bench = pipeline("{ delay: 0s }");
        let asked = request_facts(Crawler::anonymous(), "http://a.test/2", &[]);
        let slow = Slow(&bench.active_policy, rule);
        let way = RequestServices {
            destinations: &slow,
            robots: &bench.robots,
            active_policy: &bench.active_policy,
            admission: &bench.admission,
            ledger: None,
        };
        let RequestResult {
            outcome,
            evaluation,
            ..
        } = admit_request(
            &mut KnownRequest(asked),
            &mut (),
            bench.active_policy.load(),
            &way,
        )
        .await
        .unwrap();
        assert_eq!(
            matches!(outcome, Err(NotSent::Refuse(_))),
            refused,
            "{rule}"
        );
        assert_eq!(
            evaluation.policy().revision(),
            bench.active_policy.load().policy.revision()
        );
        drop(outcome);
        assert_eq!(bench.metric("crawlgate_leases"), 0.0);
    }
}

/// A reload that only adds a shadow policy leaves the revision of the active policy.
#[tokio::test(start_paused = true)]
async fn a_held_request_and_a_held_tunnel_see_a_shadow_policy_that_was_added_meanwhile() {
    let politeness = "{ delay: 1s, jitter: none, max_hold: 60s }";
    let bench = pipeline_on_runtime_clock(politeness);
    bench.pass("http://a.test/1").await;
    let request = bench.admit(Crawler::anonymous(), "http://a.test/2", &[]);
    let (request, ()) = tokio::join!(request, bench.add_shadow_later(politeness));
    assert!(request.outcome.is_ok() && request.wait_time.is_some());
    assert!(request.evaluation.shadow_notes().is_some());

    let bench = pipeline_on_runtime_clock(politeness);
    bench.pass("http://a.test/1").await;
    let facts = TunnelFacts {
        host: HostTarget::parse_authority("a.test:443").unwrap(),
        crawler: Crawler::anonymous(),
    };
    let services = TunnelServices {
        destinations: &StaticResolver::loopback(),
        active_policy: &bench.active_policy,
        admission: &bench.admission,
        max_wait: Duration::from_secs(10),
    };
    let tunnel = admit_tunnel(facts, bench.active_policy.load(), &services);
    let (tunnel, ()) = tokio::join!(tunnel, bench.add_shadow_later(politeness));
    assert!(tunnel.outcome.is_ok() && tunnel.wait_time.is_some());
    assert!(tunnel.evaluation.shadow_notes().is_some());
}

#[tokio::test]
async fn a_returning_request_keeps_its_place() {
    let bench = pipeline("{ delay: 0s, concurrency: 1 }");
    let (first, _) = bench.ask("http://a.test/0").await.admitted();
    let hasty = [("crawl-max-wait", "0")];
    assert_eq!(
        bench.ask_with("http://a.test/1", &hasty).await.refused().0,
        Reason::RateLimited
    );
    let later = bench.start("http://a.test/2");
    bench.wait_until_held(1.0).await;
    let again = bench.start("http://a.test/1");
    bench.wait_until_held(2.0).await;
    drop(first);
    let (second, _) = again.await.unwrap().admitted();
    assert!(!later.is_finished());
    drop(second);
    drop(later.await.unwrap().admitted());
}

#[tokio::test]
async fn a_policy_change_during_a_hold_evaluates_again() {
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
        let bench = pipeline(politeness);
        bench.pass("http://a.test/1").await;
        let waiting = bench.start("http://a.test/2");
        bench.wait_until_held(1.0).await;
        bench.active_policy.replace(snapshot(politeness_then, rule));
        let newer = bench.active_policy.load().policy.revision().to_owned();
        let admission = waiting.await.unwrap();
        assert_eq!(admission.reason(), reason, "{rule}");
        if reason.is_some() {
            assert_eq!(admission.revision, newer, "{rule}");
        }
        drop(admission);
        assert_eq!(bench.metric("crawlgate_held_requests"), 0.0);
        assert_eq!(bench.metric("crawlgate_leases"), 0.0);
    }
}

#[tokio::test]
async fn held_requests_are_refused_at_shutdown() {
    let bench = pipeline("{ delay: 1m }");
    bench.pass("http://a.test/").await;
    let waiting = [
        bench.start("http://a.test/2"),
        bench.start("http://a.test/3"),
    ];
    bench.wait_until_held(2.0).await;
    bench.admission.close();
    for waits in waiting {
        let came = tokio::time::timeout(SOON, waits).await.unwrap();
        assert_eq!(came.unwrap().refused().0, Reason::ShuttingDown);
    }
    assert_eq!(
        bench.ask("http://a.test/4").await.refused().0,
        Reason::ShuttingDown
    );
    bench.pass("http://b.test/").await;
}

#[tokio::test]
async fn retry_after_of_an_origin_is_respected() {
    let bench = pipeline("{ delay: 0s, max_hold: 0s }");
    for (field, after) in [(Some("120"), 120), (None, 7), (Some("soon"), 7)] {
        let host = field.unwrap_or("none");
        let (mut slot, _) = bench.ask(&format!("http://{host}.test/")).await.admitted();
        let fields = field.map(|value| (http::header::RETRY_AFTER, value.parse().unwrap()));
        slot.record_response(
            StatusCode::SERVICE_UNAVAILABLE,
            &fields.into_iter().collect(),
        );
        drop(slot);
        let (reason, reported) = bench.ask(&format!("http://{host}.test/")).await.refused();
        assert_eq!(reason, Reason::HostBackoff);
        assert!(
            (after - 2..=after).contains(&reported.unwrap()),
            "{field:?}: {reported:?}"
        );
    }
    assert_eq!(bench.metric("crawlgate_hosts_backing_off"), 3.0);
}

/// Four threads, many hosts, many departures: every request ends, and nothing leaks.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_request_of_a_crowd_ends() {
    let bench = pipeline_with_limit("{ delay: 1ms, jitter: 1.0..2.0, concurrency: 2 }", 1_000);
    let mut rng = fastrand::Rng::with_seed(7);
    let mut crowd = vec![];
    for number in 0..600 {
        let bench = bench.clone();
        let host = number % 5;
        let stays = rng.u64(0..12);
        let leaves = rng.u8(..) < 100;
        crowd.push(tokio::spawn(async move {
            let one = async {
                let (slot, _) = bench.ask(&format!("http://{host}.test/")).await.admitted();
                slot.record_sent();
                tokio::time::sleep(Duration::from_millis(stays % 4)).await;
            };
            let max_wait = if leaves {
                Duration::from_millis(stays * 5)
            } else {
                Duration::from_secs(15)
            };
            tokio::time::timeout(max_wait, one).await.is_ok() || leaves
        }));
    }
    for one in crowd {
        assert!(one.await.unwrap(), "one has waited for ever");
    }
    for gauge in ["crawlgate_held_requests", "crawlgate_leases"] {
        assert_eq!(bench.metric(gauge), 0.0, "{gauge}");
    }
}

/// The numbers by which an operator sees why a burst loses requests.
#[tokio::test(start_paused = true)]
async fn a_refusal_by_the_pace_names_the_pace_the_queue_and_the_requests_that_fit() {
    for (politeness, burst, expected) in [
        (
            "{ delay: 2s, jitter: 1.0..1.5, max_hold: 10s }",
            20,
            "the host gets a request every 2.5 s, ",
        ),
        (
            "{ delay: 0s, concurrency: 1, max_hold: 10s }",
            2,
            "the host gets at most 1 at once, and 0 others wait for it",
        ),
    ] {
        let bench = pipeline_on_runtime_clock(politeness);
        let (slot, _) = bench.ask("http://a.test/").await.admitted();
        slot.record_sent();
        let waiting: Vec<_> = (1..burst).map(|_| bench.start("http://a.test/x")).collect();
        let mut details = vec![];
        for one in waiting {
            match one.await.unwrap().outcome {
                Ok(slot) => slot.record_sent(),
                Err(refusal) => {
                    assert_eq!(refusal.reason, Reason::RateLimited);
                    details.push(refusal.detail.unwrap().into_owned());
                }
            }
        }
        let first = details.iter().max().unwrap();
        assert!(first.starts_with(expected), "{details:?}");
        if burst > 2 {
            assert!(
                first.ends_with(
                    " others wait for it, and 4 fit into the 10 s for which one is held"
                ),
                "{details:?}"
            );
        }
        drop(slot);
    }
}

#[tokio::test]
async fn a_request_that_may_not_wait_learns_the_pace_too() {
    let bench = pipeline("{ delay: 10s, jitter: none, max_hold: 20s, overflow: refuse }");
    bench.pass("http://a.test/1").await;
    let refusal = bench.ask("http://a.test/2").await.outcome.unwrap_err();
    assert_eq!(
        refusal.detail.as_deref(),
        Some(
            "the host gets a request every 10 s, 0 others wait for it, and 2 fit into the 20 s for which one is held"
        )
    );
}

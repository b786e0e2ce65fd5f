//! The order of held requests, through pipeline and queue: classes, priorities, crawlers, and strict order.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crawlgate::clock::Clock;
use crawlgate::model::certificate_verification::CertificateVerification;
use crawlgate::model::crawler::{Crawler, CrawlerHint};
use crawlgate::model::http_versions::OriginHttpVersions;
use crawlgate::model::profile::Conditional;
use crawlgate::model::reason::Reason;
use crawlgate::model::rule_id::Slug;
use crawlgate::pacing::pace::HostPace;
use crawlgate::pacing::queue::WaitOrder;
use crawlgate::pipeline::response::evaluate_response;
use crawlgate::pipeline::robots_fetch::RobotsFetchRequest;
use crawlgate::policy::options::politeness::PaceKey;
use crawlgate::urls::target::UrlTarget;

use tokio::task::JoinHandle;

use super::gate::{pipeline_by_clock, snapshot};
use crate::support::pipeline::{StaticResolver, TestPipeline};

/// Rules for a URL of each class, and for priorities.
const RULES: &str = "
    { id: index, when: { under: /index }, then: index-only },
    { id: follow, when: { under: /follow }, then: follow-only },
    { id: neither, when: { under: /neither }, set: { index: false, follow: false } },
    { id: high, when: { under: /high }, set: { priority: highest } },
    { id: low, when: { under: /low }, set: { priority: 2 } },
    { id: normal, when: { under: /normal }, set: { priority: normal } }";

fn crawler(name: &str) -> Crawler {
    Crawler::new(&Slug::new(name).unwrap()).with_hints([CrawlerHint::Depth, CrawlerHint::Priority])
}

fn bench(politeness: &str) -> TestPipeline {
    pipeline_by_clock(Clock::from_runtime(), 500, snapshot(politeness, RULES))
}

/// Requests that are held one after the other; each ends at once when it goes.
struct Crowd {
    bench: TestPipeline,
    went: Arc<Mutex<Vec<String>>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Crowd {
    fn new(bench: &TestPipeline) -> Self {
        Self {
            bench: bench.clone(),
            went: Arc::default(),
            tasks: vec![],
        }
    }

    async fn wait(
        &mut self,
        crawler: Crawler,
        path: &str,
        field: Option<(&'static str, &'static str)>,
    ) {
        let bench = self.bench.clone();
        let went = Arc::clone(&self.went);
        let label = label(path, field);
        let url = format!("http://a.test{path}");
        self.tasks.push(tokio::spawn(async move {
            let (slot, _) = bench
                .ask_as(crawler, &url, field.as_slice())
                .await
                .admitted();
            went.lock().unwrap().push(label);
            slot.record_sent();
        }));
        self.bench.wait_until_held(self.tasks.len() as f64).await;
    }

    /// The order in which all requests went.
    async fn went(self) -> Vec<String> {
        for task in self.tasks {
            task.await.unwrap();
        }
        Arc::try_unwrap(self.went).unwrap().into_inner().unwrap()
    }
}

fn label(path: &str, field: Option<(&str, &str)>) -> String {
    field.map_or(path.to_owned(), |(name, value)| {
        format!("{path} {name}: {value}")
    })
}

/// The classes that the pipeline assigns, visible in strict order: the last to arrive goes first.
#[tokio::test(start_paused = true)]
async fn a_request_has_the_class_that_its_url_and_its_priority_make() {
    let bench = bench("{ delay: 0s, concurrency: 1, order: strict }");
    bench
        .admission
        .record_redirect(&UrlTarget::parse("http://a.test/target").unwrap());
    let (first, _) = bench
        .ask_as(crawler("bot"), "http://a.test/", &[])
        .await
        .admitted();
    let waiters = [
        // refresh
        ("/low/page", None),
        ("/page/7", Some(("priority", "i, u=7"))),
        // follow
        ("/follow/page", None),
        ("/neither/page", None),
        ("/page/5", Some(("priority", "u=5"))),
        ("/page/1", Some(("crawl-priority", "1"))),
        // index_follow
        ("/page", None),
        ("/normal/page", Some(("crawl-priority", "-2"))),
        ("/page/3", Some(("crawl-priority", "3"))),
        // index
        ("/index/page", None),
        ("/page/-1", Some(("crawl-priority", "-1"))),
        ("/high/follow", Some(("crawl-depth", "1"))),
        // redir
        ("/target", None),
        // user
        ("/seed", Some(("crawl-depth", "0"))),
    ];
    let classes = [2, 4, 3, 2, 2, 1];
    let mut crowd = Crowd::new(&bench);
    for (path, field) in waiters {
        crowd.wait(crawler("bot"), path, field).await;
    }
    drop(first);
    let went = crowd.went().await;
    let mut expected: Vec<String> = vec![];
    let mut end = waiters.len();
    for size in classes.into_iter().rev() {
        // `/high/follow` is of `redir`, two above a page.
        expected.extend(
            waiters[end - size..end]
                .iter()
                .map(|(path, field)| label(path, *field)),
        );
        end -= size;
    }
    assert_eq!(went, expected);
}

#[tokio::test(start_paused = true)]
async fn priorities_count_only_of_crawlers_that_may_have_one() {
    let bench = bench("{ delay: 0s, concurrency: 1, order: strict }");
    let (first, _) = bench
        .ask_as(crawler("bot"), "http://a.test/", &[])
        .await
        .admitted();
    let mut crowd = Crowd::new(&bench);
    crowd.wait(Crawler::anonymous(), "/1", None).await;
    for field in [
        ("crawl-priority", "-2"),
        ("priority", "u=0"),
        ("crawl-depth", "0"),
    ] {
        crowd.wait(Crawler::anonymous(), "/2", Some(field)).await;
    }
    drop(first);
    assert_eq!(crowd.went().await[0], "/1");
}

#[tokio::test(start_paused = true)]
async fn classes_share_a_host_by_their_weights() {
    let bench = bench("{ delay: 1s, jitter: none, max_hold: 2m }");
    let (first, _) = bench
        .ask_as(crawler("bot"), "http://a.test/", &[])
        .await
        .admitted();
    first.record_sent();
    let mut crowd = Crowd::new(&bench);
    for number in 0..44 {
        let path = if number % 2 == 0 { "/page" } else { "/index" };
        crowd
            .wait(crawler("bot"), &format!("{path}/{number}"), None)
            .await;
    }
    drop(first);
    let went = crowd.went().await;
    for (grants, pages) in [(11, 1), (22, 2)] {
        let found = went[..grants]
            .iter()
            .filter(|path| path.starts_with("/page"))
            .count();
        assert_eq!(found, pages, "{went:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn crawlers_take_turns_at_a_host() {
    let bench = bench("{ delay: 0s, concurrency: 1 }");
    let (first, _) = bench
        .ask_as(crawler("big"), "http://a.test/", &[])
        .await
        .admitted();
    let mut crowd = Crowd::new(&bench);
    for number in 0..50 {
        crowd
            .wait(crawler("big"), &format!("/big/{number}"), None)
            .await;
    }
    for number in 0..3 {
        crowd
            .wait(crawler("small"), &format!("/small/{number}"), None)
            .await;
    }
    drop(first);
    let expected = [
        "/big/0", "/small/0", "/big/1", "/small/1", "/big/2", "/small/2", "/big/3",
    ];
    assert_eq!(crowd.went().await[..7], expected);
}

/// One request of the lowest class at a host that always has three waiting requests of the highest, and admits one per second.
async fn lowest_in_a_crowd(max_hold: &str) -> (Duration, u32) {
    let bench = bench(&format!(
        "{{ delay: 1s, jitter: none, order: strict, max_hold: {max_hold} }}"
    ));
    let pump = |task: u32| {
        let bench = bench.clone();
        async move {
            for number in 0.. {
                let url = format!("http://a.test/high/{task}/{number}");
                let admission = bench.ask_as(crawler("big"), &url, &[]).await;
                if let Ok(slot) = admission.outcome {
                    slot.record_sent();
                }
            }
        }
    };
    let pumps: Vec<_> = (0..3).map(|task| tokio::spawn(pump(task))).collect();
    bench.wait_until_held(3.0).await;
    let began = tokio::time::Instant::now();
    let mut tries = 1;
    while let Some(reason) = bench
        .ask_as(crawler("big"), "http://a.test/low", &[])
        .await
        .reason()
    {
        assert_eq!(reason, Reason::RateLimited);
        tries += 1;
        assert!(tries < 20, "it starves");
    }
    pumps.iter().for_each(JoinHandle::abort);
    (began.elapsed(), tries)
}

/// Ageing from `refresh` to `redir`, the class of the others, takes four times half a minute. A request that is refused and
/// returns has waited since its first arrival.
#[tokio::test(start_paused = true)]
async fn in_strict_order_the_lowest_goes_once_it_has_risen() {
    for (max_hold, tries) in [("10m", 1), ("25s", 5)] {
        let (waited, tried) = lowest_in_a_crowd(max_hold).await;
        assert!(
            (120..124).contains(&waited.as_secs()),
            "{max_hold}: {waited:?}"
        );
        assert_eq!(tried, tries, "{max_hold}");
    }
}

/// No request ends, arrives or leaves when it rises; it checks by itself.
#[tokio::test(start_paused = true)]
async fn an_aged_request_becomes_first_without_an_event() {
    let rules = "{ id: slow, when: { under: /slow }, set: { politeness: { delay: 10m } } }, \
        { id: low, when: { under: /low }, set: { priority: lower } }";
    let politeness = "{ delay: 1s, jitter: none, order: strict, max_hold: 20m }";
    let bench = pipeline_by_clock(Clock::from_runtime(), 10, snapshot(politeness, rules));
    let (first, _) = bench
        .ask_as(crawler("ant"), "http://a.test/", &[])
        .await
        .admitted();
    first.record_sent();
    drop(first);
    let began = tokio::time::Instant::now();
    let mut crowd = Crowd::new(&bench);
    // Two of them, so that the one that rises is later in turn, and first of its crawler.
    crowd.wait(crawler("bee"), "/low/1", None).await;
    crowd.wait(crawler("bee"), "/slow/2", None).await;
    let went = Arc::clone(&crowd.went);
    while went.lock().unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(*went.lock().unwrap(), ["/low/1"]);
    assert!(
        (29..31).contains(&began.elapsed().as_secs()),
        "{:?}",
        began.elapsed()
    );
}

/// The arrival of the longest waiter brings strict order: another request is the best now, and is woken.
#[tokio::test(start_paused = true)]
async fn a_request_made_first_by_another_is_woken() {
    let rules = "{ id: slow, when: { under: /slow }, set: { politeness: { delay: 10m } } }, \
        { id: low, when: { under: /low }, set: { priority: lower } }, \
        { id: last, when: { under: /last }, set: { priority: lowest, politeness: { order: strict } } }";
    let politeness = "{ delay: 1s, jitter: none, concurrency: 1, max_hold: 20m }";
    let bench = pipeline_by_clock(Clock::from_runtime(), 10, snapshot(politeness, rules));
    let (first, _) = bench
        .ask_as(crawler("ant"), "http://a.test/", &[])
        .await
        .admitted();
    first.record_sent();
    let last = "http://a.test/last";
    bench
        .ask_as(crawler("bee"), last, &[("crawl-max-wait", "0")])
        .await
        .refused();
    let mut crowd = Crowd::new(&bench);
    crowd.wait(crawler("bee"), "/low", None).await;
    tokio::time::sleep(Duration::from_secs(40)).await;
    crowd.wait(crawler("bee"), "/slow", None).await;
    drop(first);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(
        crowd.went.lock().unwrap().is_empty(),
        "the best waits for ten minutes"
    );
    let comes = bench.clone();
    let _comes = tokio::spawn(async move { comes.ask_as(crawler("bee"), last, &[]).await });
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(*crowd.went.lock().unwrap(), ["/low"]);
}

#[tokio::test(start_paused = true)]
async fn where_an_answer_leads_to_is_remembered_for_ten_minutes() {
    for (status, location, target, led) in [
        (302, Some("/target#part"), "http://a.test/target", true),
        (308, Some("//B.test:80/x?y"), "http://b.test/x?y", true),
        (200, Some("/target"), "http://a.test/target", false),
        (304, Some("/target"), "http://a.test/target", false),
        (301, None, "http://a.test/target", false),
        (301, Some("mailto:x@y.test"), "http://a.test/target", false),
    ] {
        let bench = bench("{ delay: 0s }");
        let mut passage = bench
            .admit(Crawler::anonymous(), "http://a.test/page", &[])
            .await;
        let mut head = http::Response::builder().status(status);
        if let Some(location) = location {
            head = head.header("location", location);
        }
        let (parts, ()) = head.body(()).unwrap().into_parts();
        evaluate_response(
            &mut passage.evaluation,
            &parts,
            Conditional::No,
            None,
            &bench.admission,
        )
        .unwrap();
        let target = UrlTarget::parse(target).unwrap();
        assert_eq!(
            bench.admission.is_redirect_target(&target),
            led,
            "{status} {location:?}"
        );
        tokio::time::advance(Duration::from_secs(600)).await;
        assert!(!bench.admission.is_redirect_target(&target));
    }
}

/// Every request for the host waits for its robots.txt.
#[tokio::test(start_paused = true)]
async fn a_fetch_of_robots_goes_before_all_others() {
    let bench = bench("{ delay: 0s, concurrency: 1, order: strict }");
    let (first, _) = bench
        .ask_as(crawler("bot"), "http://a.test/", &[])
        .await
        .admitted();
    let mut crowd = Crowd::new(&bench);
    for path in ["/1", "/2", "/high/3"] {
        crowd.wait(crawler("bot"), path, None).await;
    }
    let errand = RobotsFetchRequest {
        agent: "bot".into(),
        crawler: crawler("bot"),
        key: PaceKey::Host,
        pace: HostPace {
            concurrency: 1,
            ..HostPace::UNLIMITED
        },
        per_address: None,
        order: WaitOrder::Strict,
        admission: Arc::clone(&bench.admission),
        verify: CertificateVerification::On,
        versions: OriginHttpVersions::Http1And2,
        parent: None,
    };
    let target = UrlTarget::parse("http://a.test/robots.txt").unwrap();
    let resolver = StaticResolver::loopback();
    let fetch = errand.acquire_permit(
        &target,
        CertificateVerification::On,
        &resolver,
        Duration::from_secs(20),
    );
    let (permit, ()) = tokio::join!(fetch, async {
        bench.wait_until_held(4.0).await;
        drop(first);
    });
    assert!(crowd.went.lock().unwrap().is_empty());
    drop(permit);
    assert_eq!(crowd.went().await, ["/high/3", "/1", "/2"]);
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_estimates_the_wait_by_the_requests_ahead() {
    let politeness = "{ delay: 1m, jitter: none, max_hold: 10m }";
    let bench = pipeline_by_clock(Clock::from_runtime(), 4, snapshot(politeness, RULES));
    bench
        .ask_as(crawler("bot"), "http://a.test/", &[])
        .await
        .admitted()
        .0
        .record_sent();
    let mut crowd = Crowd::new(&bench);
    for path in ["/1", "/2", "/low/3", "/index/4"] {
        crowd.wait(crawler("bot"), path, None).await;
    }
    for (path, minutes) in [("/high/5", 1), ("/index/6", 2), ("/7", 4), ("/low/8", 5)] {
        let (reason, after) = bench
            .ask_as(crawler("bot"), &format!("http://a.test{path}"), &[])
            .await
            .refused();
        assert_eq!(reason, Reason::QueueFull, "{path}");
        assert_eq!(
            after.map(|after| after.div_ceil(60)),
            Some(minutes),
            "{path}"
        );
    }
}

/// Four threads, both orders at the same hosts, all classes, departures: every request ends, and nothing leaks.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_request_of_a_mixed_crowd_ends() {
    let rules = format!(
        "{RULES}, {{ id: s, when: {{ in_query: s }}, set: {{ politeness: {{ order: strict }} }} }}"
    );
    let politeness = "{ delay: 1ms, jitter: 1.0..2.0, concurrency: 2 }";
    let bench = pipeline_by_clock(Clock::system(), 1_000, snapshot(politeness, &rules));
    let mut rng = fastrand::Rng::with_seed(9);
    let mut crowd = vec![];
    for number in 0..600 {
        let bench = bench.clone();
        let stays = rng.u64(0..12);
        let leaves = rng.u8(..) < 100;
        let path = ["index", "follow", "high", "low", "normal", "page"][rng.usize(..6)];
        let order = ["", "?s"][rng.usize(..2)];
        let crawler = crawler(["ant", "bee", "cat"][rng.usize(..3)]);
        crowd.push(tokio::spawn(async move {
            let one = async {
                let url = format!("http://{}.test/{path}{order}", number % 5);
                let (slot, _) = bench.ask_as(crawler, &url, &[]).await.admitted();
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
        assert_eq!(bench.metric(gauge), 0.0, "{gauge}");
    }
}

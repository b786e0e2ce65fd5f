//! Hosts as operators see them: who waits, what was learned, what is stopped, and the line of robots.txt that rules.

use std::net::IpAddr;
use std::time::Instant;

use crawlgate::admin::hosts::HostsApi;
use crawlgate::clock::ManualClock;
use crawlgate::model::certificate_verification::CertificateVerification;
use crawlgate::model::crawler::Crawler;
use crawlgate::model::rule_id::Slug;
use crawlgate::pacing::adaptive::AdaptiveDelay;
use crawlgate::pacing::pace::{HostPace, Jitter, RateLimit, RequestKind};
use crawlgate::pacing::queue::{PriorityClass, QueueRank, WaitOrder};
use crawlgate::pacing::stops::{StopQuery, StopReason};
use crawlgate::pipeline::admission::{
    AdmissionLimits, AdmissionQueue, AdmissionRequest, HostSlot, WaitTerms,
};
use crawlgate::pipeline::robots_fetch::inspection::{OriginInspector, RobotsFileStatus};
use crawlgate::pipeline::stop_registry::StopTarget;
use crawlgate::policy::options::politeness::Overflow;
use crawlgate::robots::fetch_outcome::RobotsFetchOutcome;
use crawlgate::robots::state::{RobotsFetchResult, RobotsState};
use crawlgate::store::{HostStore, LimiterKey};
use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Value as Json, json};

use super::*;
use crate::support::admin::default_apis_with;

const POLITE: HostPace = HostPace {
    delay: Duration::from_secs(1),
    concurrency: 2,
    ..HostPace::UNLIMITED
};
const FILE: &str = "# for all
User-agent: *
Crawl-delay: 2.5
Disallow: /private
Allow: /private/open

User-agent: news-bot
Disallow: /
Sitemap: http://a.test/map.xml
";

/// The cached state of origins, as a test defines it.
#[derive(Debug, Default)]
struct Memory {
    robots: Vec<(&'static str, RobotsFileStatus)>,
    dead: Vec<(&'static str, SocketAddr)>,
    addresses: Vec<(&'static str, IpAddr)>,
}

impl OriginInspector for Memory {
    fn robots(&self, host: &str) -> Vec<RobotsFileStatus> {
        self.robots
            .iter()
            .filter(|(of, _)| *of == host)
            .map(|(_, seen)| seen.clone())
            .collect()
    }

    fn addresses(&self, host: &str) -> Vec<IpAddr> {
        self.addresses
            .iter()
            .filter(|(of, _)| *of == host)
            .map(|(_, address)| *address)
            .collect()
    }

    fn refusing_addresses(&self, host: &str) -> Vec<(SocketAddr, Duration)> {
        let of_host = self.dead.iter().filter(|(of, _)| *of == host);
        of_host
            .map(|(_, address)| (*address, Duration::from_secs(30)))
            .collect()
    }
}

struct Hosts {
    bench: AdminBench,
    admission: Arc<AdmissionQueue>,
    manual_clock: ManualClock,
}

impl Hosts {
    async fn new(memory: impl FnOnce(&Clock) -> Memory) -> Self {
        let (clock, manual_clock) = Clock::manual();
        let metrics = Metrics::new(&[], &[]).unwrap();
        let limits = AdmissionLimits {
            per_host: 100,
            total: 1_000,
            max_wait: Duration::from_secs(3_600),
        };
        let memory = Arc::new(memory(&clock));
        let admission = Arc::new(AdmissionQueue::new(
            HostStore::with_seed(1),
            limits,
            clock,
            metrics.clone(),
        ));
        let hosts = HostsApi::new(Arc::clone(&admission), memory, None);
        let guard = AdminGuard::new([], None);
        let apis = AdminApis {
            hosts,
            ..default_apis_with(metrics)
        };
        Self {
            bench: AdminBench::with_apis(guard, apis).await,
            admission,
            manual_clock,
        }
    }

    async fn empty() -> Self {
        Self::new(|_| Memory::default()).await
    }

    /// A slot of a host that lets the request go at once.
    async fn slot(&self, name: &str, pace: HostPace) -> HostSlot {
        slot(
            Arc::clone(&self.admission),
            name.to_owned(),
            pace,
            Crawler::anonymous(),
        )
        .await
    }

    async fn get(&self, path: &str) -> (u16, Json) {
        let answer = self
            .bench
            .ask(&format!("GET /api/v1/hosts{path}"), "")
            .await;
        (
            status(&answer),
            serde_json::from_str(body(&answer)).expect(&answer),
        )
    }

    async fn names(&self, query: &str) -> Vec<String> {
        let (status, list) = self.get(query).await;
        assert_eq!(status, 200, "{query}: {list}");
        let hosts = list["hosts"].as_array().unwrap();
        hosts
            .iter()
            .map(|host| host["host"].as_str().unwrap().to_owned())
            .collect()
    }
}

async fn slot(
    admission: Arc<AdmissionQueue>,
    name: String,
    pace: HostPace,
    crawler: Crawler,
) -> HostSlot {
    let asking = AdmissionRequest {
        key: LimiterKey {
            name: &name,
            kind: RequestKind::Navigation,
        },
        pace,
        overflow: Overflow::Hold,
        crawler: &crawler,
        resource: "x",
    };
    let rank = QueueRank {
        class: PriorityClass::User,
        order: WaitOrder::Weighted,
    };
    admission
        .acquire(&asking, &mut None, || WaitTerms {
            max_wait: Duration::from_secs(3_600),
            rank,
        })
        .await
        .unwrap()
}

fn known(
    clock: &Clock,
    base: &str,
    verify: CertificateVerification,
    fetched: &RobotsFetchResult<'_>,
) -> RobotsFileStatus {
    let known = Arc::new(RobotsState::from_fetch(None, fetched, clock.now()));
    RobotsFileStatus::new(base, verify, &known, (clock.now(), clock.wall_time())).unwrap()
}

fn file(body: &[u8]) -> RobotsFetchResult<'_> {
    RobotsFetchResult {
        outcome: RobotsFetchOutcome::File,
        status: Some(200),
        body,
        ..RobotsFetchResult::failed(RobotsFetchOutcome::File)
    }
}

#[tokio::test]
async fn a_host_is_shown_with_its_waiting_crawlers() {
    let hosts = Hosts::empty().await;
    assert_eq!(
        hosts.get("").await,
        (200, json!({ "total": 0, "hosts": [], "fleet": null }))
    );
    let first = hosts.slot("a.test", POLITE).await;
    first.record_sent();
    let bot = Crawler::new(&Slug::new("news-bot").unwrap());
    for crawler in [Crawler::anonymous(), bot.clone(), bot] {
        tokio::spawn(slot(
            Arc::clone(&hosts.admission),
            "a.test".into(),
            POLITE,
            crawler,
        ));
    }
    tokio::task::yield_now().await;
    let (_, list) = hosts.get("").await;
    let expected = json!({
        "host": "a.test",
        "waiting": 3,
        "slots": { "used": 1, "of": 2 },
        "next_in_ms": 1_000,
        "delay_ms": 1_000,
        "resting": null,
        "last_request": "2026-01-01T00:00:00.000Z",
        "errors_in_row": 0,
        "crawlers_waiting": { "anonymous": 1, "news-bot": 2 },
        "stopped": false,
    });
    let expected = json!({ "total": 1, "hosts": [expected], "fleet": null });
    assert_eq!(list, expected);
    hosts.manual_clock.advance(Duration::from_millis(400));
    let (_, one) = hosts.get("/A.test").await;
    assert_eq!(
        (&one["next_in_ms"], &one["tracked"]),
        (&json!(600), &json!(true))
    );
    assert_eq!(one["last_request"], "2026-01-01T00:00:00.000Z");
    hosts.manual_clock.advance(Duration::from_millis(600));
    assert_eq!(hosts.get("/a.test").await.1["next_in_ms"], 0);
}

#[tokio::test]
async fn learned_limits_and_stops_are_shown() {
    let hosts = Hosts::empty().await;
    fn after(seconds: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(seconds))])
    }
    for (host, status, fields, failures, rest) in [
        ("good.test", StatusCode::OK, HeaderMap::new(), 0, None),
        (
            "bad.test",
            StatusCode::BAD_GATEWAY,
            HeaderMap::new(),
            1,
            None,
        ),
        (
            "asks.test",
            StatusCode::TOO_MANY_REQUESTS,
            after("30"),
            0,
            Some((30_000, "Retry-After")),
        ),
        (
            "busy.test",
            StatusCode::SERVICE_UNAVAILABLE,
            after("600"),
            0,
            Some((600_000, "Retry-After")),
        ),
        (
            "complains.test",
            StatusCode::TOO_MANY_REQUESTS,
            HeaderMap::new(),
            0,
            Some((0, "429 or 503")),
        ),
    ] {
        let mut slot = hosts.slot(host, POLITE).await;
        slot.begin();
        slot.record_sent();
        slot.record_response(status, &fields);
        drop(slot);
        let (_, one) = hosts.get(&format!("/{host}")).await;
        assert_eq!(one["errors_in_row"], failures, "{one}");
        match rest {
            None => assert_eq!(one["resting"], Json::Null, "{one}"),
            Some((for_ms, why)) => {
                let found = one["resting"]["for_ms"].as_u64().unwrap();
                assert!(
                    found == for_ms || for_ms == 0 && (5_000..6_251).contains(&found),
                    "{one}"
                );
                assert!(
                    one["resting"]["why"].as_str().unwrap().contains(why),
                    "{one}"
                );
                assert!(
                    one["resting"]["until"]
                        .as_str()
                        .unwrap()
                        .starts_with("2026-01-01T00:"),
                    "{one}"
                );
                assert_eq!(one["next_in_ms"], json!(found), "{one}");
                assert_eq!(one["slots"]["of"], 1, "{one}");
            }
        }
    }
    let reason = StopReason::new("ticket 7").unwrap();
    hosts
        .admission
        .stops()
        .add(StopTarget::parse("domain:bad.test").unwrap(), reason, None)
        .unwrap();
    assert_eq!(hosts.get("/bad.test").await.1["stopped"], true);
    assert_eq!(hosts.get("/good.test").await.1["stopped"], false);
    assert_eq!(
        hosts.names("?sort=rest&limit=3").await,
        ["busy.test", "asks.test", "complains.test"]
    );
    assert_eq!(
        hosts.names("?sort=name&limit=2").await,
        ["asks.test", "bad.test"]
    );
    assert_eq!(
        hosts.names("?q=A&sort=name").await,
        ["asks.test", "bad.test", "complains.test"]
    );
    assert_eq!(
        hosts.names("?sort=next&limit=2").await,
        ["bad.test", "good.test"]
    );
    assert_eq!(hosts.get("?q=good").await.1["total"], 1);
}

#[tokio::test]
async fn stopped_hosts_are_listed_without_requests() {
    let hosts = Hosts::empty().await;
    drop(hosts.slot("known.test", POLITE).await);
    drop(hosts.slot("paced.test", POLITE).await);
    for target in [
        "host:new.test",
        "domain:all.test",
        "crawler:news-bot",
        "known.test",
        "www.paced.test",
    ] {
        let reason = StopReason::new("ticket 7").unwrap();
        hosts
            .admission
            .stops()
            .add(StopTarget::parse(target).unwrap(), reason, None)
            .unwrap();
    }
    let stops = Arc::clone(hosts.admission.stops());
    let bot = Crawler::new(&Slug::new("news-bot").unwrap());
    let waits = |host: &'static str, crawler: Crawler| {
        let stops = Arc::clone(&stops);
        async move {
            let covers = StopQuery {
                host,
                crawler: None,
                rules: &[],
            };
            drop(
                stops
                    .wait_until_lifted_for(&covers, &crawler, Duration::from_secs(3_600))
                    .await,
            );
        }
    };
    tokio::spawn(waits("known.test", bot.clone()));
    tokio::spawn(waits("www.paced.test", bot));
    tokio::spawn(waits("www.all.test", Crawler::anonymous()));
    tokio::task::yield_now().await;
    let (_, list) = hosts.get("?sort=name").await;
    let found: Vec<_> = list["hosts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|host| {
            let slots = host["slots"].is_object();
            (
                host["host"].as_str().unwrap(),
                host["stopped"].as_bool().unwrap(),
                host["waiting"].as_u64().unwrap(),
                slots,
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            ("all.test", true, 0, false),
            ("known.test", true, 1, true),
            ("new.test", true, 0, false),
            ("paced.test", false, 0, true),
            ("www.all.test", true, 1, false),
            ("www.paced.test", true, 1, false)
        ]
    );
    assert_eq!(hosts.names("?q=new").await, ["new.test"]);
    assert_eq!(
        hosts.names("?sort=next&limit=2").await,
        ["known.test", "paced.test"]
    );
    for (host, tracked, waiting) in [
        ("known.test", true, json!({ "news-bot": 1 })),
        ("new.test", false, json!({})),
        ("deep.www.all.test", false, json!({})),
        ("www.all.test", false, json!({ "anonymous": 1 })),
        ("www.paced.test", true, json!({ "news-bot": 1 })),
    ] {
        let (_, one) = hosts.get(&format!("/{host}")).await;
        assert_eq!(one["host"], json!(host), "{one}");
        assert_eq!(one["stopped"], true, "{one}");
        assert_eq!(one["tracked"], json!(tracked), "{one}");
        assert_eq!(&one["crawlers_waiting"], &waiting, "{one}");
    }
}

#[tokio::test]
async fn a_host_is_found_by_its_own_name_whatever_it_is_paced_as() {
    let hosts = Hosts::new(|_| Memory {
        addresses: vec![
            ("shared.example", "192.0.2.9".parse().unwrap()),
            ("shared.example", "192.0.2.7".parse().unwrap()),
        ],
        ..Memory::default()
    })
    .await;
    for key in [
        "example.co.uk",
        "own.example.org",
        "example.org",
        "192.0.2.7",
        "2001:db8::8",
    ] {
        drop(hosts.slot(key, POLITE).await);
    }
    for (host, key) in [
        ("www.news.example.co.uk", Some("example.co.uk")),
        ("own.example.org", Some("own.example.org")),
        ("other.example.org", Some("example.org")),
        ("shared.example", Some("192.0.2.7")),
        ("[2001:db8::8]", Some("2001:db8::8")),
        ("unknown.example", None),
        ("co.uk", None),
    ] {
        let (status, one) = hosts.get(&format!("/{host}")).await;
        assert_eq!(
            status,
            if key.is_some() { 200 } else { 404 },
            "{host}: {one}"
        );
        assert_eq!(one["paced_as"].as_str(), key, "{host}: {one}");
        if key.is_some() {
            assert_eq!(one["host"], json!(host), "{one}");
            assert_eq!(one["slots"]["of"], 2, "{one}");
        }
    }
}

#[tokio::test]
async fn a_host_with_a_robots_txt_on_every_port_is_shown_in_part() {
    let long = format!("User-agent: *\nDisallow: /{}\n", "\u{1}".repeat(300 << 10));
    let hosts = Hosts::new(|clock| {
        fn base(n: usize) -> String {
            format!("http://a.test:{}/", 8_000 + n)
        }
        let robots = (0..40).map(|n| {
            (
                "a.test",
                known(
                    clock,
                    &base(n),
                    CertificateVerification::On,
                    &file(long.as_bytes()),
                ),
            )
        });
        Memory {
            robots: robots.collect(),
            ..Memory::default()
        }
    })
    .await;
    let (_, all) = hosts.get("/a.test?url=/x").await;
    let files = all["robots"].as_array().unwrap();
    let whole = files
        .iter()
        .filter(|file| file["cut"] == false && file["text"].is_string())
        .count();
    let cut = files
        .iter()
        .filter(|file| file["cut"] == true && file["text"].is_null())
        .count();
    assert_eq!((files.len(), whole, cut), (16, 3, 13));
    assert!(
        files
            .iter()
            .all(|file| file["size"] == long.len() && file["ruling"]["allow"] == true)
    );
    assert_eq!(hosts.get("/a.test:8039").await.1["robots"][0]["cut"], false);
}

#[tokio::test]
async fn the_pace_shown_is_of_the_latest_policy() {
    let hosts = Hosts::empty().await;
    let second = Duration::from_secs(1);
    let pace = HostPace {
        jitter: Jitter::new(1.1, 1.2),
        rate: Some(RateLimit::new(2, 10 * second, 4)),
        adaptive: Some(AdaptiveDelay::new(2.2, 3 * second, 60 * second)),
        bytes_per_second: std::num::NonZeroU64::new(1_000),
        ..POLITE
    };
    drop(hosts.slot("a.test", pace).await);
    let (_, one) = hosts.get("/a.test").await;
    let expected = json!({
        "delay_ms": 1_000, "jitter": [1.1, 1.2], "one_per_ms": 5_000, "burst": 4, "concurrency": 2, "bytes_per_second": 1_000,
    });
    assert_eq!(one["pace"], expected);
    let expected = json!({ "latency_ms": null, "factor": 2.2, "min_ms": 3_000, "max_ms": 60_000, "delay_ms": 3_000 });
    assert_eq!(
        (&one["adaptive"], &one["delay_ms"], &one["dead"]),
        (&expected, &json!(3_000), &Json::Null)
    );
    let free = json!({
        "delay_ms": 0, "jitter": [1.0, 1.0], "one_per_ms": null, "burst": null, "concurrency": null,
        "bytes_per_second": null,
    });
    drop(hosts.slot("b.test", HostPace::UNLIMITED).await);
    let (_, other) = hosts.get("/b.test").await;
    assert_eq!(
        (&other["pace"], &other["adaptive"], &other["slots"]["of"]),
        (&free, &Json::Null, &Json::Null)
    );
}

#[tokio::test]
async fn robots_txt_is_shown_with_the_line_that_rules() {
    let hosts = Hosts::new(|clock| {
        let seen = |base, verify, fetched: &RobotsFetchResult<'_>| {
            ("a.test", known(clock, base, verify, fetched))
        };
        Memory {
            robots: vec![
                seen(
                    "http://a.test/",
                    CertificateVerification::On,
                    &file(FILE.as_bytes()),
                ),
                seen(
                    "http://a.test:8080/",
                    CertificateVerification::On,
                    &RobotsFetchResult::failed(RobotsFetchOutcome::Absent),
                ),
                seen(
                    "https://a.test/",
                    CertificateVerification::Skip,
                    &RobotsFetchResult::failed(RobotsFetchOutcome::Timeout),
                ),
                seen(
                    "https://a.test:8443/",
                    CertificateVerification::On,
                    &file(b"User-agent: *\nDisallow: /\xff\n"),
                ),
            ],
            dead: vec![("a.test", "192.0.2.7:443".parse().unwrap())],
            ..Memory::default()
        }
    })
    .await;
    let (status, all) = hosts.get("/a.test").await;
    assert_eq!(
        (status, &all["tracked"], &all["waiting"], &all["slots"]),
        (200, &json!(false), &json!(0), &Json::Null)
    );
    assert_eq!(
        all["dead"],
        json!({ "addresses": [{ "address": "192.0.2.7:443", "for_ms": 30_000 }] })
    );
    let files = all["robots"].as_array().unwrap();
    let brief: Vec<_> = files
        .iter()
        .map(|f| {
            (
                f["authority"].as_str().unwrap(),
                f["status"].as_str().unwrap(),
            )
        })
        .collect();
    let expected = [
        ("a.test", "known"),
        ("a.test:8080", "none"),
        ("a.test", "unreachable"),
        ("a.test:8443", "known"),
    ];
    assert_eq!(brief, expected);
    let expected = json!({
        "scheme": "http", "authority": "a.test", "verified": true, "status": "known", "outcome": "file", "http_status": 200,
        "fetched_at": "2026-01-01T00:00:00.000Z", "fresh_until": files[0]["fresh_until"], "size": FILE.len(),
        "crawl_delay_ms": 2_500, "sitemaps": ["http://a.test/map.xml"], "text": FILE, "cut": false, "agent": "*",
        "ruling": null,
    });
    assert_eq!(files[0], expected);
    assert!(
        files[0]["fresh_until"].as_str().unwrap() > "2026-01-01T00:05",
        "{}",
        files[0]
    );
    assert_eq!(
        (&files[2]["verified"], &files[2]["text"]),
        (&json!(false), &Json::Null)
    );
    assert_eq!(files[3]["text"], "User-agent: *\nDisallow: /\u{fffd}\n");
    assert_eq!(
        hosts.get("/a.test:8443").await.1["robots"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    assert_eq!(
        hosts.get("/a.test:443").await.1["robots"][0]["status"],
        "unreachable"
    );

    for (query, line, rule, group, allow) in [
        (
            "url=http://a.test/private/x",
            Some(4),
            Some("Disallow: /private"),
            Some("*"),
            false,
        ),
        (
            "url=http://a.test/private/open",
            Some(5),
            Some("Allow: /private/open"),
            Some("*"),
            true,
        ),
        (
            "url=http%3A%2F%2FA.TEST%2Fx%3Fy",
            None,
            None,
            Some("*"),
            true,
        ),
        (
            "url=/private&agent=other-bot/1.0",
            Some(4),
            Some("Disallow: /private"),
            Some("*"),
            false,
        ),
        (
            "url=/x&agent=News-Bot",
            Some(8),
            Some("Disallow: /"),
            Some("news-bot"),
            false,
        ),
    ] {
        let (_, one) = hosts.get(&format!("/a.test?{query}")).await;
        let ruling = &one["robots"][0]["ruling"];
        let found = (
            &ruling["line"],
            &ruling["rule"],
            &ruling["group"],
            &ruling["allow"],
        );
        assert_eq!(
            found,
            (&json!(line), &json!(rule), &json!(group), &json!(allow)),
            "{query}: {one}"
        );
        assert_eq!(one["robots"][1]["ruling"], Json::Null, "there is no file");
        let other = &one["robots"][3]["ruling"];
        assert_eq!(
            other.is_null(),
            !query.contains("url=/"),
            "a URL is of one file: {query}: {other}"
        );
    }
}

#[tokio::test]
async fn names_that_are_not_known_and_parameters_that_cannot_be_read() {
    let hosts = Hosts::empty().await;
    drop(hosts.slot("xn--bcher-kva.example", POLITE).await);
    drop(hosts.slot("[2001:db8::7]", POLITE).await);
    drop(hosts.slot("2001:db8::8", POLITE).await);
    drop(hosts.slot("@192.0.2.7", POLITE).await);
    for (path, expected) in [
        ("/b%C3%BCcher.example", 200),
        ("/xn--bcher-kva.example:8080", 200),
        ("/[2001:DB8::7]", 200),
        ("/%5B2001:db8::7%5D:81", 200),
        ("/2001:db8::7", 200),
        ("/[2001:db8::8]", 200),
        ("/@192.0.2.7", 200),
        ("/%40192.0.2.7", 200),
        ("/192.0.2.7", 404),
        ("/unknown.test", 404),
        ("/", 400),
        ("/%", 400),
        ("/%zz", 400),
        ("/%ff", 400),
        ("/%00", 400),
        ("/a%0d%0ab", 400),
        ("/a%2fb", 400),
        ("/a/b", 400),
        ("/a%20b", 400),
        ("/a..b", 400),
        ("/a.test:", 400),
        ("/a.test:99999", 400),
        ("/user@a.test", 400),
        ("/http:%2f%2fa.test%2f", 400),
        ("/a.test?url=http://b.test/", 400),
        ("/a.test?url=%ff", 400),
        ("/a.test?uri=/", 400),
        ("?limit=0", 400),
        ("?limit=1001", 400),
        ("?sort=size", 400),
        ("?q=%", 400),
        ("?what=x", 400),
    ] {
        let (status, answer) = hosts.get(path).await;
        assert_eq!(status, expected, "{path}: {answer}");
        assert!(status == 200 || answer["detail"].is_string(), "{answer}");
    }
    for (line, expected) in [
        ("POST /api/v1/hosts", 405),
        ("DELETE /api/v1/hosts/a.test", 405),
        ("HEAD /api/v1/hosts", 200),
    ] {
        assert_eq!(
            hosts.bench.status(line, "Content-Length: 0\r\n").await,
            expected,
            "{line}"
        );
    }
    // Bytes that are not text.
    let mut stream = TcpStream::connect(hosts.bench.address()).await.unwrap();
    let request = format!(
        "GET /api/v1/hosts/\u{1}a HTTP/1.1\r\nHost: {}\r\n\r\n",
        hosts.bench.address()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    assert!(
        answer.starts_with(b"HTTP/1.1 400 "),
        "{}",
        String::from_utf8_lossy(&answer)
    );
}

/// A look is at one host when a request for another, of the same table, comes: that one goes on.
#[tokio::test]
async fn listing_hosts_does_not_block_requests() {
    let hosts = Hosts::empty().await;
    for n in 0..2_000 {
        drop(
            hosts
                .slot(&format!("www{n}.test"), HostPace::UNLIMITED)
                .await,
        );
    }
    let (looks, looked) = std::sync::mpsc::channel();
    let (go_on, reported) = std::sync::mpsc::channel::<()>();
    let admission = Arc::clone(&hosts.admission);
    let look = std::thread::spawn(move || {
        let first = std::cell::Cell::new(true);
        let seen = admission.host_statuses(|_| {
            // In the middle of its work, until it receives a message.
            if first.take() {
                looks.send(()).unwrap();
                let _ = reported.recv_timeout(Duration::from_secs(30));
            }
            true
        });
        seen.len()
    });
    looked
        .recv_timeout(Duration::from_secs(20))
        .expect("a look");
    let began = Instant::now();
    for n in 0..2_500 {
        drop(
            hosts
                .slot(&format!("www{n}.test"), HostPace::UNLIMITED)
                .await,
        );
    }
    assert!(began.elapsed() < Duration::from_secs(20));
    drop(go_on);
    assert!((2_000..=2_500).contains(&look.join().unwrap()));
    let names = hosts.names("?limit=3&sort=name").await;
    assert_eq!(names, ["www0.test", "www1.test", "www10.test"]);
    assert_eq!(hosts.get("?limit=1").await.1["total"], 2_500);
}

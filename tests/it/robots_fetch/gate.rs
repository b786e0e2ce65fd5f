//! The proxy before an origin with a robots.txt, for crawlers that never read it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::client::{Response, get, get_with};
use crate::support::command::crawlgate;
use crate::support::origin::{ScriptedOrigin, closed_port, response};
use crate::support::proxy::{CONFIG, TestProxy};
use crate::support::temp_dir::TempDir;

const FILE: &str = "User-agent: *\nDisallow: /private\n\nUser-agent: vip\nDisallow: /vip\n";

pub(super) fn gate(robots: &str, rules: &str) -> TestProxy {
    let config = "listen: 127.0.0.1:0\nadmin: { listen: 127.0.0.1:0 }\n\
                  policy: { path: policy.yaml, watch: false }\nlogs: { decisions: none }\n\
                  egress: { allow_loopback: true, ports: [1-65535], hosts: { a.test: 127.0.0.1 } }\n";
    let policy = format!(
        "policy: 1\nname: p\noptions: {{ disposition: allow, robots: {robots}, politeness: {{ delay: 0s, \
         jitter: 1.0..1.0, concurrency: 100 }} }}\nrules: [{rules}]\n"
    );
    TestProxy::start(config, &policy)
}

/// A site with a robots.txt and pages.
fn site() -> ScriptedOrigin {
    ScriptedOrigin::respond(|request| match request.path() == "/robots.txt" {
        true => response(200, "Content-Type: text/plain\r\n", FILE),
        false => response(200, "Content-Type: text/html\r\n", "page"),
    })
}

/// A site whose robots.txt has this status.
fn site_with(status: u16) -> ScriptedOrigin {
    ScriptedOrigin::respond(move |request| match request.path() == "/robots.txt" {
        true => response(status, "", ""),
        false => response(200, "", "page"),
    })
}

/// GETs a URL as this agent, if it is not empty.
pub(super) fn get_as(gate: &TestProxy, url: &str, agent: &str) -> Response {
    let fields = match agent {
        "" => String::new(),
        agent => format!("User-Agent: {agent}\r\n"),
    };
    get_with(gate.proxy, url, &fields)
}

/// GETs a URL without waiting for a robots.txt that has failed.
fn get_without_wait(gate: &TestProxy, url: &str) -> Response {
    get_with(gate.proxy, url, "Crawl-Max-Wait: 0\r\n")
}

/// A reading of a URL by lax servers is forbidden like the URL, but not by a rule for the whole site.
#[test]
fn robots_txt_applies_to_readings_of_urls() {
    let file =
        "User-agent: *\nDisallow: /private\n\nUser-agent: guest\nDisallow: /\nAllow: //open\n";
    let origin = ScriptedOrigin::respond(move |request| match request.path() == "/robots.txt" {
        true => response(200, "Content-Type: text/plain\r\n", file),
        false => response(200, "Content-Type: text/html\r\n", "page"),
    });
    let gate = gate("{}", "");
    for path in ["//private/1", "/%2fprivate/1", "/a/..%2fprivate"] {
        get_as(&gate, &origin.url("a.test", path), "").check(
            451,
            &[
                "crawl-reason: robots_txt",
                "line=2",
                "decode escapes and merge slashes",
            ],
        );
    }
    get_as(&gate, &origin.url("a.test", "//open"), "guest").check(200, &["page"]);
    get_as(&gate, &origin.url("a.test", "/x//y"), "").check(200, &["page"]);
}

#[test]
fn robots_txt_applies_to_crawlers_that_do_not_read_it() {
    let origin = site();
    let gate = gate("{}", "");
    fn get(gate: &TestProxy, origin: &ScriptedOrigin, path: &str, agent: &str) -> Response {
        get_as(gate, &origin.url("a.test", path), agent)
    }
    get(&gate, &origin, "/open", "").check(200, &["page"]);
    get(
        &gate,
        &origin,
        "/private/1",
        "Scrapy/2.19 (+https://scrapy.org)",
    )
    .check(
        451,
        &[
            "crawl-status: REJECTED_ROBOTS_TXT",
            "crawl-reason: robots_txt",
            "crawl-retry: policy-change",
            "crawl-code: 740",
            "details=\"robots_txt; line=2\"",
            "\"stage\":\"robots\"",
            "line 2 of the host's robots.txt",
        ],
    );
    get(&gate, &origin, "/private/1", "VIP/1.0").check(200, &[]);
    get(&gate, &origin, "/vip", "vip").check(451, &["line=5"]);
    let paths: Vec<String> = origin
        .heads()
        .iter()
        .map(|head| head.split(' ').nth(1).unwrap().to_owned())
        .collect();
    assert_eq!(paths, ["/robots.txt", "/open", "/private/1"]);
}

/// Such a file is parsed, and searched, on threads that serve no requests.
#[test]
fn a_file_of_thousands_of_wildcards_applies() {
    let many = |count: u32| -> String { (0..count).map(|n| format!("Allow: /*q{n}\n")).collect() };
    let file = format!(
        "User-agent: *\n{}Disallow: /*secret\n\nUser-agent: mozilla\nDisallow: /old*\n\n\
         User-agent: goodbot\n{}Disallow: /vip*\n",
        many(30_000),
        many(1_000)
    );
    let origin = ScriptedOrigin::respond(move |request| match request.path() == "/robots.txt" {
        true => response(200, "Content-Type: text/plain\r\n", &file),
        false => response(200, "Content-Type: text/html\r\n", "page"),
    });
    let gate = gate("{}", "");
    let good_bot = "Mozilla/5.0 (compatible; GoodBot/2.1)";
    for (path, agent, line) in [
        ("/open", "", None),
        ("/a/secret", "", Some("line=30002")),
        ("/a/..%2fsecret", "", Some("line=30002")),
        ("/open", good_bot, None),
        ("/vip", good_bot, Some("line=31008")),
        ("/old", good_bot, Some("line=30005")),
    ] {
        let response = get_as(&gate, &origin.url("a.test", path), agent);
        match line {
            None => response.check(200, &["page"]),
            Some(line) => response.check(451, &["crawl-reason: robots_txt", line]),
        }
    }
}

#[test]
fn the_policy_sets_the_agent() {
    let origin = site();
    let gate = gate("{ agent: vip }", "");
    get_as(&gate, &origin.url("a.test", "/private"), "other").check(200, &[]);
    get_as(&gate, &origin.url("a.test", "/vip"), "other").check(451, &[]);
    assert!(
        origin.heads()[0]
            .to_ascii_lowercase()
            .contains("user-agent: vip crawlgate/")
    );
}

#[test]
fn the_file_itself_comes_from_memory() {
    let origin = site();
    let gate = gate("{}", "");
    for _ in 0..3 {
        get_as(&gate, &origin.url("a.test", "/robots.txt"), "").check(200, &[FILE, "text/plain"]);
    }
    assert_eq!(origin.heads().len(), 1);
    for (status, answered) in [(404, 404), (403, 403), (500, 503)] {
        let origin = site_with(status);
        get_without_wait(&gate, &origin.url("a.test", "/robots.txt")).check(answered, &[]);
    }
}

#[test]
fn a_policy_that_does_not_obey_fetches_no_robots_txt() {
    let origin = site();
    let gate = gate("{ obey: false }", "");
    get_as(&gate, &origin.url("a.test", "/private"), "").check(200, &["page"]);
    get_as(&gate, &origin.url("a.test", "/robots.txt"), "").check(200, &[FILE]);
    let paths: Vec<bool> = origin
        .heads()
        .iter()
        .map(|head| head.starts_with("GET /private "))
        .collect();
    assert_eq!(paths, [true, false]);
}

#[test]
fn a_rule_may_disable_obedience_for_some_urls() {
    let rule = "{ id: mine, when: { under: /private/mine }, then: allow, set: { robots: { obey: false } } }";
    let origin = site();
    let gate = gate("{}", rule);
    get_as(&gate, &origin.url("a.test", "/private/mine"), "").check(200, &["page"]);
    get_as(&gate, &origin.url("a.test", "/private/x"), "").check(451, &[]);
}

#[test]
fn an_unreachable_robots_txt_is_a_503_unless_the_policy_allows() {
    let origin = site_with(500);
    let strict = gate("{}", "");
    let answer = get_without_wait(&strict, &origin.url("a.test", "/"));
    answer.check(
        503,
        &[
            "crawl-reason: robots_unreachable",
            "crawl-retry: after",
            "retry-after: 2",
        ],
    );
    let lax = gate("{ on_unreachable: allow }", "");
    get_as(&lax, &origin.url("a.test", "/"), "").check(200, &["page"]);
    let absent = site_with(404);
    get_as(&strict, &absent.url("a.test", "/"), "").check(200, &["page"]);
}

/// An origin restarts: its robots.txt fails once. 503 asks for a pause of the whole host, which is kept.
#[test]
fn requests_wait_together_for_a_robots_txt_that_fails_for_a_moment() {
    let policy = "policy: 1\nname: p\noptions: { disposition: allow, politeness: { delay: 0s, concurrency: 100 } }\n";
    let proxy = TestProxy::start(CONFIG, policy);
    let failing = |status| {
        let is_first = AtomicBool::new(true);
        ScriptedOrigin::respond(move |request| match request.path() {
            "/robots.txt" if is_first.swap(false, Ordering::SeqCst) => response(status, "", ""),
            "/robots.txt" => response(200, "", FILE),
            _ => response(200, "", "page"),
        })
    };
    let origins = [("a.test", failing(500)), ("b.test", failing(503))];
    std::thread::scope(|scope| {
        for (host, origin) in &origins {
            for number in 0..8 {
                let url = origin.url(host, &format!("/{number}"));
                let address = proxy.proxy;
                scope.spawn(move || {
                    let answer = get(address, &url);
                    answer.check(200, &["page"]);
                    let held: f64 = answer.field("crawl-held").unwrap().parse().unwrap();
                    assert!((1.9..15.0).contains(&held), "{held}");
                });
            }
        }
    });
    for (host, origin) in &origins {
        let fetches = origin
            .paths()
            .iter()
            .filter(|path| *path == "/robots.txt")
            .count();
        assert_eq!(fetches, 2, "{host}");
    }
    for line in proxy.decisions(16) {
        assert!(line["held_ms"].as_f64().unwrap() >= 1_900.0, "{line}");
    }
}

#[test]
fn a_refused_connection_has_its_own_reason() {
    let gate = gate("{}", "");
    let free = closed_port();
    let answer = get_as(&gate, &format!("http://a.test:{free}/"), "");
    answer.check(502, &["crawl-reason: upstream_connect"]);
}

/// The crawled host lives; what fails is the server that it redirects to.
#[test]
fn a_redirect_to_a_dead_server_is_not_blamed_on_the_host() {
    let port = closed_port();
    let origin = ScriptedOrigin::respond(move |request| match request.path() {
        "/robots.txt" => response(
            302,
            &format!("Location: http://a.test:{port}/robots.txt\r\n"),
            "",
        ),
        _ => response(200, "", "page"),
    });
    let gate = gate("{}", "");
    for path in ["/1", "/robots.txt"] {
        get_as(&gate, &origin.url("a.test", path), "").check(
            503,
            &["crawl-reason: robots_unreachable", "redirect_unreachable"],
        );
    }
}

/// The token by which robots.txt addresses a crawler.
#[test]
fn the_token_is_the_product_after_compatible() {
    const GOOD: &str = "Mozilla/5.0 (compatible; GoodBot/2.1; +http://good.example/)";
    let file = "User-agent: GoodBot\nDisallow: /good\nUser-agent: Mozilla\nDisallow: /mozilla\n\
                User-agent: Configured\nDisallow: /configured\nUser-agent: *\nDisallow: /any\n";
    let origin = ScriptedOrigin::respond(move |request| match request.path() {
        "/robots.txt" => response(200, "", file),
        _ => response(200, "", "page"),
    });
    let gate_of = |robots: &str, crawlers: &str| {
        let config = format!(
            "listen: 127.0.0.1:0\nadmin: {{ listen: 127.0.0.1:0 }}\n\
             policy: {{ path: policy.yaml, watch: false }}\nlogs: {{ decisions: log.json }}\n\
             egress: {{ allow_loopback: true, ports: [1-65535], hosts: {{ a.test: 127.0.0.1 }} }}\n{crawlers}"
        );
        let policy = format!(
            "policy: 1\nname: p\noptions: {{ disposition: allow, robots: {robots}, \
             politeness: {{ delay: 0s, concurrency: 100 }} }}\n"
        );
        TestProxy::start(&config, &policy)
    };
    let user_agent = gate_of("{}", "");
    let policy = gate_of("{ agent: goodbot }", "");
    let crawler = gate_of(
        "{}",
        "crawlers: [{ name: c, sources: [127.0.0.1/32], robots_agent: Configured }]\n",
    );
    let windows = "Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1)";
    for (gate, agent, path, status) in [
        (&user_agent, GOOD, "/good", 451),
        // Both products have groups: the stricter answer counts.
        (&user_agent, GOOD, "/mozilla", 451),
        (&user_agent, GOOD, "/any", 200),
        (&user_agent, windows, "/good", 200),
        (&user_agent, windows, "/mozilla", 451),
        (&user_agent, "Other/1 (compatible; Unknown/1)", "/any", 451),
        (&user_agent, "Other/1 (compatible; Unknown/1)", "/good", 200),
        (&policy, windows, "/good", 451),
        (&policy, GOOD, "/mozilla", 200),
        (&crawler, GOOD, "/configured", 451),
        (&crawler, GOOD, "/good", 200),
    ] {
        get_as(gate, &origin.url("a.test", path), agent).check(status, &[]);
    }
    for (gate, source, requests) in [
        (&user_agent, "compatible", 5.0),
        (&user_agent, "first", 2.0),
        (&policy, "policy", 2.0),
        (&crawler, "crawler", 2.0),
    ] {
        let series = format!("crawlgate_robots_tokens_total{{source=\"{source}\"}}");
        assert!((gate.metric(&series) - requests).abs() < 0.5, "{series}");
    }
    let refusals: Vec<_> = user_agent
        .decisions(7)
        .into_iter()
        .filter(|line| line["reason"] == "robots_txt")
        .map(|line| line["robots_agent"].clone())
        .collect();
    assert_eq!(refusals, ["GoodBot", "GoodBot", "Mozilla", "Unknown"]);
}

#[test]
fn crawl_delay_slows_the_pace_up_to_the_policys_cap() {
    let origin = ScriptedOrigin::respond(|request| match request.path() == "/robots.txt" {
        true => response(200, "", "User-agent: *\nCrawl-delay: 2\n"),
        false => response(200, "", "page"),
    });
    let timed = |robots| {
        let gate = gate(robots, "");
        get_as(&gate, &origin.url("a.test", "/1"), "").check(200, &[]);
        let began = Instant::now();
        get_as(&gate, &origin.url("a.test", "/2"), "").check(200, &[]);
        began.elapsed()
    };
    let whole = timed("{}");
    let capped = timed("{ crawl_delay_cap: 1ms }");
    assert!(whole >= Duration::from_millis(1_900), "{whole:?}");
    assert!(capped < Duration::from_millis(1_500), "{capped:?}");
}

/// `crawlgate robots fetch` against the same site.
#[test]
fn the_command_fetches_and_explains_the_file() {
    let folder = TempDir::new();
    let hosts =
        "egress: { allow_loopback: true, ports: [1-65535], hosts: { a.test: 127.0.0.1 } }\n";
    folder.write("c.yaml", hosts);
    folder.write(
        "policy.yaml",
        "policy: 1\nname: p\noptions: { disposition: allow }\n",
    );
    fn run(folder: &TempDir, url: &str, format: &str) -> crate::support::command::CommandOutput {
        let arguments = [
            "robots", "fetch", url, "--agent", "bot", "--config", "c.yaml", "--format", format,
        ];
        crawlgate(folder.path(), &arguments, "")
    }
    let origin = site();
    let output = run(&folder, &origin.url("a.test", "/private/x"), "text");
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    for part in [
        "/robots.txt\n",
        "outcome  file, status 200\n",
        "the rules of the file apply",
        "valid    18h",
        "disallow",
    ] {
        assert!(output.stdout.contains(part), "{part} in {}", output.stdout);
    }
    let output = run(&folder, &origin.url("a.test", "/private/x"), "json");
    let json: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(
        (&json["standing"], &json["ruling"]["line"]),
        (&"rules".into(), &2.into())
    );
    assert_eq!(
        (&json["sitemaps"], &json["host"]),
        (&serde_json::json!([]), &serde_json::json!([]))
    );
    let output = run(&folder, "www.a.test", "text");
    assert_eq!(output.code, 2, "{output:?}");
    assert!(
        output.stderr.contains("write https://www.a.test/"),
        "{output:?}"
    );
    let broken = site_with(503);
    let output = run(&folder, &broken.url("a.test", "/"), "json");
    let json: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(
        (output.code, &json["standing"], &json["outcome"]),
        (1, &"unknown".into(), &"server_error".into())
    );
    for key in [
        "sitemaps",
        "visit_time",
        "clean_param",
        "host",
        "license",
        "bytes",
        "ruling",
    ] {
        assert_eq!(
            json.get(key),
            Some(&serde_json::Value::Null),
            "{key} is there"
        );
    }
}

//! `explain` by a running proxy: what it would do with a request, beyond the policy.

use serde_json::{Value as Json, json};

use crate::support::client::{RawClient, get};
use crate::support::command::{CommandOutput, crawlgate};
use crate::support::origin::{ScriptedOrigin, response};
use crate::support::proxy::{CONFIG, TestProxy};
use crate::support::wait::wait_until;

const POLICY: &str = "policy: 1
name: wired
options: { disposition: allow, record: full, politeness: { delay: 0s, concurrency: 100 } }
rules:
  - { id: cgi, about: no scripts, forbid: { under: /cgi-bin } }
";

const ROBOTS: &str = "User-agent: *\nDisallow: /private/\n";

/// An origin with a robots.txt that disallows `/private/`.
fn origin() -> ScriptedOrigin {
    ScriptedOrigin::respond(|request| match request.path() {
        "/robots.txt" => response(200, "Content-Type: text/plain\r\n", ROBOTS),
        _ => response(200, "Content-Type: text/html\r\n", "<p>"),
    })
}

fn ask(gate: &TestProxy, facts: &Json) -> Json {
    let body = facts.to_string();
    let request = format!(
        "POST /api/v1/explain HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        gate.admin,
        body.len()
    );
    let answer = RawClient::connect(gate.admin).request(request);
    assert_eq!(answer.status, 200, "{answer}");
    answer.json()["wire"].clone()
}

/// The setting of a listener for the crawler `news`, which has a ledger.
const LISTEN_AS_NEWS: &str = "listen: { addr: 127.0.0.1:0, crawler: news }
crawlers: [{ name: news }]
store: { path: store }";

fn explain(gate: &TestProxy, arguments: &[&str]) -> CommandOutput {
    command(gate, "explain", arguments)
}

/// Runs a command about the proxy.
fn command(gate: &TestProxy, name: &str, arguments: &[&str]) -> CommandOutput {
    let config = gate.file("crawlgate.yaml");
    let config = config.to_str().unwrap();
    let admin = gate.admin.to_string();
    let proxy = [name, "--config", config, "--admin", &admin];
    crawlgate(&gate.file(""), &[&proxy, arguments].concat(), "")
}

fn not_asked(wire: &Json) -> Vec<&str> {
    let questions = wire["not_asked"].as_array().unwrap().iter();
    questions
        .map(|question| question["subject"].as_str().unwrap())
        .collect()
}

#[test]
fn robots_txt_is_asked_from_the_cache_and_fetched_on_request() {
    let gate = TestProxy::start(CONFIG, POLICY);
    let origin = origin();
    let private = origin.url("a.test", "/private/x");
    let before = ask(&gate, &json!({ "url": private }));
    assert_eq!(before["verdict"], "allow", "{before}");
    assert_eq!(not_asked(&before), ["robots.txt"], "{before}");
    assert_eq!(
        origin.connections(),
        0,
        "nothing is sent unless it is asked for"
    );

    let fetched = ask(&gate, &json!({ "url": private, "fetch": true }));
    assert_eq!(origin.paths(), ["/robots.txt"]);
    assert_eq!(
        (&fetched["verdict"], &fetched["stage"], &fetched["reason"]),
        (&"reject".into(), &"robots".into(), &"robots_txt".into()),
        "{fetched}"
    );
    assert_eq!(
        (&fetched["robots"]["line"], &fetched["robots"]["rule"]),
        (&json!(2), &"Disallow: /private/".into()),
        "{fetched}"
    );
    assert_eq!(fetched["addresses"]["addresses"], json!(["127.0.0.1"]));

    // It says what the wire does, and by the cache alone.
    let cached = ask(&gate, &json!({ "url": private }));
    assert_eq!(cached["reason"], "robots_txt", "{cached}");
    let summary = cached["summary"].as_str().unwrap();
    assert!(
        summary.starts_with("refused by robots.txt, line 2, cached "),
        "{summary}"
    );
    let answer = get(gate.proxy, &private);
    assert_eq!(u64::from(answer.status), cached["status"].as_u64().unwrap());
    assert_eq!(answer.value("crawl-reason"), "robots_txt", "{answer}");
    assert_eq!(origin.paths(), ["/robots.txt"]);

    let public = ask(&gate, &json!({ "url": origin.url("a.test", "/") }));
    assert_eq!(
        (&public["verdict"], &public["robots"]["allow"]),
        (&"allow".into(), &true.into())
    );
    assert!(not_asked(&public).is_empty(), "{public}");
}

#[test]
fn stages_come_in_the_order_of_the_pipeline() {
    let gate = TestProxy::start(CONFIG, POLICY);
    let origin = origin();
    get(gate.proxy, &origin.url("a.test", "/"));
    let wire = ask(&gate, &json!({ "url": origin.url("a.test", "/cgi-bin/x") }));
    assert_eq!(
        (&wire["stage"], &wire["rule"]),
        (&"request".into(), &"cgi".into())
    );
    assert_eq!(wire["summary"], "refused by rule cgi: no scripts");
    assert_eq!((&wire["robots"], &wire["pace"]), (&Json::Null, &Json::Null));

    let stop = crawlgate(
        &gate.file(""),
        &[
            "stop",
            "a.test",
            "--reason",
            "they called",
            "--admin",
            &gate.admin.to_string(),
        ],
        "",
    );
    assert_eq!(stop.code, 0, "{stop:?}");
    let stopped = ask(&gate, &json!({ "url": origin.url("a.test", "/") }));
    assert_eq!(
        (&stopped["verdict"], &stopped["reason"], &stopped["stage"]),
        (&"reject".into(), &"stopped".into(), &"pace".into()),
        "{stopped}"
    );
    assert!(stopped["held_ms"].as_u64() > Some(0), "{stopped}");
    // robots.txt refuses before a stop does.
    let both = ask(&gate, &json!({ "url": origin.url("a.test", "/private/x") }));
    assert_eq!(both["reason"], "robots_txt", "{both}");
    assert!(
        both["stop"].as_str().unwrap().contains("they called"),
        "{both}"
    );
}

#[test]
fn addresses_are_checked_as_far_as_they_are_known() {
    let gate = TestProxy::start(&CONFIG.replace("  allow_loopback: true\n", ""), POLICY);
    for (url, reason, part) in [
        (
            "http://127.0.0.1/",
            "ip_prohibited",
            "egress.allow_loopback",
        ),
        ("http://10.1.2.3/", "ip_prohibited", "egress.allow_private"),
        (
            "http://localhost:8080/",
            "ip_prohibited",
            "egress.allow_loopback",
        ),
        ("http://intranet/", "upstream_dns", "egress.allow_private"),
    ] {
        let wire = ask(&gate, &json!({ "url": url }));
        assert_eq!(wire["reason"], reason, "{url}: {wire}");
        let detail = wire["detail"].as_str().unwrap();
        assert!(detail.contains(part), "{url}: {wire}");
        // The wire says the same.
        let answer = get(gate.proxy, url);
        assert_eq!(answer.value("crawl-reason"), reason, "{url}: {answer}");
        assert_eq!(answer.json()["detail"], detail, "{url}");
    }
    let unknown = ask(&gate, &json!({ "url": "http://www.example.com/" }));
    assert_eq!(
        not_asked(&unknown),
        ["addresses", "robots.txt"],
        "{unknown}"
    );
    let given = ask(
        &gate,
        &json!({ "url": "http://www.example.com/", "address": "192.0.2.1" }),
    );
    assert_eq!(given["addresses"]["source"], "given", "{given}");
}

#[test]
fn the_command_shows_what_the_proxy_would_do_or_what_was_not_asked() {
    let gate = TestProxy::start(CONFIG, POLICY);
    let origin = origin();
    let private = origin.url("a.test", "/private/x");
    let policy = gate.file("policy.yaml");
    let offline = crawlgate(
        &gate.file(""),
        &["explain", &private, "--policy", policy.to_str().unwrap()],
        "",
    );
    assert_eq!(offline.code, 0, "{offline:?}");
    let last = offline.stdout.lines().last().unwrap();
    assert!(
        last.starts_with("Not asked: budgets, ledger, addresses, robots.txt, stops, pace"),
        "{last}"
    );

    let output = explain(&gate, &[&private, "--fetch", "--exit-code"]);
    assert_eq!(output.code, 1, "{output:?}");
    let lines: Vec<&str> = output.stdout.lines().collect();
    assert_eq!(lines[1], "allowed by the policy's default");
    assert!(
        lines[2].starts_with("on the wire: refused by robots.txt, line 2, cached "),
        "{output:?}"
    );
    let last = lines.last().unwrap();
    assert!(
        last.starts_with("  verdict     refused by robots.txt, line 2, cached "),
        "{last}"
    );
    let shown = "  robots.txt  disallow, line 2: Disallow: /private/";
    assert!(output.stdout.contains(shown), "{output:?}");

    // The policy of the files is another one now, but not yet in force.
    gate.write("policy.yaml", &POLICY.replace("cgi", "scripts"));
    let output = explain(&gate, &[&origin.url("a.test", "/cgi-bin/x")]);
    assert!(
        output.stdout.contains("the policy of the running proxy"),
        "{output:?}"
    );
    assert!(output.stdout.contains("refused by rule cgi"), "{output:?}");

    let output = explain(&gate, &[&private, "--policy", "policy.yaml", "--fetch"]);
    assert_eq!(output.code, 2, "{output:?}");
}

#[test]
fn a_decision_is_found_in_memory_and_in_the_log() {
    let gate = TestProxy::start(CONFIG, POLICY);
    let origin = origin();
    let answer = get(gate.proxy, &origin.url("a.test", "/cgi-bin/x"));
    let id = answer.value("crawl-decision").to_owned();
    // It is logged after the answer.
    wait_until("the decision is kept", || {
        explain(&gate, &["--decision", &id]).code == 0
    });
    let output = explain(&gate, &["--decision", &id]);
    assert!(output.stdout.contains("refused by rule cgi"), "{output:?}");

    // Another proxy does not have it in memory. Its log does.
    wait_until("the decision is in the log", || {
        gate.decision_log().contains(&id)
    });
    let log = gate.decision_log();
    let line = log.lines().find(|line| line.contains(&id)).unwrap();
    let other = TestProxy::start(CONFIG, &POLICY.replace("no scripts", "no programs"));
    other.write("log.json.1", &format!("{line}\n"));
    let output = explain(&other, &["--decision", &id]);
    assert_eq!(output.code, 0, "{output:?}");
    assert!(
        output.stdout.contains(&format!("Decision {id} at ")),
        "{output:?}"
    );
    assert!(
        output.stdout.contains("the decision was made under"),
        "{output:?}"
    );
    assert!(output.stdout.contains("no programs"), "{output:?}");
    let output = explain(&other, &["--decision", "00000000-0"]);
    assert_eq!(output.code, 1, "{output:?}");
}

/// Rules of another crawler's space are named as such, and its shadow rules are not counted for this crawler.
#[test]
fn rules_of_other_spaces_are_named() {
    let config = format!("{CONFIG}crawlers:\n  - {{ name: lab-bot, sources: [127.0.0.2] }}\n");
    let policy = "policy: 1
name: spaced
options: { disposition: allow, robots: { obey: false }, politeness: { delay: 0s, concurrency: 100 } }
rules: [{ id: every, mode: shadow, forbid: { ext: pdf } }]
spaces:
  - name: lab
    crawlers: lab-bot
    rules: [{ id: tried, mode: shadow, forbid: { ext: zip } }, { id: mine, forbid: { ext: gif } }]
";
    let gate = TestProxy::start(&config, policy);
    let origin = origin();
    let url = origin.url("a.test", "/x.gif");
    assert_eq!(get(gate.proxy, &url).status, 200);
    let output = explain(&gate, &[&url]);
    let line = output
        .stdout
        .lines()
        .find(|line| line.contains("mine"))
        .unwrap();
    assert!(
        line.contains("skipped: space") && line.ends_with("lab is not this crawler's"),
        "{line}"
    );
    let output = explain(&gate, &[&url, "--format", "json"]);
    let document: Json = serde_json::from_str(&output.stdout).unwrap();
    let rules = document["rules"].as_array().unwrap();
    let mine = rules.iter().find(|rule| rule["rule"] == "mine").unwrap();
    assert_eq!(
        (&mine["status"], &mine["space"], &mine["other_space"]),
        (&"skipped: parent".into(), &"lab".into(), &true.into())
    );
    wait_until("the request is counted", || {
        gate.admin("GET /api/v1/shadow").json()["rules"][0]["judged"] == 1
    });
    let shadow = gate.admin("GET /api/v1/shadow").json();
    assert_eq!(shadow["rules"][1]["rule"], "tried", "{shadow}");
    assert_eq!(
        (&shadow["rules"][1]["judged"], &shadow["rules"][1]["space"]),
        (&json!(0), &"lab".into()),
        "{shadow}"
    );
    let listed = gate.admin("GET /api/v1/policy/rules").json();
    let rules = listed["rules"].as_array().unwrap();
    assert!(
        rules
            .iter()
            .any(|rule| rule["id"] == "mine" && rule["space"] == "lab"),
        "{listed}"
    );
}

#[test]
fn a_refusal_links_to_its_decision_and_names_a_contact() {
    let config = CONFIG
        .replace(
            "admin: { ",
            "admin: { public_url: \"https://gate.corp.example/\", ",
        )
        .replace(
            "watch: false",
            "watch: false, contact: crawl-team@corp.example",
        );
    let gate = TestProxy::start(&config, POLICY);
    let answer = get(gate.proxy, "http://a.test/cgi-bin/x");
    let id = answer.value("crawl-decision").to_owned();
    let page = format!("https://gate.corp.example/ui#/try?decision={id}");
    assert_eq!(answer.value("link"), format!("<{page}>; rel=\"help\""));
    assert_eq!(answer.value("crawl-contact"), "crawl-team@corp.example");
    let problem = answer.json();
    assert_eq!(problem["page"], page);
    assert_eq!(problem["contact"], "crawl-team@corp.example");
}

/// The pace is that of the host now: a turn that comes too late is a refusal after the longest hold.
#[test]
fn the_turn_of_the_host_is_predicted() {
    let policy = "policy: 1
name: slow
options: { disposition: allow, robots: { obey: false }, politeness: { delay: 60s, max_hold: 1s } }
";
    let gate = TestProxy::start(CONFIG, policy);
    let origin = origin();
    let url = origin.url("a.test", "/");
    let first = ask(&gate, &json!({ "url": url }));
    assert_eq!(
        (&first["verdict"], &first["pace"]["wait_ms"]),
        (&"allow".into(), &json!(0)),
        "{first}"
    );
    assert_eq!(first["robots"], json!({ "obeyed": false }));
    assert_eq!(get(gate.proxy, &url).status, 200);
    let next = ask(&gate, &json!({ "url": url }));
    assert_eq!(
        (&next["reason"], &next["stage"], &next["held_ms"]),
        (&"rate_limited".into(), &"pace".into(), &json!(1_000)),
        "{next}"
    );
    assert!(next["pace"]["wait_ms"].as_u64() > Some(50_000), "{next}");
    assert_eq!(get(gate.proxy, &url).value("crawl-reason"), "rate_limited");
}

/// A policy whose only space has these rules.
fn space(rules: &str) -> String {
    format!(
        "policy: 1\nname: spaces\noptions: {{ disposition: allow, record: full, robots: {{ obey: false }}, politeness: {{ \
         delay: 0s, concurrency: 100 }} }}\nspaces:\n  - {{ name: all, rules: [{rules}] }}\n"
    )
}

/// The ledger decides what a refused URL is answered with: 760 and another status, if it is known.
#[test]
fn the_ledger_is_asked_and_a_past_decision_has_its_own_answer() {
    let config = CONFIG.replacen("listen: 127.0.0.1:0", LISTEN_AS_NEWS, 1);
    let gate = TestProxy::start(&config, &space(""));
    let origin = origin();
    let url = origin.url("a.test", "/x");
    let facts = |more: &[(&str, Json)]| {
        let mut facts = json!({ "url": url, "crawler": "news" });
        for (key, value) in more {
            facts[key] = value.clone();
        }
        facts
    };
    let unknown = ask(&gate, &facts(&[]));
    assert_eq!(
        (&unknown["ledger"]["known"], &unknown["ledger"]["source"]),
        (&json!(false), &json!("ledger")),
        "{unknown}"
    );
    assert_eq!(get(gate.proxy, &url).status, 200);
    wait_until("the fetch is recorded", || {
        ask(&gate, &facts(&[]))["ledger"]["known"] == true
    });
    gate.write("policy.yaml", &space("{ id: no-x, forbid: { path: /x } }"));
    let reload = command(&gate, "reload", &[]);
    assert_eq!(reload.code, 0, "{reload:?}");

    let text = explain(&gate, &["--crawler", "news", &url]).stdout;
    for part in [
        "HTTP/1.1 410 Gone",
        "crawl-code: 760",
        "  ledger      known, first requested 2",
        "  answer      410, crawl-code 760",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // A given value is used instead of the record, which stays as it is.
    let absent = ask(&gate, &facts(&[("known", json!(false))]));
    assert_eq!(
        (
            &absent["status"],
            &absent["code"],
            &absent["ledger"]["source"]
        ),
        (&json!(451), &Json::Null, &json!("given")),
        "{absent}"
    );
    let other = origin.url("a.test", "/x?2");
    let given = explain(&gate, &["--crawler", "news", "--known", &other]).stdout;
    assert!(given.contains("crawl-code: 760"), "{given}");
    assert!(given.contains("known (given)"), "{given}");

    let refused = get(gate.proxy, &url);
    assert_eq!((refused.status, refused.value("crawl-code")), (410, "760"));
    let id = refused.value("crawl-decision").to_owned();
    let logged = gate.decisions(2);
    assert_eq!(
        logged.iter().map(|line| &line["code"]).collect::<Vec<_>>(),
        [&Json::Null, &json!(760)]
    );
    let past = explain(&gate, &["--decision", &id]).stdout;
    for part in [
        "status sent: 410",
        "  crawl-code: 760",
        "HTTP/1.1 410 Gone",
        "known (given)",
    ] {
        assert!(past.contains(part), "{part}: {past}");
    }
    let found = command(&gate, "decisions", &["--filter", "code=760"]);
    assert_eq!(found.stdout.lines().count(), 1, "{found:?}");
}

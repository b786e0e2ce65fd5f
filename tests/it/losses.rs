//! Requests that crawlers did not get although the policy allows them: what the log, the latest lines in memory, the
//! ledger and the commands keep of them, over real sockets.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value as Json, json};

use crate::ledger_wire::{self, LedgerBench};
use crate::support::client::{RawClient, get};
use crate::support::command::{CommandOutput, crawlgate};
use crate::support::origin::{OK, ScriptedOrigin};
use crate::support::proxy::{CONFIG, TestProxy};
use crate::support::temp_dir::TempDir;
use crate::support::wait::wait_until;

const POLICY: &str = "policy: 1
name: losses
options:
  disposition: allow
  robots: { obey: false }
  politeness: { delay: 0s, concurrency: 100, adaptive: null }
rules:
  - { id: secret, when: { under: /secret }, set: { record: none } }
  - { id: short, when: { under: /short }, set: { record: host } }
  - { id: later, forbid: { in_query: later }, reject: later }
  - { id: never, forbid: { in_query: never } }
";

/// A port of this machine at which nothing listens.
fn dead_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// The URL and the host of a line: `full`, `host` or `none`.
fn kept(line: &Json) -> &'static str {
    match (line["url"].is_string(), line["host"].is_string()) {
        (true, true) => "full",
        (false, true) => "host",
        (false, false) => "none",
        (true, false) => panic!("{line}"),
    }
}

/// The latest lines in memory, by the ids of the decisions in the log.
fn lines_in_memory(gate: &TestProxy, log: &[Json]) -> Vec<Json> {
    let mut client = RawClient::connect(gate.admin);
    client.send(format!(
        "GET /api/v1/decisions?follow=false&recent=1000 HTTP/1.1
Host: {}
Connection: close

",
        gate.admin
    ));
    let shown = client.read_rest();
    let lines: Vec<Json> = shown
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), log.len(), "{shown}");
    log.iter()
        .map(|line| {
            let found = lines.iter().find(|l| l["decision"] == line["decision"]);
            found.expect("a line for each decision").clone()
        })
        .collect()
}

#[test]
fn the_log_keeps_the_urls_of_losses_and_memory_those_of_all_refusals() {
    let gate = TestProxy::start(CONFIG, POLICY);
    let origin = ScriptedOrigin::respond(|_| OK);
    let dead = dead_port();
    let at = |path: &str| origin.url("a.test", path);
    let cases = [
        (at("/x?later"), "full", "full", "later"),
        // A repetition; another URL is none.
        (at("/x?later"), "host", "full", "later"),
        (at("/y?later"), "full", "full", "later"),
        (at("/x?never"), "host", "full", ""),
        (at("/short/x?later"), "host", "full", "later"),
        (at("/secret/x?later"), "none", "none", "later"),
        (at("/secret/x?never"), "none", "none", ""),
        // The connection is refused; then it is not tried again for a while.
        (format!("http://a.test:{dead}/1"), "full", "full", "failed"),
        (format!("http://a.test:{dead}/2"), "full", "full", "failed"),
        (
            format!("http://a.test:{dead}/short/2"),
            "host",
            "full",
            "failed",
        ),
        (
            format!("http://a.test:{dead}/secret/2"),
            "none",
            "none",
            "failed",
        ),
        ("http://nosuch/x".to_owned(), "full", "full", "failed"),
        (at("/ok"), "full", "full", ""),
    ];
    for (url, ..) in &cases {
        get(gate.proxy, url);
    }
    let log = gate.decisions(cases.len());
    let memory = lines_in_memory(&gate, &log);
    for (((url, in_log, in_memory, loss), line), remembered) in cases.iter().zip(&log).zip(&memory)
    {
        assert_eq!(kept(line), *in_log, "{url}: {line}");
        assert_eq!(kept(remembered), *in_memory, "{url}: {remembered}");
        if *in_memory == "full" {
            assert_eq!(remembered["url"], **url);
        }
        assert_eq!(
            line["loss"].as_str().unwrap_or_default(),
            *loss,
            "{url}: {line}"
        );
    }
    assert_eq!(log[1]["repeat"], true, "{}", log[1]);
    assert_eq!(
        log.iter().filter(|line| !line["repeat"].is_null()).count(),
        1
    );
    assert!(memory[1]["repeat"].is_null());
}

/// Lost, answered, and lost again within a minute: the later loss has no URL of its own in the log.
#[test]
fn a_url_that_is_lost_again_after_an_answer_is_listed() {
    let forbidden = POLICY.replace(
        "- { id: short",
        "- { id: again, forbid: { in_query: again }, reject: later }\n  - { id: short",
    );
    let gate = TestProxy::start(CONFIG, &forbidden);
    let origin = ScriptedOrigin::respond(|_| OK);
    let url = origin.url("a.test", "/x?again");
    let load = |policy: &str| {
        gate.write("policy.yaml", policy);
        gate.admin("POST /api/v1/reload").check(200, &[]);
    };
    let listed = |lines: usize| {
        gate.decisions(lines);
        list_lost(&gate.file("log.json"), &[]).0
    };
    assert_eq!(get(gate.proxy, &url).status, 503);
    load(POLICY);
    assert_eq!(get(gate.proxy, &url).status, 200);
    assert_eq!(listed(2), [""; 0]);
    load(&forbidden);
    assert_eq!(get(gate.proxy, &url).status, 503);
    let log = gate.decisions(3);
    assert_eq!(log[2]["repeat"], true, "{}", log[2]);
    assert_eq!(log[2]["repeat_of"], log[0]["decision"], "{}", log[2]);
    assert!(log[0]["repeat_of"].is_null() && log[1]["repeat_of"].is_null());
    assert_eq!(listed(3), [url]);
}

#[test]
fn a_failure_has_its_error_address_and_cause_at_every_stage() {
    let policy = POLICY.replace("obey: false", "obey: true");
    let dead = dead_port();
    for (policy, url, stage, error, address, cause) in [
        (
            POLICY,
            format!("http://a.test:{dead}/"),
            "upstream",
            "connection_refused",
            json!("127.0.0.1"),
            "the host refused the connection",
        ),
        (
            &policy,
            format!("http://a.test:{dead}/"),
            "robots",
            "connection_refused",
            json!("127.0.0.1"),
            "No connection to the origin",
        ),
        (
            POLICY,
            "http://nosuch/".to_owned(),
            "destination",
            "dns_error",
            Json::Null,
            "a name without a dot, or of a local domain, is not looked up (egress.allow_private or egress.hosts in the \
             configuration can allow it)",
        ),
    ] {
        let gate = TestProxy::start(CONFIG, policy);
        get(gate.proxy, &url);
        let line = &gate.decisions(1)[0];
        assert_eq!(line["stage"], stage, "{line}");
        assert_eq!(line["url"], url, "{line}");
        assert_eq!(line["error"], error, "{line}");
        assert_eq!(line["address"], address, "{line}");
        assert_eq!(line["cause"], cause, "{line}");
    }
    // The host has just refused a connection.
    let gate = TestProxy::start(CONFIG, POLICY);
    get(gate.proxy, &format!("http://a.test:{dead}/1"));
    get(gate.proxy, &format!("http://a.test:{dead}/2"));
    let line = &gate.decisions(2)[1];
    assert_eq!(line["stage"], "destination", "{line}");
    assert_eq!(line["error"], "connection_refused", "{line}");
    assert_eq!(line["address"], "127.0.0.1", "{line}");
}

#[test]
fn losses_are_logged_however_few_allowed_requests_are() {
    let config = CONFIG.replace("log.json", "log.json, allows: 0.0");
    let origin = ScriptedOrigin::respond(|request| match request.path() {
        "/busy" => "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n",
        _ => OK,
    });
    // An answer that is passed on, and is none.
    let gate = TestProxy::start(&config, POLICY);
    get(gate.proxy, &origin.url("a.test", "/ok"));
    get(gate.proxy, &origin.url("a.test", "/busy"));
    let line = &gate.decisions(1)[0];
    assert_eq!(line["url"], origin.url("a.test", "/busy"), "{line}");
    assert_eq!(
        (&line["verdict"], &line["loss"]),
        (&json!("allow"), &json!("failed"))
    );
    assert_eq!(line["left_out"], 1, "{line}");
    // A client that leaves while it is held.
    let policy = POLICY.replace("delay: 0s, concurrency: 100", "delay: 50s");
    let gate = TestProxy::start(&config, &policy);
    get(gate.proxy, &origin.url("a.test", "/first"));
    let mut client = RawClient::connect(gate.proxy);
    client.send_get(&origin.url("a.test", "/held"), "");
    gate.wait_for_metric("crawlgate_held_requests", 1.0);
    drop(client);
    let line = &gate.decisions(1)[0];
    assert_eq!(line["url"], origin.url("a.test", "/held"), "{line}");
    assert_eq!(
        (&line["reason"], &line["loss"]),
        (&json!("client_left"), &json!("client_left"))
    );
}

#[test]
fn a_decision_is_explained_by_its_id() {
    let gate = TestProxy::start(CONFIG, POLICY);
    let origin = ScriptedOrigin::respond(|_| OK);
    let url = origin.url("a.test", "/x?never");
    get(gate.proxy, &url);
    get(gate.proxy, &origin.url("a.test", "/secret/x?never"));
    let log = gate.decisions(2);
    assert!(log[0]["url"].is_null(), "{}", log[0]);
    let admin = gate.admin.to_string();
    let config = gate.file("crawlgate.yaml");
    let explain = |id: &str, more: &[&str]| {
        let mut arguments = vec!["explain", "--decision", id, "--admin", &admin];
        arguments.extend(["--config", config.to_str().unwrap()]);
        arguments.extend(more);
        crawlgate(Path::new("."), &arguments, "")
    };
    let id = log[0]["decision"].as_str().unwrap();
    let output = explain(id, &[]);
    assert_eq!(output.code, 0, "{output:?}");
    for text in [
        id,
        "refused, reason rule, stage request",
        &url,
        "rule: never",
        "never contains never",
    ] {
        assert!(output.stdout.contains(text), "{text}: {output:?}");
    }
    let output = explain(id, &["--format", "json"]);
    let document: Json = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(document["decision"]["url"], url);
    assert_eq!(
        document["explanation"]["decision"]["rule"], "never",
        "{document}"
    );
    // Nothing is kept of this one.
    let output = explain(log[1]["decision"].as_str().unwrap(), &[]);
    assert_eq!(output.code, 0, "{output:?}");
    assert!(
        output.stdout.contains("the option `record`") && !output.stdout.contains("/secret"),
        "{output:?}"
    );
    for (id, code) in [("00000000-1", 1), ("x y", 2), ("12", 2)] {
        assert_eq!(explain(id, &[]).code, code, "{id}");
    }
    let facts = gate.admin(&format!("GET /api/v1/decisions/{id}")).body;
    let facts: Json = serde_json::from_str(&facts).unwrap();
    assert_eq!(facts["facts"]["url"], url);
}

/// A line of a log, with these members in addition to those of an allowed GET.
fn line(second: u32, members: Json) -> String {
    let mut line = json!({
        "ts": format!("2026-11-23T08:00:{second:02}.000Z"),
        "decision": format!("0000000a-{second:x}"),
        "crawler": "news", "stage": "pace", "method": "GET", "host": "a.test",
        "url": "http://a.test/1", "verdict": "allow", "reason": "default",
    });
    line.as_object_mut()
        .unwrap()
        .extend(members.as_object().unwrap().clone());
    line.to_string()
}

fn lost(second: u32, url: &str) -> String {
    let members =
        json!({ "url": url, "verdict": "reject", "reason": "rate_limited", "loss": "later" });
    line(second, members)
}

fn list_lost(log: &Path, more: &[&str]) -> (Vec<String>, Json, CommandOutput) {
    let log = log.to_str().unwrap();
    let mut arguments = vec!["decisions", "--lost", "--log", log, "--format", "json"];
    arguments.extend(more);
    let output = crawlgate(Path::new("."), &arguments, "");
    let document: Json = serde_json::from_str(&output.stdout).unwrap();
    let urls = document["urls"].as_array().unwrap();
    let urls = urls
        .iter()
        .map(|lost| lost["url"].as_str().unwrap_or("-").to_owned());
    let urls = urls.collect();
    arguments.truncate(4);
    arguments.extend(more);
    (urls, document, crawlgate(Path::new("."), &arguments, ""))
}

#[test]
fn lost_urls_are_listed_unless_they_were_answered_later() {
    let folder = TempDir::new();
    let log = folder.write(
        "d.jsonl",
        [
            lost(1, "http://a.test/1"),
            lost(2, "http://a.test/2"),
            // Answered later, but not to the same crawler, or not by a page.
            line(3, json!({ "url": "http://a.test/2", "crawler": "shop" })),
            line(3, json!({ "url": "http://a.test/2", "method": "HEAD" })),
            line(3, json!({ "url": "http://a.test/2", "origin_status": 500, "loss": "failed" })),
            lost(4, "http://a.test/3"),
            line(5, json!({ "url": "http://a.test/1" })),
            // Answered, and lost again.
            line(6, json!({ "url": "http://a.test/4" })),
            lost(7, "http://a.test/4"),
            // Excluded.
            line(8, json!({ "url": null, "verdict": "reject", "reason": "rule" })),
            // A repetition, and two without a URL.
            line(9, json!({ "url": null, "verdict": "reject", "reason": "rate_limited", "loss": "later", "repeat": true, "repeat_of": "0000000a-7" })),
            line(9, json!({ "url": null, "verdict": "reject", "reason": "rate_limited", "loss": "later" })),
            line(9, json!({ "url": null, "host": null, "verdict": "reject", "reason": "rate_limited", "loss": "later" })),
            // A tunnel.
            line(10, json!({ "url": null, "method": "CONNECT", "host": "t.test", "verdict": "reject", "reason": "overloaded", "loss": "later" })),
        ]
        .join("\n") + "\n",
    );
    let (urls, document, text) = list_lost(&log, &[]);
    assert_eq!(
        urls,
        ["http://a.test/2", "http://a.test/3", "http://a.test/4", "-"],
        "{document}"
    );
    let second = &document["urls"][0];
    assert_eq!(
        (&second["count"], &second["loss"], &second["reason"]),
        (&json!(2), &json!("failed"), &json!("default"))
    );
    assert_eq!(second["first"], "2026-11-23T08:00:02.000Z");
    assert_eq!(second["last"], "2026-11-23T08:00:03.000Z");
    assert_eq!(document["urls"][3]["host"], "t.test");
    assert_eq!(
        (
            &document["without_url"],
            &document["dropped"],
            &document["left_out"]
        ),
        (&json!(2), &json!(0), &json!(0))
    );
    assert_eq!(text.code, 0);
    assert!(text.stdout.contains("rate_limited"), "{text:?}");
    assert!(
        text.stdout
            .contains("4 lost URLs\n2 more lost requests have no URL"),
        "{text:?}"
    );
    // A filter selects lost URLs, and hides no answer.
    let (urls, ..) = list_lost(&log, &["--filter", "loss=later", "--filter", "host=a.test"]);
    assert_eq!(
        urls,
        ["http://a.test/2", "http://a.test/3", "http://a.test/4"]
    );
    let (urls, ..) = list_lost(&log, &["--since", "2026-11-23T08:00:04Z"]);
    assert_eq!(urls, ["http://a.test/3", "http://a.test/4", "-"]);
}

#[test]
fn a_repeated_loss_is_that_of_the_line_that_has_its_url() {
    let repeat = |second: u32, of: u32| {
        let members = json!({
            "url": null, "verdict": "reject", "reason": "rate_limited", "loss": "later", "repeat": true,
            "repeat_of": format!("0000000a-{of:x}"),
        });
        line(second, members)
    };
    let folder = TempDir::new();
    let lines = [
        lost(1, "http://a.test/1"),
        lost(2, "http://a.test/2"),
        lost(3, "http://a.test/3"),
        repeat(4, 1),
        line(5, json!({ "url": "http://a.test/1" })),
        line(6, json!({ "url": "http://a.test/2" })),
        repeat(7, 2),
        repeat(8, 3),
        // The line that has the URL was dropped.
        repeat(9, 0xff),
        // Both ended at the same time.
        repeat(10, 11),
        lost(11, "http://a.test/11"),
    ];
    let log = folder.write("d.jsonl", lines.join("\n") + "\n");
    let (urls, document, _) = list_lost(&log, &[]);
    assert_eq!(
        urls,
        ["http://a.test/2", "http://a.test/3", "http://a.test/11"],
        "{document}"
    );
    let counts: Vec<_> = document["urls"]
        .as_array()
        .unwrap()
        .iter()
        .map(|lost| (lost["count"].clone(), lost["last"].clone()))
        .collect();
    assert_eq!(
        counts,
        [
            (json!(1), json!("2026-11-23T08:00:07.000Z")),
            (json!(2), json!("2026-11-23T08:00:08.000Z")),
            (json!(2), json!("2026-11-23T08:00:11.000Z"))
        ]
    );
    assert_eq!(document["without_url"], 1, "{document}");
    // The lines with the URLs are older than what is listed.
    let (urls, document, _) = list_lost(&log, &["--since", "2026-11-23T08:00:07Z"]);
    assert_eq!(
        urls,
        ["http://a.test/2", "http://a.test/3", "http://a.test/11"],
        "{document}"
    );
}

#[test]
fn missing_lines_are_counted_over_rotated_files_and_processes() {
    let folder = TempDir::new();
    let mut oldest = GzEncoder::new(
        File::create(folder.path().join("d.jsonl.2.gz")).unwrap(),
        Compression::fast(),
    );
    let lines = [
        line(1, json!({ "url": "http://a.test/0", "left_out": 3 })),
        line(
            2,
            json!({ "url": "http://a.test/1", "verdict": "reject", "loss": "later", "left_out": 5, "dropped": 1 }),
        ),
    ];
    oldest
        .write_all((lines.join("\n") + "\n").as_bytes())
        .unwrap();
    oldest.finish().unwrap();
    folder.write("d.jsonl.1", lost(3, "http://a.test/2") + "\n");
    let log = folder.write(
        "d.jsonl",
        [
            line(
                4,
                json!({ "url": "http://a.test/0", "left_out": 9, "dropped": 4 }),
            ),
            line(
                5,
                json!({ "url": "http://a.test/0", "decision": "0000000b-1", "left_out": 100 }),
            ),
        ]
        .join("\n")
            + "\n",
    );
    let (urls, document, text) = list_lost(&log, &[]);
    assert_eq!(urls, ["http://a.test/1", "http://a.test/2"]);
    assert_eq!(
        (&document["left_out"], &document["dropped"]),
        (&json!(109), &json!(4))
    );
    assert!(
        text.stdout.contains("4 lines of the log were dropped"),
        "{text:?}"
    );
    assert!(
        text.stdout
            .contains("lacks 109 lines of allowed requests (logs.allows"),
        "{text:?}"
    );
    // What was missing before is not counted.
    let (urls, document, _) = list_lost(&log, &["--since", "2026-11-23T08:00:03Z"]);
    assert_eq!(urls, ["http://a.test/2"]);
    assert_eq!(
        (&document["left_out"], &document["dropped"]),
        (&json!(104), &json!(3))
    );
}

#[test]
fn an_answer_to_a_masked_url_may_be_that_of_another() {
    let folder = TempDir::new();
    let masked = "http://a.test/x?id=redacted";
    let lines = [lost(1, masked), line(2, json!({ "url": masked }))];
    let log = folder.write("d.jsonl", lines.join("\n") + "\n");
    let (urls, _, text) = list_lost(&log, &[]);
    assert_eq!(urls, [masked]);
    assert!(
        text.stdout.contains("1 of the URLs have masked queries"),
        "{text:?}"
    );
}

#[test]
fn the_ledger_keeps_the_list_until_a_url_is_answered() {
    let rules = |rest: &str| {
        ledger_wire::policy(
            "  recrawl: { min_interval: 1s }",
            &format!(
                "rules:\n  - {{ id: secret, when: {{ under: /secret }}, set: {{ record: none }} }}\n{rest}"
            ),
        )
    };
    let later = "  - { id: later, forbid: { path: { regex: '/(x|secret)' } }, reject: later }\n";
    let bench = LedgerBench::new(&rules(later), |head| match ledger_wire::path(head) {
        "/busy" => ledger_wire::bare(503, ""),
        _ => None,
    });
    for path in ["/x", "/secret/x", "/secret/y"] {
        assert_eq!(bench.get_with(path, "").status, 503, "{path}");
    }
    bench.until_record("/x", "it is lost", |record| record.lost.is_some());
    assert!(!bench.record("news", "/x").unwrap().is_known());
    assert!(bench.record("news", "/secret/x").is_none());
    bench.get_with("/busy", "");
    bench.until_record("/busy", "it is lost", |record| record.lost.is_some());
    // It is allowed again, and fetched.
    bench.reload(&rules(""));
    bench.manual_clock.advance(ledger_wire::HOUR);
    assert_eq!(bench.get_with("/x", "").status, 200);
    bench.until_record("/x", "it was answered", |record| record.lost.is_none());
    // A known URL that is refused for now keeps its record, with the time of the loss.
    bench.reload(&rules(later));
    assert_eq!(bench.get_with("/x", "").status, 503);
    bench.until_record("/x", "it is lost again", |record| {
        record.lost.is_some() && record.last_fetched.is_some()
    });
}

#[test]
fn the_command_finds_later_answers_in_the_ledger_of_the_proxy() {
    let config = CONFIG.replace("log.json", "log.json, allows: 0.0") + "ledger: { keep: always }\n";
    let gate = TestProxy::start(&config, POLICY);
    let origin = ScriptedOrigin::respond(|_| OK);
    let url = |path: &str| origin.url("a.test", path);
    get(gate.proxy, &url("/x?later"));
    get(gate.proxy, &url("/y?later"));
    let log = gate.decisions(2);
    let policy = POLICY.replace("in_query: later", "in_query: laterx");
    gate.write("policy.yaml", &policy);
    assert_eq!(gate.admin("POST /api/v1/reload").status, 200);
    get(gate.proxy, &url("/x?later"));
    let admin = gate.admin.to_string();
    let config = gate.write(
        "client.yaml",
        &config.replace("listen: 127.0.0.1:0 }", &format!("listen: {admin} }}")),
    );
    let list = |arguments: &[&str]| {
        let mut all = arguments.to_vec();
        all.extend(["--config", config.to_str().unwrap(), "--format", "json"]);
        let output = crawlgate(Path::new("."), &all, "");
        assert_eq!(output.code, 0, "{output:?}");
        serde_json::from_str::<Json>(&output.stdout).unwrap()
    };
    wait_until("the ledger has the answer", || {
        list(&["ledger", "list", "--lost"])
            .as_array()
            .unwrap()
            .len()
            == 1
    });
    let listed = list(&["ledger", "list", "--lost"]);
    assert_eq!(listed[0]["url"], url("/y?later"), "{listed}");
    assert!(listed[0]["lost"].is_string());
    let lost = list(&["decisions", "--lost"]);
    assert_eq!(lost["urls"].as_array().unwrap().len(), 1, "{lost} {log:?}");
    assert_eq!(lost["urls"][0]["url"], url("/y?later"));
    assert_eq!(lost["ledger"], true);
}

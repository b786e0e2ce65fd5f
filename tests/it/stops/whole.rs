//! The button of the real binary: pressed by the command, seen by crawlers, kept over a restart.

use std::fs;

use serde_json::{Value as Json, json};

use crate::support::client::RawClient;
use crate::support::client::Response;
use crate::support::command::{CommandOutput, crawlgate};
use crate::support::origin::ScriptedOrigin;
use crate::support::proxy::TestProxy;
use crate::support::temp_dir::TempDir;
use crate::support::wait::wait_until;
use crate::tunnel::inside::{Inside, check, trusting};
use crate::tunnel::wire::{self};

const POLICY: &str = "policy: 1
name: stops
options:
  disposition: allow
  robots: { obey: false }
  politeness: { delay: 0s, concurrency: 100, max_hold: 0s }
rules:
  - { id: slow, when: { under: /slow }, set: { follow: false } }
  - { id: patient, when: { under: /patient }, set: { politeness: { max_hold: 60s } } }
";

/// Stops are kept under `state`.
fn config(more: &str) -> String {
    format!(
        "listen: 127.0.0.1:0
admin: {{ listen: 127.0.0.1:0 }}
policy: {{ path: policy.yaml, watch: false }}
logs: {{ decisions: log.json }}
egress:
  allow_loopback: true
  ports: [1-65535]
  hosts: {{ a.test: 127.0.0.1, b.test: 127.0.0.1 }}
store: {{ path: state }}
{more}"
    )
}

/// Runs `crawlgate stop` against a gate.
fn stop(gate: &TestProxy, arguments: &[&str]) -> CommandOutput {
    let admin = gate.admin.to_string();
    crawlgate(
        &gate.file(""),
        &[&["stop", "--admin", &admin], arguments].concat(),
        "",
    )
}

fn get(gate: &TestProxy, origin: &ScriptedOrigin, host: &str, path: &str) -> Response {
    RawClient::connect(gate.proxy).get(&format!("http://{host}:{}{path}", origin.port))
}

#[test]
fn the_command_stops_and_lifts_and_crawlers_get_the_reason() {
    let gate = TestProxy::start(&config(""), POLICY);
    let origin = ScriptedOrigin::ok();
    assert_eq!(stop(&gate, &["--list"]).stdout, "nothing is stopped\n");
    assert_eq!(get(&gate, &origin, "a.test", "/").status, 200);

    let output = stop(
        &gate,
        &["A.test", "--reason", "they have called", "--for", "1h"],
    );
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    assert!(
        output.stdout.starts_with("host:a.test is stopped until 20"),
        "{output:?}"
    );
    assert!(
        output
            .stdout
            .ends_with(": they have called\nto lift the stop: crawlgate stop --lift 1\n"),
        "{output:?}"
    );
    let refused = get(&gate, &origin, "a.test", "/x");
    for (name, value) in [
        ("crawl-status", "REJECTED_POLITENESS"),
        ("crawl-reason", "stopped"),
        ("crawl-retry", "after"),
        (
            "proxy-status",
            "\"crawlgate\"; error=http_request_denied; details=\"stopped\"",
        ),
    ] {
        assert_eq!(refused.field(name), Some(value));
    }
    let retry: u64 = refused.field("retry-after").unwrap().parse().unwrap();
    assert!(refused.status == 503, "{retry}");
    assert!((3_500..=3_600).contains(&retry), "{retry}");
    let problem: Json = serde_json::from_str(&refused.body).unwrap();
    let detail = problem["detail"].as_str().unwrap();
    assert!(
        detail.starts_with("host:a.test is stopped until "),
        "{detail}"
    );
    assert!(detail.ends_with(": they have called"), "{detail}");
    assert_eq!(
        (&problem["reason"], &problem["stage"]),
        (&json!("stopped"), &json!("pace"))
    );
    assert_eq!(get(&gate, &origin, "b.test", "/x").status, 200);
    assert_eq!(
        origin.requests().len(),
        2,
        "nothing was sent to the host that is stopped"
    );
    wait_until("it is logged", || {
        gate.decision_log().contains("\"reason\":\"stopped\"")
    });
    assert_eq!(gate.counter("crawlgate_stops"), 1);
    let series = "crawlgate_decisions_total{crawler=\"anonymous\",reason=\"stopped\",stage=\"pace\",verdict=\"reject\"}";
    wait_until("it is counted", || gate.counter(series) == 1);

    let output = stop(
        &gate,
        &["rule:slow", "--reason", "too slow", "--format", "json"],
    );
    let given: Json = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(
        (&given["id"], &given["persisted"], &given["warnings"]),
        (&json!("2"), &json!(true), &json!([]))
    );
    assert_eq!(
        get(&gate, &origin, "b.test", "/slow/x").field("crawl-reason"),
        Some("stopped")
    );
    assert_eq!(get(&gate, &origin, "b.test", "/x").status, 200);
    let list = stop(&gate, &["--list"]).stdout;
    let lines: Vec<&str> = list.lines().collect();
    assert!(lines[0].starts_with("1  host:a.test  since 20"), "{list}");
    assert!(lines[0].ends_with("Z  they have called"), "{list}");
    assert!(lines[1].starts_with("2  rule:slow    since "), "{list}");
    assert!(lines[1].ends_with("until it is lifted  too slow"), "{list}");

    let output = stop(&gate, &["--lift", "1"]);
    assert_eq!(
        (output.code, output.stdout.as_str()),
        (0, "host:a.test continues: stop 1 is lifted\n")
    );
    assert_eq!(get(&gate, &origin, "a.test", "/x").status, 200);
    let again = stop(&gate, &["--lift", "1"]);
    assert_eq!(again.code, 1);
    assert_eq!(
        again.stderr.as_str(),
        "error: no such stop is active: it was lifted or has expired\n"
    );
    let doubtful = stop(&gate, &["rule:none", "--reason", "x"]);
    assert!(doubtful.code == 0, "{doubtful:?}");
    assert!(
        doubtful
            .stderr
            .starts_with("warning: the active policy has no rule none"),
        "{doubtful:?}"
    );
    let listed: Json =
        serde_json::from_str(&stop(&gate, &["--list", "--format", "json"]).stdout).unwrap();
    assert_eq!(listed["stops"].as_array().unwrap().len(), 2);
    assert!(
        gate.stderr()
            .contains("host:a.test is stopped: they have called"),
        "{}",
        gate.stderr()
    );
}

#[test]
fn one_that_waits_goes_when_the_stop_is_lifted_or_is_sent_away_by_a_drain() {
    let gate = TestProxy::start(&config(""), POLICY);
    let origin = ScriptedOrigin::ok();
    let body = json!({ "what": "*.test", "reason": "x" }).to_string();
    fn press(body: &str, gate: &TestProxy) {
        let length = body.len();
        let head = format!(
            "POST /api/v1/stops HTTP/1.1\r\nHost: {}\r\nContent-Length: {length}\r\n\r\n",
            gate.admin
        );
        assert_eq!(
            RawClient::connect(gate.admin)
                .request(format!("{head}{body}"))
                .status,
            201
        );
    }
    press(&body, &gate);
    fn waiting(gate: &TestProxy, origin: &ScriptedOrigin) -> std::thread::JoinHandle<Response> {
        let proxy = gate.proxy;
        let url = format!("http://a.test:{}/patient", origin.port);
        std::thread::spawn(move || RawClient::connect(proxy).get(&url))
    }
    let first = waiting(&gate, &origin);
    wait_until("it is held", || {
        gate.counter("crawlgate_held_requests") == 1
    });
    assert_eq!(gate.admin("DELETE /api/v1/stops/1").status, 200);
    let answer = first.join().unwrap();
    assert!(answer.status == 200 && answer.field("crawl-held").is_some());

    press(&body, &gate);
    let second = waiting(&gate, &origin);
    wait_until("it is held", || {
        gate.counter("crawlgate_held_requests") == 1
    });
    gate.signal("TERM");
    let answer = second.join().unwrap();
    assert_eq!(
        (answer.status, answer.field("crawl-reason")),
        (503, Some("shutting_down"))
    );
    assert_eq!(origin.requests().len(), 1);
}

#[test]
fn a_restart_keeps_stops_and_a_broken_file_keeps_the_proxy_from_starting() {
    let state = TempDir::new();
    let config = config("").replace(
        "path: state",
        &format!("path: {}", state.path().join("a/b").display()),
    );
    let origin = ScriptedOrigin::ok();
    let gate = TestProxy::start(&config, POLICY);
    assert_eq!(stop(&gate, &["a.test", "--reason", "x"]).code, 0);
    assert_eq!(
        stop(&gate, &["b.test", "--reason", "x", "--for", "100ms"]).code,
        0
    );
    gate.signal("KILL");
    drop(gate);
    let gate = TestProxy::start(&config, POLICY);
    assert_eq!(
        get(&gate, &origin, "a.test", "/").field("crawl-reason"),
        Some("stopped")
    );
    wait_until("a stop ends by itself", || {
        get(&gate, &origin, "b.test", "/").status == 200
    });
    assert_eq!(stop(&gate, &["--lift", "1"]).code, 0);
    drop(gate);

    let file = state.path().join("a/b/stops.json");
    assert!(fs::read_to_string(&file).unwrap().contains("\"stops\": []"));
    fs::write(&file, "{").unwrap();
    let here = TempDir::new();
    here.write("policy.yaml", POLICY);
    here.write("c.yaml", &config);
    let output = crawlgate(here.path(), "run --config c.yaml", "");
    assert_eq!(output.code, 3, "{output:?}");
    let start = format!(
        "error: cannot read the emergency stops from {}: ",
        file.display()
    );
    assert!(output.stderr.contains(&start), "{output:?}");
    assert!(
        output.stderr.contains("Repair the file, or move it away"),
        "{output:?}"
    );
}

#[test]
fn an_unsaved_stop_takes_effect_with_a_warning() {
    let gate = TestProxy::start(&config(""), POLICY);
    let origin = ScriptedOrigin::ok();
    fs::remove_dir_all(gate.file("state")).unwrap();
    gate.write("state", "a file where the directory is to be");
    let output = stop(&gate, &["a.test", "--reason", "x"]);
    assert!(output.code == 0, "{output:?}");
    assert!(
        output
            .stderr
            .starts_with("warning: this will be lost at a restart: "),
        "{output:?}"
    );
    assert_eq!(
        get(&gate, &origin, "a.test", "/").field("crawl-reason"),
        Some("stopped")
    );
    let ready = gate.admin("GET /readyz");
    assert!(ready.status == 200, "{}", ready.body);
    assert!(
        ready
            .body
            .contains("warn stops: the stops would be lost by a restart"),
        "{}",
        ready.body
    );
    fs::remove_file(gate.file("state")).unwrap();
    wait_until("it is kept after all", || {
        !gate.admin("GET /readyz").body.contains("warn stops")
    });
    assert!(gate.file("state/stops.json").exists());
}

#[test]
fn the_command_reports_errors() {
    let gate = TestProxy::start(&config(""), POLICY);
    for (arguments, code, reported) in [
        (&[][..], 2, "required arguments were not provided"),
        (&["a.test"], 2, "--reason <TEXT>"),
        (&["a.test", "--list"], 2, "cannot be used with"),
        (&["--list", "--lift", "1"], 2, "cannot be used with"),
        (&["--lift", "1", "--reason", "x"], 2, "cannot be used with"),
        (&["a b", "--reason", "x"], 2, "error: invalid host: "),
        (
            &["crawler:A", "--reason", "x"],
            2,
            "error: invalid name of a crawler",
        ),
        (
            &["a.test", "--reason", "a\nb"],
            2,
            "error: --reason: a reason is one line",
        ),
        (
            &["a.test", "--reason", "x", "--for", "1"],
            2,
            "error: --for: write a duration such as 90s",
        ),
        (&["--lift", "one"], 2, "error: --lift: one is not an id"),
        (&["--lift", "1", "--config", "none.yaml"], 2, "none.yaml"),
    ] {
        let output = stop(&gate, arguments);
        assert_eq!(output.code, code, "{arguments:?}: {output:?}");
        assert!(
            output.stderr.contains(reported),
            "{arguments:?}: {output:?}"
        );
    }
    assert_eq!(stop(&gate, &["--list"]).stdout, "nothing is stopped\n");
    let nobody = TempDir::new();
    let output = crawlgate(nobody.path(), "stop --list --admin 127.0.0.1:1", "");
    assert!(output.code == 3, "{output:?}");
    assert!(
        output
            .stderr
            .contains("the proxy does not answer at 127.0.0.1:1"),
        "{output:?}"
    );
}

#[test]
fn the_command_finds_the_token_of_the_configuration() {
    let with_token = config("").replace(
        "admin: { listen: 127.0.0.1:0 }",
        "admin: { listen: 127.0.0.1:0, token_file: token }",
    );
    let gate = TestProxy::start_with(&with_token, POLICY, |command| {
        fs::write(
            command.get_current_dir().unwrap().join("token"),
            "correct-horse-battery\n",
        )
        .unwrap();
    });
    let output = stop(&gate, &["a.test", "--reason", "x"]);
    assert!(output.code == 3, "{output:?}");
    assert!(
        output.stderr.contains("401: the admin token is required"),
        "{output:?}"
    );
    assert_eq!(
        stop(
            &gate,
            &["a.test", "--reason", "x", "--config", "crawlgate.yaml"]
        )
        .code,
        0
    );
}

/// Blind tunnels: open ones are closed, new ones wait and are refused.
#[test]
fn a_stop_closes_the_tunnels_that_it_covers() {
    let origin = ScriptedOrigin::echo();
    let ports = format!("connect_ports: [1-65535]\n  tls_ports: [{}]", origin.port);
    let more = "store: { path: state }\ntimeouts: { connect_total: 300ms }\n";
    let gate = TestProxy::start(&wire::config(&ports, more), wire::POLICY);
    let mut open = RawClient::tls_tunnel(gate.proxy, origin.port);
    let mut other = RawClient::tunnel_to(gate.proxy, &format!("b.test:{}", origin.port));
    other.echo_client_hello("b.test");
    assert_eq!(stop(&gate, &["a.test", "--reason", "x"]).code, 0);
    assert_eq!(open.read_rest(), "");
    wait_until("why is logged", || {
        gate.decision_log().contains("\"error\":\"stopped\"")
    });
    assert!(
        gate.decision_log().contains("\"reason\":\"stopped\""),
        "{}",
        gate.decision_log()
    );
    let mut client = RawClient::connect(gate.proxy);
    client.send(format!(
        "CONNECT a.test:{} HTTP/1.1\r\nHost: x\r\n\r\n",
        origin.port
    ));
    let refused = client.read_rest();
    assert!(
        refused.starts_with("HTTP/1.1 503 Policy-503 reason=stopped id="),
        "{refused}"
    );
    other.send("still open");
    assert_eq!(other.read_bytes(10), b"still open");
    assert_eq!(stop(&gate, &["--lift", "1"]).code, 0);
    drop(RawClient::tls_tunnel(gate.proxy, origin.port));
}

/// Inside intercepted TLS a stop covers each request, but not the tunnel and its CONNECT.
#[test]
fn a_stop_holds_requests_inside_tls_too() {
    let files = "tls: { intercept: true, ca: { cert: ca.pem, key: ca.key }, bundle: bundle.pem }";
    let more = format!("{files}\nstore: {{ path: state }}\n");
    let rule =
        "rules:\n  - { id: inner, when: { under: /in }, set: { politeness: { max_hold: 0s } } }";
    let gate = TestProxy::start(
        &wire::config("", &more),
        &wire::POLICY.replace("rules:", rule),
    );
    assert_eq!(
        stop(&gate, &["rule:inner", "--reason", "x", "--for", "30s"]).code,
        0
    );
    let mut client = Inside::open(gate.proxy, "a.test", &trusting(&gate));
    for _ in 0..2 {
        let (head, body) = client.ask("a.test", "/in/x");
        check(
            &head,
            503,
            &[
                "crawl-reason: stopped\r\n",
                "crawl-retry: after\r\n",
                "retry-after: ",
            ],
        );
        assert!(body.contains("rule:inner is stopped until "), "{body}");
    }
}

//! The button of the real binary: pressed by the command, seen by crawlers, kept over a restart.

use std::fs;

use serde_json::{Value as Json, json};

use crate::reload::{Answer, Client, admin};
use crate::support::command::{Said, crawlgate};
use crate::support::folder::Folder;
use crate::support::gate::Gate;
use crate::tunnel::inside::{Inside, check, trusting};
use crate::tunnel::wire::{self, metric};
use crate::upstream::scripted::{Origin, until};

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
fn stop(gate: &Gate, arguments: &[&str]) -> Said {
    let admin = gate.admin.to_string();
    crawlgate(
        &gate.file(""),
        &[&["stop", "--admin", &admin], arguments].concat(),
        "",
    )
}

fn get(gate: &Gate, origin: &Origin, host: &str, path: &str) -> Answer {
    Client::new(gate.proxy).get(&format!("http://{host}:{}{path}", origin.port))
}

#[test]
fn the_command_stops_and_lifts_and_crawlers_are_told() {
    let (gate, origin) = (Gate::start(&config(""), POLICY), Origin::plain());
    assert_eq!(stop(&gate, &["--list"]).out, "nothing is stopped\n");
    assert_eq!(get(&gate, &origin, "a.test", "/").status, 200);

    let said = stop(
        &gate,
        &["A.test", "--reason", "they have called", "--for", "1h"],
    );
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    assert!(
        said.out.starts_with("host:a.test is stopped until 20"),
        "{said:?}"
    );
    assert!(
        said.out
            .ends_with(": they have called\nto lift the stop: crawlgate stop --lift 1\n"),
        "{said:?}"
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
    assert!(
        refused.status == 503 && (3_500..=3_600).contains(&retry),
        "{retry}"
    );
    let problem: Json = serde_json::from_str(&refused.body).unwrap();
    let detail = problem["detail"].as_str().unwrap();
    assert!(
        detail.starts_with("host:a.test is stopped until ")
            && detail.ends_with(": they have called"),
        "{detail}"
    );
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
    until("it is logged", || {
        gate.log().contains("\"reason\":\"stopped\"")
    });
    assert_eq!(metric(&gate, "crawlgate_stops"), 1);
    let series = "crawlgate_decisions_total{crawler=\"anonymous\",reason=\"stopped\",stage=\"pace\",verdict=\"reject\"}";
    until("it is counted", || metric(&gate, series) == 1);

    let said = stop(
        &gate,
        &["rule:slow", "--reason", "too slow", "--format", "json"],
    );
    let given: Json = serde_json::from_str(&said.out).unwrap();
    assert_eq!(
        (&given["id"], &given["persisted"], &given["warnings"]),
        (&json!("2"), &json!(true), &json!([]))
    );
    assert_eq!(
        get(&gate, &origin, "b.test", "/slow/x").field("crawl-reason"),
        Some("stopped")
    );
    assert_eq!(get(&gate, &origin, "b.test", "/x").status, 200);
    let list = stop(&gate, &["--list"]).out;
    let lines: Vec<&str> = list.lines().collect();
    assert!(
        lines[0].starts_with("1  host:a.test  since 20")
            && lines[0].ends_with("Z  they have called"),
        "{list}"
    );
    assert!(
        lines[1].starts_with("2  rule:slow    since ")
            && lines[1].ends_with("until it is lifted  too slow"),
        "{list}"
    );

    let said = stop(&gate, &["--lift", "1"]);
    assert_eq!(
        (said.code, said.out.as_str()),
        (0, "host:a.test continues: stop 1 is lifted\n")
    );
    assert_eq!(get(&gate, &origin, "a.test", "/x").status, 200);
    let again = stop(&gate, &["--lift", "1"]);
    assert_eq!(
        (again.code, again.err.as_str()),
        (
            1,
            "error: no such stop is active: it was lifted or has expired\n"
        )
    );
    let doubtful = stop(&gate, &["rule:none", "--reason", "x"]);
    assert!(
        doubtful.code == 0
            && doubtful
                .err
                .starts_with("warning: the active policy has no rule none"),
        "{doubtful:?}"
    );
    let listed: Json =
        serde_json::from_str(&stop(&gate, &["--list", "--format", "json"]).out).unwrap();
    assert_eq!(listed["stops"].as_array().unwrap().len(), 2);
    assert!(
        gate.said()
            .contains("host:a.test is stopped: they have called"),
        "{}",
        gate.said()
    );
}

#[test]
fn one_that_waits_goes_when_the_stop_is_lifted_or_is_sent_away_by_a_drain() {
    let (gate, origin) = (Gate::start(&config(""), POLICY), Origin::plain());
    let body = json!({ "what": "*.test", "reason": "x" }).to_string();
    let press = || {
        let length = body.len();
        let head = format!(
            "POST /api/v1/stops HTTP/1.1\r\nHost: {}\r\nContent-Length: {length}\r\n\r\n",
            gate.admin
        );
        assert_eq!(
            Client::new(gate.admin).ask(&format!("{head}{body}")).status,
            201
        );
    };
    press();
    let waiting = || {
        let (proxy, url) = (gate.proxy, format!("http://a.test:{}/patient", origin.port));
        std::thread::spawn(move || Client::new(proxy).get(&url))
    };
    let first = waiting();
    until("it is held", || {
        metric(&gate, "crawlgate_held_requests") == 1
    });
    assert_eq!(admin(&gate, "DELETE /api/v1/stops/1").status, 200);
    let answer = first.join().unwrap();
    assert!(answer.status == 200 && answer.field("crawl-held").is_some());

    press();
    let second = waiting();
    until("it is held", || {
        metric(&gate, "crawlgate_held_requests") == 1
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
    let state = Folder::new();
    let config = config("").replace(
        "path: state",
        &format!("path: {}", state.path().join("a/b").display()),
    );
    let origin = Origin::plain();
    let gate = Gate::start(&config, POLICY);
    assert_eq!(stop(&gate, &["a.test", "--reason", "x"]).code, 0);
    assert_eq!(
        stop(&gate, &["b.test", "--reason", "x", "--for", "100ms"]).code,
        0
    );
    gate.signal("KILL");
    drop(gate);
    let gate = Gate::start(&config, POLICY);
    assert_eq!(
        get(&gate, &origin, "a.test", "/").field("crawl-reason"),
        Some("stopped")
    );
    until("a stop ends by itself", || {
        get(&gate, &origin, "b.test", "/").status == 200
    });
    assert_eq!(stop(&gate, &["--lift", "1"]).code, 0);
    drop(gate);

    let file = state.path().join("a/b/stops.json");
    assert!(fs::read_to_string(&file).unwrap().contains("\"stops\": []"));
    fs::write(&file, "{").unwrap();
    let here = Folder::new();
    here.write("policy.yaml", POLICY);
    here.write("c.yaml", &config);
    let said = crawlgate(here.path(), &["run", "--config", "c.yaml"], "");
    assert_eq!(said.code, 3, "{said:?}");
    let start = format!(
        "error: cannot read the emergency stops from {}: ",
        file.display()
    );
    assert!(
        said.err.contains(&start) && said.err.contains("Repair the file, or move it away"),
        "{said:?}"
    );
}

#[test]
fn a_stop_that_cannot_be_kept_works_and_says_so() {
    let (gate, origin) = (Gate::start(&config(""), POLICY), Origin::plain());
    gate.write("state", "a file where the directory is to be");
    let said = stop(&gate, &["a.test", "--reason", "x"]);
    assert!(
        said.code == 0
            && said
                .err
                .starts_with("warning: this will be lost at a restart: "),
        "{said:?}"
    );
    assert_eq!(
        get(&gate, &origin, "a.test", "/").field("crawl-reason"),
        Some("stopped")
    );
    let ready = admin(&gate, "GET /readyz");
    assert!(
        ready.status == 200
            && ready
                .body
                .contains("warn stops: the stops would be lost by a restart"),
        "{}",
        ready.body
    );
    fs::remove_file(gate.file("state")).unwrap();
    until("it is kept after all", || {
        !admin(&gate, "GET /readyz").body.contains("warn stops")
    });
    assert!(gate.file("state/stops.json").exists());
}

#[test]
fn the_command_says_what_is_wrong() {
    let gate = Gate::start(&config(""), POLICY);
    for (arguments, code, told) in [
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
        let said = stop(&gate, arguments);
        assert_eq!(said.code, code, "{arguments:?}: {said:?}");
        assert!(said.err.contains(told), "{arguments:?}: {said:?}");
    }
    assert_eq!(stop(&gate, &["--list"]).out, "nothing is stopped\n");
    let nobody = Folder::new();
    let said = crawlgate(
        nobody.path(),
        &["stop", "--list", "--admin", "127.0.0.1:1"],
        "",
    );
    assert!(
        said.code == 3
            && said
                .err
                .contains("the proxy does not answer at 127.0.0.1:1"),
        "{said:?}"
    );
}

#[test]
fn the_command_finds_the_token_of_the_configuration() {
    let with_token = config("").replace(
        "admin: { listen: 127.0.0.1:0 }",
        "admin: { listen: 127.0.0.1:0, token_file: token }",
    );
    let gate = Gate::start_with(&with_token, POLICY, |command| {
        fs::write(
            command.get_current_dir().unwrap().join("token"),
            "correct-horse-battery\n",
        )
        .unwrap();
    });
    let said = stop(&gate, &["a.test", "--reason", "x"]);
    assert!(
        said.code == 3 && said.err.contains("401: the admin token is required"),
        "{said:?}"
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
    let origin = wire::Origin::echo();
    let ports = format!("connect_ports: [1-65535]\n  tls_ports: [{}]", origin.port);
    let more = "store: { path: state }\ntimeouts: { connect_total: 300ms }\n";
    let gate = Gate::start(&wire::config(&ports, more), wire::POLICY);
    let mut open = wire::Client::in_tls(gate.proxy, origin.port);
    let mut other = wire::Client::tunnel_to(gate.proxy, &format!("b.test:{}", origin.port));
    other.greet("b.test");
    assert_eq!(stop(&gate, &["a.test", "--reason", "x"]).code, 0);
    assert_eq!(open.rest(), "");
    until("why is logged", || {
        gate.log().contains("\"error\":\"stopped\"")
    });
    assert!(
        gate.log().contains("\"reason\":\"stopped\""),
        "{}",
        gate.log()
    );
    let mut client = wire::Client::connect(gate.proxy);
    client.send(format!(
        "CONNECT a.test:{} HTTP/1.1\r\nHost: x\r\n\r\n",
        origin.port
    ));
    let refused = client.rest();
    assert!(
        refused.starts_with("HTTP/1.1 503 Policy-503 reason=stopped id="),
        "{refused}"
    );
    other.send("still open");
    assert_eq!(other.bytes(10), b"still open");
    assert_eq!(stop(&gate, &["--lift", "1"]).code, 0);
    drop(wire::Client::in_tls(gate.proxy, origin.port));
}

/// Inside TLS that is looked into each request is covered for itself; the tunnel and its CONNECT are not.
#[test]
fn a_stop_holds_requests_inside_tls_too() {
    let files = "tls: { intercept: true, ca: { cert: ca.pem, key: ca.key }, bundle: bundle.pem }";
    let more = format!("{files}\nstore: {{ path: state }}\n");
    let rule =
        "rules:\n  - { id: inner, when: { under: /in }, set: { politeness: { max_hold: 0s } } }";
    let gate = Gate::start(
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

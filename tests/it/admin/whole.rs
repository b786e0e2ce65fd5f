//! The real binary: a decision is found by its id, its host with the line that ruled, and a stream ends with the proxy.

use serde_json::{Value as Json, json};

use crate::support::client::RawClient;
use crate::support::origin::{ScriptedOrigin, closed_port, response};
use crate::support::proxy::TestProxy;
use crate::support::temp_dir::TempDir;
use crate::support::wait::wait_until;

const POLICY: &str = "policy: 1
name: live
options:
  disposition: allow
  robots: { obey: true }
  politeness: { delay: 0s, concurrency: 3 }
";
const CONFIG: &str = "listen: 127.0.0.1:0
admin: { listen: 127.0.0.1:0 }
policy: { path: policy.yaml, watch: false }
logs: { decisions: none }
egress:
  allow_loopback: true
  ports: [1-65535]
  hosts: { a.test: 127.0.0.1 }
";

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

fn shown(gate: &TestProxy, path: &str) -> Json {
    let answer = gate.admin(&format!("GET /api/v1/{path}"));
    serde_json::from_str(&answer.body).expect(&answer.body)
}

#[test]
fn the_admin_pages_show_live_requests() {
    let mut gate = TestProxy::start(CONFIG, POLICY);
    let origin = ScriptedOrigin::start(|connection| {
        while let Some(request) = connection.read_head() {
            let file = "User-agent: *\nDisallow: /private\n";
            let body = if request.starts_with("GET /robots.txt ") {
                file
            } else {
                "page"
            };
            let length = body.len();
            connection.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}"
            ));
        }
    });
    fn get(
        gate: &TestProxy,
        origin: &ScriptedOrigin,
        path: &str,
    ) -> crate::support::client::Response {
        RawClient::connect(gate.proxy).get(&format!("http://a.test:{}{path}", origin.port))
    }
    let mut stream = RawClient::connect(gate.admin);
    stream.send(format!(
        "GET /api/v1/decisions?recent=0 HTTP/1.0\r\nHost: {}\r\n\r\n",
        gate.admin
    ));
    assert!(stream.read_until("\r\n\r\n").starts_with("HTTP/1.0 200 "));

    assert_eq!(get(&gate, &origin, "/x").status, 200);
    // Lines of different workers may be in the ring in either order.
    wait_until("the first is in the ring", || {
        shown(&gate, "decisions/00000000-0")["decisions"] == 1
    });
    let refused = get(&gate, &origin, "/private?q=1");
    assert_eq!(refused.field("crawl-reason"), Some("robots_txt"));
    let id = refused.field("crawl-decision").unwrap().to_owned();
    wait_until("it is in the ring", || {
        gate.admin(&format!("GET /api/v1/decisions/{id}")).status == 200
    });
    let found = shown(&gate, &format!("decisions/{id}"));
    assert_eq!(
        (&found["decision"], &found["verdict"]),
        (&json!(id), &json!("reject"))
    );
    assert_eq!(found["host"], "a.test");
    assert_eq!(gate.admin("GET /api/v1/decisions/00000000-0").status, 404);
    let none = shown(&gate, "decisions/00000000-0");
    assert!(
        none["detail"]
            .as_str()
            .unwrap()
            .contains("reach back to 20"),
        "{none}"
    );
    assert_eq!(none["decisions"], 2);

    a_trace_is_found(&gate, origin.port);

    let url = format!("http://a.test:{}/private/y", origin.port);
    let host = shown(&gate, &format!("hosts/a.test?url={url}"));
    assert_eq!(host["tracked"], true, "{host}");
    assert_eq!(host["slots"], json!({ "used": 0, "of": 3 }), "{host}");
    let robots = &host["robots"][0];
    assert_eq!(
        (&robots["status"], &robots["authority"]),
        (&json!("known"), &json!(format!("a.test:{}", origin.port)))
    );
    assert_eq!(
        robots["ruling"],
        json!({ "url": url, "allow": false, "line": 2, "rule": "Disallow: /private", "group": "*" })
    );
    assert_eq!(shown(&gate, "hosts?q=a.te")["total"], 1);

    gate.signal("TERM");
    assert_eq!(gate.wait_for_exit(), Some(0));
    let lines: Vec<Json> = stream
        .read_rest()
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_str(line).expect(line))
        .collect();
    let verdicts: Vec<_> = lines
        .iter()
        .map(|line| line["verdict"].as_str().unwrap())
        .collect();
    assert_eq!(verdicts, ["allow", "reject", "allow", "reject"]);
}

/// By the name that its crawler gave it, with all its decisions.
fn a_trace_is_found(gate: &TestProxy, port: u16) {
    fn traced(port: u16, gate: &TestProxy, path: &str) -> crate::support::client::Response {
        let url = format!("http://a.test:{}{path}", port);
        let head = format!(
            "GET {url} HTTP/1.1\r\nHost: a.test:{}\r\ntraceparent: 00-{TRACE}-00f067aa0ba902b7-00\r\n\r\n",
            port
        );
        RawClient::connect(gate.proxy).request(&head)
    }
    assert_eq!(traced(port, gate, "/x").status, 200);
    wait_until("the first is in the ring", || {
        gate.admin(&format!("GET /api/v1/decisions/{TRACE}")).status == 200
    });
    let second = traced(port, gate, "/private")
        .field("crawl-decision")
        .unwrap()
        .to_owned();
    wait_until("both are in the ring", || {
        let found = gate.admin(&format!("GET /api/v1/decisions/{TRACE}"));
        found.status == 200 && found.body.contains("others\":[\"")
    });
    let found = shown(gate, &format!("decisions/{TRACE}"));
    assert_eq!(found["trace"], json!(TRACE), "{found}");
    assert_eq!(found["decision"], json!(second), "{found}");
    let others = found["others"].as_array().unwrap();
    let first = shown(gate, &format!("decisions/{}", others[0].as_str().unwrap()));
    assert_eq!(others.len(), 1, "{first}");
    assert_eq!(first["trace"], json!(TRACE), "{first}");
    assert_eq!(first["verdict"], "allow", "{first}");
}

/// The first scrape after a start, not one some seconds later.
#[test]
fn the_urls_of_the_ledger_are_counted_from_the_start() {
    let origin = ScriptedOrigin::ok();
    let store = TempDir::new();
    let config = format!(
        "listen: 127.0.0.1:0\nadmin: {{ listen: 127.0.0.1:0 }}\nstore: {{ path: {} }}\nledger: {{ keep: always }}\n\
         egress: {{ allow_loopback: true, ports: [1-65535] }}\n",
        store.path().display()
    );
    let policy = "policy: 1\nname: l\noptions: { disposition: allow, robots: { obey: false } }\n";
    let series = "crawlgate_ledger_urls{status=\"ACCEPTED\"}";
    let mut first = TestProxy::start(&config, policy);
    assert_eq!(first.metric(series), 0.0);
    let page = origin.url("127.0.0.1", "/");
    assert_eq!(RawClient::connect(first.proxy).get(&page).status, 200);
    first.wait_for_metric(series, 1.0);
    first.signal("TERM");
    assert_eq!(first.wait_for_exit(), Some(0));
    for _ in 0..5 {
        let next = TestProxy::start(&config, policy);
        assert_eq!(next.metric(series), 1.0);
    }
}

/// Counts of the process and of the ledger are told apart, and codes are counted by themselves.
#[test]
fn codes_and_events_are_counted_across_restarts() {
    let origin = ScriptedOrigin::respond(|request| match request.path() {
        "/missing" => response(404, "", ""),
        _ => response(200, "", "ok"),
    });
    let store = TempDir::new();
    let config = format!(
        "listen: 127.0.0.1:0\nadmin: {{ listen: 127.0.0.1:0 }}\nstore: {{ path: {} }}\n\
         egress: {{ allow_loopback: true, ports: [1-65535] }}\n",
        store.path().display()
    );
    let policy = "policy: 1\nname: l\noptions: { disposition: allow, robots: { obey: false }, max_depth: 3 }\n";
    let mut first = TestProxy::start(&config, policy);
    let get = |url: &str| RawClient::connect(first.proxy).get(url).status;
    assert_eq!(get(&origin.url("127.0.0.1", "/missing")), 404);
    assert_eq!(get(&format!("http://127.0.0.1:{}/", closed_port())), 502);
    let refused = "crawlgate_ledger_codes{code=\"612\"}";
    first.wait_for_metric(refused, 1.0);
    assert_eq!(first.metric("crawlgate_ledger_codes{code=\"760\"}"), 0.0);
    first.wait_for_metric(
        "crawlgate_ledger_events_total{kind=\"permanent_error\"}",
        1.0,
    );
    // Both requests were starts.
    assert_eq!(first.metric("crawlgate_depth_unknown_total"), 0.0);
    let linked = format!(
        "GET {} HTTP/1.1\r\nHost: h\r\nReferer: http://elsewhere.test/\r\n\r\n",
        origin.url("127.0.0.1", "/linked")
    );
    assert_eq!(RawClient::connect(first.proxy).request(linked).status, 200);
    first.wait_for_metric("crawlgate_depth_unknown_total", 1.0);
    first.signal("TERM");
    assert_eq!(first.wait_for_exit(), Some(0));
    let next = TestProxy::start(&config, policy);
    assert_eq!(next.metric(refused), 1.0);
    let stats = shown(&next, "ledger");
    assert_eq!(stats["by_code"], json!({ "612": 1 }), "{stats}");
    assert_eq!(
        (&stats["events"]["permanent_error"], &stats["last_event"]),
        (&json!(1), &json!(1)),
        "{stats}"
    );
    assert_eq!(
        (
            &stats["events_counted_from"],
            &stats["events_since_start"]["permanent_error"]
        ),
        (&json!(1), &json!(0)),
        "{stats}"
    );
}

//! Crawlers, the real binary and an origin, over sockets.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support::client::{RawClient, Response};
use crate::support::origin::{OK, ScriptedOrigin};
use crate::support::proxy::TestProxy;

const MS: Duration = Duration::from_millis(1);

pub(super) fn gate(politeness: &str) -> TestProxy {
    gate_with(politeness, "")
}

/// `more` follows the group `egress`.
pub(super) fn gate_with(politeness: &str, more: &str) -> TestProxy {
    let config = format!(
        "listen: 127.0.0.1:0\nadmin: {{ listen: 127.0.0.1:0 }}\n\
         policy: {{ path: policy.yaml, watch: false }}\nlogs: {{ decisions: none }}\n\
         limits: {{ per_client: 5000, queue_per_host: 2000 }}\negress:\n  allow_loopback: true\n  \
         ports: [1-65535]\n  hosts: {{ a.test: 127.0.0.1, b.test: 127.0.0.1 }}\n{more}"
    );
    let policy = format!(
        "policy: 1\nname: p\noptions: {{ disposition: allow, robots: {{ obey: false }}, politeness: {politeness} }}\n"
    );
    TestProxy::start(&config, &policy)
}

impl RawClient {
    fn ask(&mut self, host: &str, origin: &ScriptedOrigin, path: &str) {
        self.send_get(&origin.url(host, path), "");
    }

    fn get_page(&mut self, host: &str, origin: &ScriptedOrigin, path: &str) -> Response {
        self.get(&origin.url(host, path))
    }
}

#[test]
fn three_crawlers_at_once_are_one_to_the_origin() {
    let gate = gate("{ delay: 200ms, jitter: none }");
    let origins = [(); 2].map(|()| ScriptedOrigin::ok());
    std::thread::scope(|scope| {
        for crawler in 0..3 {
            let origins = &origins;
            let proxy = gate.proxy;
            scope.spawn(move || {
                let mut client = RawClient::connect(proxy);
                for page in 0..4 {
                    for (host, origin) in ["a.test", "b.test"].into_iter().zip(origins) {
                        let answer = client.get_page(host, origin, &format!("/{crawler}/{page}"));
                        assert_eq!(answer.status, 200);
                        let held = answer
                            .field("crawl-held")
                            .map(|held| held.parse::<f64>().unwrap());
                        assert!(held.is_none_or(|held| (0.0..5.0).contains(&held)));
                    }
                }
            });
        }
    });
    for origin in &origins {
        assert_eq!(origin.requests().len(), 12);
        // The origin reads a request some time after its arrival, and the time varies on a busy machine; the acceptance run
        // uses the kernel's timestamps and requires 195 ms.
        let gap = origin.shortest_gap();
        assert!(gap >= 120 * MS, "{gap:?}");
    }
}

#[test]
fn concurrency_counts_to_the_last_byte() {
    static CURRENT: AtomicUsize = AtomicUsize::new(0);
    static HIGHEST: AtomicUsize = AtomicUsize::new(0);
    let gate = gate("{ delay: 0s, concurrency: 3 }");
    let origin = ScriptedOrigin::respond(|_| {
        HIGHEST.fetch_max(CURRENT.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        std::thread::sleep(20 * MS);
        CURRENT.fetch_sub(1, Ordering::SeqCst);
        OK
    });
    std::thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                let mut client = RawClient::connect(gate.proxy);
                (0..5)
                    .for_each(|_| assert_eq!(client.get_page("a.test", &origin, "/").status, 200));
            });
        }
    });
    assert_eq!(origin.requests().len(), 60);
    assert_eq!(HIGHEST.load(Ordering::SeqCst), 3);
}

#[test]
fn a_request_held_too_long_gets_a_retry_after() {
    let gate = gate("{ delay: 30s, jitter: none, max_hold: 100ms }");
    let origin = ScriptedOrigin::ok();
    let mut client = RawClient::connect(gate.proxy);
    assert_eq!(client.get_page("a.test", &origin, "/1").status, 200);
    let answer = client.get_page("a.test", &origin, "/2");
    assert_eq!(
        (answer.status, answer.field("crawl-reason")),
        (503, Some("rate_limited"))
    );
    assert_eq!(
        (answer.field("retry-after"), answer.field("crawl-retry")),
        (Some("30"), Some("after"))
    );
    assert_eq!(answer.field("crawl-held"), None);
    client.send_get(&origin.url("a.test", "/3"), "User-Agent: heritrix/3.4\r\n");
    assert!(
        client.try_read_response().is_none(),
        "heritrix takes a closed connection for later"
    );
    assert_eq!(origin.paths(), ["/1"]);
    assert_eq!(gate.metric("crawlgate_hold_seconds_count"), 2.0);
}

#[test]
fn retry_after_applies_to_all_crawlers() {
    let gate = gate("{ delay: 0s, max_hold: 100ms }");
    let origin = ScriptedOrigin::respond(|request| match request.path() {
        "/busy" => "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 2\r\nContent-Length: 0\r\n\r\n",
        _ => OK,
    });
    let mut client = RawClient::connect(gate.proxy);
    let answer = client.get_page("a.test", &origin, "/busy");
    assert_eq!((answer.status, answer.field("crawl-reason")), (429, None));
    let mut other = RawClient::connect(gate.proxy);
    let answer = other.get_page("a.test", &origin, "/other");
    assert_eq!(
        (answer.status, answer.field("crawl-reason")),
        (503, Some("host_backoff"))
    );
    assert!(
        matches!(answer.field("retry-after"), Some("1" | "2")),
        "{:?}",
        answer.field("retry-after")
    );
    assert_eq!(other.get_page("b.test", &origin, "/b").status, 200);
    std::thread::sleep(2_000 * MS);
    assert_eq!(other.get_page("a.test", &origin, "/again").status, 200);
    assert_eq!(origin.paths(), ["/busy", "/b", "/again"]);
}

/// Also with bytes after the request: another one, or an unread body.
#[test]
fn a_departed_client_causes_no_fetch() {
    let gate = gate("{ delay: 400ms, jitter: none }");
    let origin = ScriptedOrigin::ok();
    assert_eq!(
        RawClient::connect(gate.proxy)
            .get_page("a.test", &origin, "/first")
            .status,
        200
    );
    let port = origin.port;
    for behind in [
        String::new(),
        format!("GET http://a.test:{port}/pipelined HTTP/1.1\r\nHost: a.test:{port}\r\n\r\n"),
    ] {
        let mut client = RawClient::connect(gate.proxy);
        client.ask("a.test", &origin, "/gone");
        client.send(&behind);
        gate.wait_for_metric("crawlgate_held_requests", 1.0);
        drop(client);
        gate.wait_for_metric("crawlgate_held_requests", 0.0);
    }
    let mut client = RawClient::connect(gate.proxy);
    client.send(format!(
        "POST http://a.test:{port}/gone HTTP/1.1\r\nHost: a.test:{port}\r\nContent-Length: 20009\r\n\r\n{}unread",
        "x".repeat(20_000)
    ));
    gate.wait_for_metric("crawlgate_held_requests", 1.0);
    drop(client);
    gate.wait_for_metric("crawlgate_held_requests", 0.0);
    assert_eq!(
        gate.metric("crawlgate_held_disconnects_total{crawler=\"anonymous\"}"),
        3.0
    );
    assert_eq!(
        RawClient::connect(gate.proxy)
            .get_page("a.test", &origin, "/last")
            .status,
        200
    );
    assert_eq!(origin.paths(), ["/first", "/last"]);
}

#[test]
fn held_clients_are_answered_at_shutdown() {
    let mut gate = gate("{ delay: 30s }");
    let origin = ScriptedOrigin::ok();
    let mut client = RawClient::connect(gate.proxy);
    assert_eq!(client.get_page("a.test", &origin, "/1").status, 200);
    client.ask("a.test", &origin, "/2");
    gate.wait_for_metric("crawlgate_held_requests", 1.0);
    let began = Instant::now();
    gate.signal("TERM");
    let answer = client.read_response();
    assert_eq!(
        (answer.status, answer.field("crawl-reason")),
        (503, Some("shutting_down"))
    );
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );
    assert!(client.try_read_response().is_none());
    assert_eq!(gate.wait_for_exit(), Some(0));
}

#[test]
fn a_reload_during_a_hold_evaluates_held_requests_again() {
    let gate = gate("{ delay: 700ms, jitter: none }");
    let origin = ScriptedOrigin::ok();
    let mut client = RawClient::connect(gate.proxy);
    assert_eq!(client.get_page("a.test", &origin, "/1").status, 200);
    client.ask("a.test", &origin, "/2");
    gate.wait_for_metric("crawlgate_held_requests", 1.0);
    let second = "policy: 1\nname: second\noptions: { disposition: allow, politeness: { delay: 700ms } }\n\
                  rules: [{ id: no, forbid: { path: /2 } }]\n";
    gate.write("policy.yaml", second);
    gate.signal("HUP");
    let answer = client.read_response();
    assert_eq!(
        (answer.status, answer.field("crawl-rule")),
        (451, Some("no"))
    );
    assert!(
        answer
            .field("crawl-policy")
            .is_some_and(|policy| policy.starts_with("second@"))
    );
    assert_eq!(origin.paths(), ["/1"]);
    assert_eq!(gate.metric("crawlgate_held_requests"), 0.0);
}

#[test]
fn tunnels_to_a_host_open_at_its_pace() {
    let origin = ScriptedOrigin::ok();
    let port = origin.port;
    let gate = gate_with(
        "{ delay: 300ms, jitter: none, concurrency: 1 }",
        &format!(
            "  connect_ports: [{port}]\n  tls_ports: [{port}]\ntimeouts: {{ connect_total: 500ms }}\n"
        ),
    );
    let connect = format!("CONNECT a.test:{port} HTTP/1.1\r\nHost: a.test:{port}\r\n\r\n");
    let began = Instant::now();
    let mut tunnels: Vec<RawClient> = (0..3).map(|_| RawClient::connect(gate.proxy)).collect();
    for tunnel in &mut tunnels {
        tunnel.send(&connect);
        std::thread::sleep(20 * MS);
    }
    let statuses: Vec<u16> = tunnels
        .iter_mut()
        .map(|tunnel| tunnel.read_response().status)
        .collect();
    assert_eq!(statuses, [200, 200, 503]);
    assert!(began.elapsed() >= 500 * MS);
}

/// A thousand concurrent connections are accepted, held and closed; half of them leave without a response.
#[test]
fn a_thousand_clients_wait_for_one_host_and_half_of_them_leave() {
    let gate = gate("{ delay: 10ms, jitter: none, max_hold: 55s }");
    let origin = ScriptedOrigin::ok();
    assert_eq!(
        RawClient::connect(gate.proxy)
            .get_page("a.test", &origin, "/first")
            .status,
        200
    );
    let before = gate.metric("process_resident_memory_bytes");
    let mut clients: Vec<RawClient> = (0..1_000).map(|_| RawClient::connect(gate.proxy)).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        let kind = if number % 2 == 0 { "stays" } else { "leaves" };
        // Those that leave come first, or they would be served before.
        client.ask("b.test", &origin, &format!("/{kind}/{number}"));
    }
    let began = Instant::now();
    while gate.metric("crawlgate_held_requests") < 900.0 {
        assert!(began.elapsed() < Duration::from_secs(5), "they are held");
        std::thread::sleep(5 * MS);
    }
    let mut place = 0;
    clients.retain(|_| {
        place += 1;
        place % 2 == 1
    });
    let vanished = Instant::now();
    for client in &mut clients {
        assert_eq!(client.read_response().status, 200);
    }
    drop(clients);
    gate.wait_for_metric("crawlgate_held_requests", 0.0);
    gate.wait_for_metric("crawlgate_leases", 0.0);
    gate.wait_for_metric("crawlgate_inflight_requests", 0.0);
    gate.wait_for_metric("crawlgate_connections", 0.0);
    let left = gate.metric("crawlgate_held_disconnects_total{crawler=\"anonymous\"}");
    let seen = origin.requests();
    let late = seen
        .iter()
        .filter(|seen| seen.path().starts_with("/leaves") && seen.at > vanished + 20 * MS);
    assert_eq!(late.count(), 0, "fetched for nobody");
    let gone = Instant::now();
    let mut grown = f64::MAX;
    while grown >= 5.0 && gone.elapsed() < Duration::from_secs(30) {
        std::thread::sleep(200 * MS);
        grown = (gate.metric("process_resident_memory_bytes") - before) / (1 << 20) as f64;
    }
    println!(
        "{left} left while held, {} fetched, grown by {grown:.1} MiB",
        seen.len()
    );
    assert!(grown < 5.0, "grown by {grown} MiB");
    assert!(left > 400.0, "{left} left while held");
}

//! Failing origins, over sockets: when they are left alone, and the immediate responses in their place.

use std::time::{Duration, Instant};

use super::sockets::{gate, gate_with};
use crate::support::client::{RawClient, Response};
use crate::support::origin::{OK, ScriptedConnection, ScriptedOrigin, closed_port};
use crate::support::wait::wait_until;

const BAD: &str = "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n";
const HASTY: &str = "{ delay: 0s, concurrency: 10, max_hold: 0s }";

/// Serves each path by its name.
fn serve(connection: &mut ScriptedConnection) {
    while let Some(head) = connection.read_head() {
        match head.split(['/', ' ']).nth(2) {
            Some("bad") => connection.send(BAD),
            Some("closes") => return,
            Some("breaks") => {
                connection.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhel");
                return;
            }
            Some("silent") => return connection.wait_for_close(),
            _ => connection.send(OK),
        }
    }
}

fn get(client: &mut RawClient, port: u16, path: &str) -> Option<Response> {
    client.send(asking(port, path));
    client.try_read_response()
}

fn asking(port: u16, path: &str) -> String {
    format!("GET http://a.test:{port}/{path} HTTP/1.1\r\nHost: a.test:{port}\r\n\r\n")
}

#[test]
fn a_host_that_fails_three_times_in_a_row_is_left_alone() {
    for (paths, rests) in [
        ("bad bad bad", true),
        ("closes bad closes", true),
        ("bad ok bad ok bad ok", false),
        ("bad bad ok bad bad", false),
        ("breaks breaks breaks", true),
        ("silent silent silent silent", false),
    ] {
        let gate = gate(HASTY);
        let origin = ScriptedOrigin::start(serve);
        for (number, path) in paths.split(' ').enumerate() {
            let mut client = RawClient::connect(gate.proxy);
            client.send(asking(origin.port, path));
            match path {
                // The client leaves: that has no meaning for the host.
                "silent" => wait_until("the condition holds", || origin.requests().len() > number),
                "breaks" => drop(client.read_rest()),
                _ => drop(client.read_until("\r\n\r\n")),
            }
        }
        wait_until("the condition holds", || {
            gate.metric("crawlgate_leases") == 0.0
        });
        let answer =
            get(&mut RawClient::connect(gate.proxy), origin.port, "ok").expect("an answer");
        let reason = answer.field("crawl-reason");
        assert_eq!(
            reason,
            rests.then_some("host_backoff"),
            "{paths}: {}",
            answer.status
        );
        if rests {
            let after: u64 = answer.field("retry-after").unwrap().parse().unwrap();
            assert!((1..=7).contains(&after), "{paths}: {after}");
        }
    }
}

#[test]
fn a_refusing_origin_is_not_waited_for() {
    // If it were held, it would be for far longer than this test may take.
    let gate = gate("{ delay: 10m, jitter: none, max_hold: 10m }");
    let port = closed_port();
    let origin = ScriptedOrigin::start(serve);
    let began = Instant::now();
    let mut client = RawClient::connect(gate.proxy);
    for number in 0..5 {
        let answer = get(&mut client, port, "page").expect("an answer");
        assert_eq!(
            (answer.status, answer.field("crawl-reason")),
            (502, Some("upstream_connect"))
        );
        assert_eq!(
            (answer.field("crawl-retry"), answer.field("crawl-code")),
            (Some("after"), Some("612"))
        );
        let status = answer.field("proxy-status").unwrap();
        assert!(status.contains("error=connection_refused"), "{status}");
        let after: u64 = answer.field("retry-after").unwrap().parse().unwrap();
        assert!((20..=30).contains(&after), "{number}: {after}");
    }
    assert!(began.elapsed() < Duration::from_secs(10));
    // One request was dialled; the others are counted at the stage where they ended.
    assert_eq!(
        gate.metric("crawlgate_upstream_errors_total{error=\"connection_refused\"}"),
        1.0
    );
    fn ended(gate: &crate::support::proxy::TestProxy, stage: &str) -> f64 {
        let labels = format!(
            "crawler=\"anonymous\",reason=\"upstream_connect\",stage=\"{stage}\",verdict=\"reject\""
        );
        gate.metric(&format!("crawlgate_decisions_total{{{labels}}}"))
    }
    assert_eq!(
        (ended(&gate, "upstream"), ended(&gate, "destination")),
        (1.0, 4.0)
    );
    // Another port of the host is separate; its turn comes after the first delay.
    client.send(format!(
        "GET http://a.test:{}/ok HTTP/1.1\r\nHost: a.test:{}\r\nCrawl-Max-Wait: 0\r\n\r\n",
        origin.port, origin.port
    ));
    assert_eq!(
        client.read_response().field("crawl-reason"),
        Some("rate_limited")
    );
}

#[test]
fn a_refusing_address_refuses_all_its_hosts() {
    let gate = gate(HASTY);
    let port = closed_port();
    let mut client = RawClient::connect(gate.proxy);
    for (host, errors) in [("a.test", 1.0), ("b.test", 1.0)] {
        client.send_get(&format!("http://{host}:{port}/"), "");
        let answer = client.read_response();
        assert_eq!(answer.status, 502, "{host}");
        assert_eq!(
            answer.field("crawl-reason"),
            Some("upstream_connect"),
            "{host}"
        );
        assert_eq!(
            gate.metric("crawlgate_upstream_errors_total{error=\"connection_refused\"}"),
            errors,
            "{host}"
        );
    }
}

#[test]
fn a_tunnel_to_a_refusing_origin_does_not_wait() {
    let port = closed_port();
    let ports = format!("  connect_ports: [{port}]\n  tls_ports: [{port}]\n");
    let gate = gate_with("{ delay: 10m, jitter: none }", &ports);
    for number in 0..3 {
        let mut client = RawClient::connect(gate.proxy);
        client.send(format!(
            "CONNECT a.test:{port} HTTP/1.1\r\nHost: a.test:{port}\r\n\r\n"
        ));
        let answer = client.read_response();
        let reported = (answer.status, answer.field("crawl-reason"));
        assert_eq!(reported, (502, Some("upstream_connect")), "{number}");
    }
    assert_eq!(
        gate.metric("crawlgate_upstream_errors_total{error=\"connection_refused\"}"),
        1.0
    );
}

//! Origins that fail, over sockets: when they are left alone, and what is answered at once in their place.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use super::sockets::{Answer, Client, gate, gate_with, metric};
use crate::upstream::scripted::{self, Origin, Visit};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const BAD: &str = "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n";
const HASTY: &str = "{ delay: 0s, concurrency: 10, max_hold: 0s }";

/// Serves each path as its name says.
fn serve(visit: &mut Visit) {
    while let Some(head) = visit.request() {
        match head.split(['/', ' ']).nth(2) {
            Some("bad") => visit.send(BAD),
            Some("closes") => return,
            Some("breaks") => {
                visit.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhel");
                return;
            }
            Some("silent") => return visit.wait_for_the_end(),
            _ => visit.send(OK),
        }
    }
}

fn get(client: &mut Client, port: u16, path: &str) -> Option<Answer> {
    client.send(&asking(port, path));
    client.answer()
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
        let (gate, origin) = (gate(HASTY), Origin::start(serve));
        for (number, path) in paths.split(' ').enumerate() {
            let mut client = scripted::Client::connect(gate.proxy);
            client.send(&asking(origin.port, path));
            match path {
                // It leaves: that says nothing of the host.
                "silent" => until(|| origin.requests().len() > number),
                "breaks" => drop(client.rest()),
                _ => drop(client.until("\r\n\r\n")),
            }
        }
        until(|| metric(&gate, "crawlgate_leases") == 0.0);
        let answer = get(&mut Client::to(gate.proxy), origin.port, "ok").expect("an answer");
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

fn until(holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "it does not come about"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A port at which nothing listens, and its guard: nobody else gets it meanwhile.
fn closed_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

#[test]
fn what_refuses_is_not_waited_for() {
    // Were it held, it would be for far longer than this test may take.
    let gate = gate("{ delay: 10m, jitter: none, max_hold: 10m }");
    let (port, origin) = (closed_port(), Origin::start(serve));
    let began = Instant::now();
    let mut client = Client::to(gate.proxy);
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
    // One was dialled; the others are told of where they ended.
    assert_eq!(
        metric(
            &gate,
            "crawlgate_upstream_errors_total{error=\"connection_refused\"}"
        ),
        1.0
    );
    let ended = |stage: &str| {
        let labels = format!(
            "crawler=\"anonymous\",reason=\"upstream_connect\",stage=\"{stage}\",verdict=\"reject\""
        );
        metric(&gate, &format!("crawlgate_decisions_total{{{labels}}}"))
    };
    assert_eq!((ended("upstream"), ended("destination")), (1.0, 4.0));
    // Another port of the host is another matter; it has its turn when the first one's delay is over.
    client.send(&format!(
        "GET http://a.test:{}/ok HTTP/1.1\r\nHost: a.test:{}\r\nCrawl-Max-Wait: 0\r\n\r\n",
        origin.port, origin.port
    ));
    assert_eq!(
        client.answer().unwrap().field("crawl-reason"),
        Some("rate_limited")
    );
}

#[test]
fn what_refuses_one_host_refuses_all_of_its_address() {
    let gate = gate(HASTY);
    let port = closed_port();
    let mut client = Client::to(gate.proxy);
    for (host, errors) in [("a.test", 1.0), ("b.test", 1.0)] {
        client.send(&format!(
            "GET http://{host}:{port}/ HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n"
        ));
        let answer = client.answer().expect("an answer");
        assert_eq!(
            (answer.status, answer.field("crawl-reason")),
            (502, Some("upstream_connect")),
            "{host}"
        );
        assert_eq!(
            metric(
                &gate,
                "crawlgate_upstream_errors_total{error=\"connection_refused\"}"
            ),
            errors,
            "{host}"
        );
    }
}

#[test]
fn a_tunnel_to_what_refuses_is_not_waited_for_either() {
    let port = closed_port();
    let ports = format!("  connect_ports: [{port}]\n  tls_ports: [{port}]\n");
    let gate = gate_with("{ delay: 10m, jitter: none }", &ports);
    for number in 0..3 {
        let mut client = Client::to(gate.proxy);
        client.send(&format!(
            "CONNECT a.test:{port} HTTP/1.1\r\nHost: a.test:{port}\r\n\r\n"
        ));
        let answer = client.answer().expect("an answer");
        let told = (answer.status, answer.field("crawl-reason"));
        assert_eq!(told, (502, Some("upstream_connect")), "{number}");
    }
    assert_eq!(
        metric(
            &gate,
            "crawlgate_upstream_errors_total{error=\"connection_refused\"}"
        ),
        1.0
    );
}

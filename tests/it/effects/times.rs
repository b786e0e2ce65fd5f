//! The option `timeouts`: a rule's own times, in place of the configuration's and for its URLs alone.

use std::net::{IpAddr, Ipv4Addr};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::support::gate::Gate;
use crate::upstream::scripted::{Client, End, LONG, Origin, Silent};

use super::{Bench, CONFIG, ask, policy};

const SHORT: Duration = Duration::from_millis(400);

#[test]
fn an_answer_is_awaited_as_long_as_its_rule_says() {
    let bench = Bench::with(
        &format!("{CONFIG}timeouts: {{ response_head: 150ms }}\n"),
        &policy(
            "",
            "  - { id: slow, when: { under: /slow }, set: { timeouts: { response_head: 20s } } }",
        ),
        |path| {
            if path.ends_with("late") {
                sleep(SHORT);
            }
            None
        },
    );
    // The connection of the one is used by the other, with the other's time.
    for (path, status) in [
        ("/slow/x", 200),
        ("/slow/late", 200),
        ("/late", 504),
        ("/x", 200),
        ("/slow/late", 200),
    ] {
        assert_eq!(bench.get(path).status(), status, "{path}");
    }
}

#[test]
fn a_body_may_take_as_long_as_its_rule_says() {
    for (what, timeouts, paths) in [
        (
            "short by a rule",
            "{ body_idle: 100ms }",
            [("/rule/x", "broken"), ("/x", "whole")],
        ),
        (
            "short in all",
            "{ request: 100ms }",
            [("/rule/x", "broken"), ("/x", "whole")],
        ),
    ] {
        let origin = Origin::start(|visit| {
            while visit.request().is_some() {
                visit.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello");
                sleep(SHORT);
                visit.send("world");
            }
        });
        let rules = format!(
            "  - {{ id: rule, when: {{ under: /rule }}, set: {{ timeouts: {timeouts} }} }}"
        );
        let gate = Gate::start(CONFIG, &policy("", &rules));
        for (path, expected) in paths {
            let answer = ask(
                gate.proxy,
                &format!("http://a.test:{}{path}", origin.port),
                "",
            );
            let found = if answer.0.ends_with("helloworld") {
                "whole"
            } else {
                "broken"
            };
            assert_eq!(found, expected, "{what}: {path}");
        }
    }
}

/// A rule on responses runs when the body has not begun.
#[test]
fn a_rule_on_responses_still_changes_the_times_of_their_bodies() {
    let origin = Origin::start(|visit| {
        visit.request();
        visit.send("HTTP/1.1 200 OK\r\nContent-Type: video/mp4\r\nContent-Length: 10\r\n\r\nhello");
        visit.wait_for_the_end();
    });
    let rules = "  - { id: films, when: { content_type: video/mp4 }, set: { timeouts: { body_idle: 100ms } } }";
    let gate = Gate::start(CONFIG, &policy("", rules));
    let began = Instant::now();
    let mut client = Client::connect(gate.proxy);
    client.send(&format!(
        "GET http://a.test:{0}/ HTTP/1.1\r\nHost: a.test:{0}\r\n\r\n",
        origin.port
    ));
    let (answer, end) = client.ending();
    assert!(
        answer.ends_with("hello") && began.elapsed() < LONG,
        "{answer}, {end:?}"
    );
    assert!(matches!(end, End::Closed | End::Reset));
}

#[test]
fn a_request_s_body_may_take_as_long_as_its_rule_says() {
    let rules = "  - { id: rule, when: { under: /rule }, set: { timeouts: { body_idle: 100ms } } }";
    let bench = Bench::new(&policy("", rules), |_| None);
    for (path, status) in [("/rule/x", "HTTP/1.1 408"), ("/x", "HTTP/1.1 200")] {
        let mut client = Client::connect(bench.gate.proxy);
        let host = format!("a.test:{}", bench.origin.port);
        client.send(&format!(
            "POST http://{host}{path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 10\r\nConnection: close\r\n\r\nhello"
        ));
        sleep(SHORT);
        let _ = std::io::Write::write_all(&mut client.0, b"world");
        let answer = client.rest();
        assert!(answer.starts_with(status), "{path}: {answer}");
    }
}

#[test]
fn connecting_may_take_as_long_as_its_rule_says() {
    let port = Origin::plain().port;
    let ip = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 7));
    let _silent = Silent::at(ip, port);
    let config = CONFIG.replace("b.test: 127.0.0.1", "b.test: 127.0.0.7")
        + "timeouts: { connect: 20s, connect_total: 20s }\n";
    for timeouts in ["{ connect: 100ms }", "{ connect_total: 100ms }"] {
        let rules = format!(
            "  - {{ id: rule, when: {{ host: b.test }}, set: {{ timeouts: {timeouts} }} }}"
        );
        let gate = Gate::start(&config, &policy("", &rules));
        let began = Instant::now();
        let answer = ask(gate.proxy, &format!("http://b.test:{port}/"), "");
        assert_eq!(
            (answer.status(), answer.value("crawl-reason")),
            (504, "upstream_connect"),
            "{timeouts}"
        );
        assert!(
            began.elapsed() < Duration::from_secs(10),
            "{timeouts}: {:?}",
            began.elapsed()
        );
        // A tunnel is connected the same way.
        let mut client = Client::connect(gate.proxy);
        client.send(&format!(
            "CONNECT b.test:{port} HTTP/1.1\r\nHost: b.test:{port}\r\n\r\n"
        ));
        let refused = client.rest();
        assert!(
            refused.starts_with("HTTP/1.1 50") || refused.starts_with("HTTP/1.1 403"),
            "{refused}"
        );
    }
}

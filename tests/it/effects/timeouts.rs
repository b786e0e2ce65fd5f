//! The option `timeouts`: the timeouts of a rule replace those of the configuration for its URLs.

use std::net::{IpAddr, Ipv4Addr};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::support::client::{ConnectionEnd, RawClient};
use crate::support::origin::{ScriptedOrigin, UnresponsiveListener};
use crate::support::proxy::TestProxy;
use crate::support::wait::TIMEOUT;

use crate::effects::Site;
use crate::support::client::get_with;
use crate::support::policy::allow_all;
use crate::support::proxy::CONFIG;

const SHORT: Duration = Duration::from_millis(400);

#[test]
fn a_rule_sets_the_timeout_of_the_response_head() {
    let site = Site::with_config(
        &format!("{CONFIG}timeouts: {{ response_head: 150ms }}\n"),
        &allow_all(
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
    // The same connection is used for both, each time with the timeout of the request.
    for (path, status) in [
        ("/slow/x", 200),
        ("/slow/late", 200),
        ("/late", 504),
        ("/x", 200),
        ("/slow/late", 200),
    ] {
        assert_eq!(site.get(path).status, status, "{path}");
    }
}

#[test]
fn a_rule_sets_the_timeouts_of_the_response_body() {
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
        let origin = ScriptedOrigin::start(|connection| {
            while connection.read_head().is_some() {
                connection.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello");
                sleep(SHORT);
                connection.send("world");
            }
        });
        let rules = format!(
            "  - {{ id: rule, when: {{ under: /rule }}, set: {{ timeouts: {timeouts} }} }}"
        );
        let gate = TestProxy::start(CONFIG, &allow_all("", &rules));
        for (path, expected) in paths {
            let answer = get_with(
                gate.proxy,
                &format!("http://a.test:{}{path}", origin.port),
                "",
            );
            let found = if answer.to_string().ends_with("helloworld") {
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
    let origin = ScriptedOrigin::start(|connection| {
        connection.read_head();
        connection
            .send("HTTP/1.1 200 OK\r\nContent-Type: video/mp4\r\nContent-Length: 10\r\n\r\nhello");
        connection.wait_for_close();
    });
    let rules = "  - { id: films, when: { content_type: video/mp4 }, set: { timeouts: { body_idle: 100ms } } }";
    let gate = TestProxy::start(CONFIG, &allow_all("", rules));
    let began = Instant::now();
    let mut client = RawClient::connect(gate.proxy);
    client.send_get(&origin.url("a.test", "/"), "");
    let (answer, end) = client.read_to_end();
    assert!(answer.ends_with("hello"), "{answer}, {end:?}");
    assert!(began.elapsed() < TIMEOUT, "{answer}, {end:?}");
    assert!(matches!(end, ConnectionEnd::Closed | ConnectionEnd::Reset));
}

#[test]
fn a_rule_sets_the_timeout_of_the_request_body() {
    let rules = "  - { id: rule, when: { under: /rule }, set: { timeouts: { body_idle: 100ms } } }";
    let site = Site::new(&allow_all("", rules), |_| None);
    for (path, status) in [("/rule/x", "HTTP/1.1 408"), ("/x", "HTTP/1.1 200")] {
        let mut client = RawClient::connect(site.gate.proxy);
        let host = format!("a.test:{}", site.origin.port);
        client.send(format!(
            "POST http://{host}{path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 10\r\nConnection: close\r\n\r\nhello"
        ));
        sleep(SHORT);
        let _ = std::io::Write::write_all(&mut client.socket, b"world");
        let answer = client.read_rest();
        assert!(answer.starts_with(status), "{path}: {answer}");
    }
}

#[test]
fn a_rule_sets_the_timeouts_of_connecting() {
    let port = ScriptedOrigin::ok().port;
    let ip = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 7));
    let _silent = UnresponsiveListener::bind(ip, port);
    let config = CONFIG.replace("b.test: 127.0.0.1", "b.test: 127.0.0.7")
        + "timeouts: { connect: 20s, connect_total: 20s }\n";
    for timeouts in ["{ connect: 100ms }", "{ connect_total: 100ms }"] {
        let rules = format!(
            "  - {{ id: rule, when: {{ host: b.test }}, set: {{ timeouts: {timeouts} }} }}"
        );
        let gate = TestProxy::start(&config, &allow_all("", &rules));
        let began = Instant::now();
        let answer = get_with(gate.proxy, &format!("http://b.test:{port}/"), "");
        assert_eq!(answer.status, 504, "{timeouts}");
        assert_eq!(
            answer.value("crawl-reason"),
            "upstream_connect",
            "{timeouts}"
        );
        assert!(
            began.elapsed() < Duration::from_secs(10),
            "{timeouts}: {:?}",
            began.elapsed()
        );
        // A tunnel connects with the same timeouts.
        let mut client = RawClient::connect(gate.proxy);
        client.send(format!(
            "CONNECT b.test:{port} HTTP/1.1\r\nHost: b.test:{port}\r\n\r\n"
        ));
        let refused = client.read_rest();
        assert!(
            refused.starts_with("HTTP/1.1 50") || refused.starts_with("HTTP/1.1 403"),
            "{refused}"
        );
    }
}

//! The reuse of connections to origins, and the handling of dead ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{scope, sleep};
use std::time::Duration;

use crate::support::proxy::TestProxy;

use super::{Refused, ask, check_refused, config, gate, get, status, with_rule};
use crate::support::origin::{OK, ScriptedConnection, ScriptedOrigin};
use crate::support::wait::wait_until;

const HOSTS: &str = "{ a.test: 127.0.0.1, b.test: 127.0.0.1 }";

#[test]
fn answers_give_their_connection_back_or_close_it() {
    // The response of the origin; `true` if another request may follow on the same connection.
    let no_body = "HTTP/1.1 204 No Content\r\n\r\n";
    for (method, answer, kept) in [
        ("GET", OK, true),
        ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", true),
        (
            "GET",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            true,
        ),
        (
            "GET",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n",
            true,
        ),
        ("GET", no_body, true),
        ("POST", no_body, true),
        ("GET", "HTTP/1.1 304 Not Modified\r\n\r\n", true),
        (
            "GET",
            "HTTP/1.1 304 Not Modified\r\nContent-Length: 5000\r\n\r\n",
            true,
        ),
        (
            "GET",
            "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno",
            true,
        ),
        (
            "HEAD",
            "HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n",
            true,
        ),
        (
            "HEAD",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            true,
        ),
        (
            "GET",
            "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
            true,
        ),
        (
            "GET",
            "HTTP/1.0 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok",
            true,
        ),
        (
            "GET",
            "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
            false,
        ),
        (
            "GET",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
            false,
        ),
        (
            "HEAD",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n",
            false,
        ),
        // The end of the body is given in two ways.
        (
            "GET",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            false,
        ),
        // The response is longer than its length.
        (
            "GET",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
            false,
        ),
        (
            "HEAD",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
            false,
        ),
        ("GET", "HTTP/1.1 304 Not Modified\r\n\r\nbody", false),
    ] {
        let origin = ScriptedOrigin::start(move |connection| {
            while connection.read_head().is_some() {
                connection.send(answer);
            }
        });
        let gate = gate(HOSTS, "");
        let case = format!("{method} {answer:?}");
        for turn in 1..=3 {
            let got = ask(gate.proxy, method, &origin.url("a.test", "/"), "");
            assert!((200..=404).contains(&status(&got)), "{case}: {got}");
            assert!(!got.contains("evil"), "{case}: {got}");
            if !kept {
                wait_until(&case, || origin.ended_connections() == turn);
            }
        }
        assert_eq!(origin.connections(), if kept { 1 } else { 3 }, "{case}");
        assert_eq!(origin.requests().len(), 3, "{case}");
    }
}

#[test]
fn a_connection_with_unasked_bytes_is_not_used_again() {
    let reported = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&reported);
    let origin = ScriptedOrigin::start(move |connection| {
        connection.read_head();
        connection.send(OK);
        // As a server does that closes an idle connection.
        sleep(Duration::from_millis(50));
        connection.send("HTTP/1.1 408 Request Timeout\r\nContent-Length: 4\r\n\r\nlate");
        counted.fetch_add(1, Ordering::SeqCst);
        connection.serve_ok();
    });
    let gate = gate(HOSTS, "");
    for turn in 1..=3 {
        let answer = get(gate.proxy, &origin.url("a.test", "/"));
        assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
        wait_until("the origin has said more", || {
            reported.load(Ordering::SeqCst) == turn
        });
    }
    let connections: Vec<usize> = origin
        .requests()
        .iter()
        .map(|request| request.connection)
        .collect();
    assert_eq!(connections, [0, 1, 2]);
}

#[test]
fn a_request_that_meets_surplus_bytes_is_repeated_once() {
    let origin = ScriptedOrigin::start(|connection| {
        connection.read_head();
        connection.send(OK);
        if connection.number == 0 {
            // The surplus of the first response arrives after the second request.
            connection.read_head();
            connection.send(format!("surplus\r\n\r\n{OK}"));
        }
        connection.serve_ok();
    });
    let gate = gate(HOSTS, "");
    for _ in 0..2 {
        let answer = get(gate.proxy, &origin.url("a.test", "/"));
        assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
        // A connection that was in use a moment ago is used without the means to repeat.
        sleep(Duration::from_millis(600));
    }
    let connections: Vec<usize> = origin.requests().iter().map(|r| r.connection).collect();
    assert_eq!(connections, [0, 0, 1]);
}

#[test]
fn an_origin_that_closes_in_between_is_no_error() {
    let origin = ScriptedOrigin::start(|connection| {
        connection.read_head();
        connection.send(OK);
    });
    let gate = gate(HOSTS, "");
    for (turn, method) in ["GET", "POST", "HEAD", "GET", "POST"]
        .into_iter()
        .enumerate()
    {
        let body = if method == "POST" { "body" } else { "" };
        let answer = ask(gate.proxy, method, &origin.url("a.test", "/"), body);
        assert_eq!(status(&answer), 200, "{method}: {answer}");
        wait_until("the origin has closed", || {
            origin.ended_connections() == turn + 1
        });
    }
    assert_eq!(origin.requests().len(), 5);
}

/// Answers the first request of its first connection, and closes at the second.
fn dies_when_used(later: fn(&mut ScriptedConnection)) -> ScriptedOrigin {
    ScriptedOrigin::start(move |connection| {
        if connection.number > 0 {
            return later(connection);
        }
        connection.read_head();
        connection.send(OK);
        connection.read_head();
    })
}

#[test]
fn only_idempotent_requests_are_retried() {
    let closed = Refused {
        status: 502,
        reason: "upstream_protocol",
        error: "connection_terminated",
        code: Some(700),
    };
    let answers: fn(&mut ScriptedConnection) = |connection| connection.serve_ok();
    let dies: fn(&mut ScriptedConnection) = |connection| {
        connection.read_head();
    };
    // The method, the body, the origin, the number of requests that it gets, and the expected response.
    let cases = [
        ("GET", "", answers, 2, Ok(200)),
        ("HEAD", "", answers, 2, Ok(200)),
        ("OPTIONS", "", answers, 2, Ok(200)),
        ("DELETE", "", answers, 2, Ok(200)),
        ("GET", "", dies, 2, Err(closed)),
        ("POST", "", answers, 1, Err(closed)),
        ("PATCH", "", answers, 1, Err(closed)),
        ("POST", "body", answers, 1, Err(closed)),
        ("PUT", "body", answers, 1, Err(closed)),
        ("GET", "body", answers, 1, Err(closed)),
    ];
    let gate = gate(HOSTS, "");
    let origins = cases.map(|(.., later, _, _)| dies_when_used(later));
    for origin in &origins {
        assert_eq!(
            status(&get(gate.proxy, &origin.url("a.test", "/warm"))),
            200
        );
    }
    // A connection that was in use a moment ago is reused without a check.
    sleep(Duration::from_millis(600));
    for ((method, body, _, sent, want), origin) in cases.into_iter().zip(&origins) {
        let case = format!("{method} {body:?}, {sent} times");
        let answer = ask(gate.proxy, method, &origin.url("a.test", "/again"), body);
        match want {
            Ok(want) => assert_eq!(status(&answer), want, "{case}: {answer}"),
            Err(want) if method == "HEAD" => assert_eq!(status(&answer), want.status, "{case}"),
            Err(want) => check_refused(&answer, want, &case),
        }
        let got = origin
            .requests()
            .iter()
            .filter(|request| request.line().contains("/again"))
            .count();
        assert_eq!(got, sent, "{case}: {:?}", origin.requests());
    }
}

#[test]
fn idle_connections_are_limited() {
    // limits.idle_pool, limits.idle_per_host, timeouts.idle; connections to a.test and to b.test; the number that stays.
    let cases = [
        ("idle_per_host: 1", "idle: 60s", [3, 0], 1),
        ("idle_per_host: 2", "idle: 60s", [3, 3], 4),
        ("idle_per_host: 0", "idle: 60s", [2, 1], 0),
        ("idle_pool: 1", "idle: 60s", [1, 1], 1),
        ("idle_pool: 0", "idle: 60s", [2, 0], 0),
        ("idle_per_host: 8", "idle: 100ms", [2, 2], 0),
    ];
    // Excess connections are closed by the clock: all cases wait for it together.
    scope(|scope| {
        for (limits, timeouts, connections, stay) in cases {
            scope.spawn(move || check_kept(limits, timeouts, connections, stay));
        }
    });
}

fn check_kept(limits: &str, timeouts: &str, connections: [usize; 2], stay: usize) {
    let case = format!("{limits} {timeouts}");
    let all: usize = connections.iter().sum();
    let arrived = AtomicUsize::new(0);
    // No request is answered before all have arrived, so that each needs its own connection.
    let origin = ScriptedOrigin::start(move |connection| {
        while connection.read_head().is_some() {
            arrived.fetch_add(1, Ordering::SeqCst);
            wait_until("all are here", || arrived.load(Ordering::SeqCst) >= all);
            connection.send(OK);
        }
    });
    let gate = gate(
        HOSTS,
        &format!("limits: {{ {limits} }}\ntimeouts: {{ {timeouts} }}"),
    );
    let urls = ["a.test", "b.test"].map(|host| origin.url(host, "/"));
    scope(|scope| {
        for url in urls
            .iter()
            .zip(connections)
            .flat_map(|(url, count)| vec![url; count])
        {
            scope.spawn(|| assert_eq!(status(&get(gate.proxy, url)), 200));
        }
    });
    wait_until(&case, || origin.ended_connections() == all - stay);
    sleep(Duration::from_millis(100));
    assert_eq!(origin.connections(), all, "{case}");
    assert_eq!(origin.ended_connections(), all - stay, "{case}");
}

#[test]
fn a_connection_to_an_address_that_is_no_longer_allowed_is_not_used() {
    let first = ScriptedOrigin::ok();
    let second = ScriptedOrigin::bind(([127, 0, 0, 2], first.port).into(), |connection| {
        connection.serve_ok()
    })
    .unwrap();
    let gate = gate("{ a.test: [127.0.0.1, 127.0.0.2] }", "");
    let url = first.url("a.test", "/");
    let get = || assert_eq!(status(&get(gate.proxy, &url)), 200);
    get();
    get();
    assert_eq!(first.connections(), 1);
    assert_eq!(first.requests().len(), 2);
    assert_eq!(second.connections(), 0);
    gate.write("policy.yaml", &with_rule("address: 127.0.0.1/32"));
    gate.signal("HUP");
    wait_until("the new policy is in force", || {
        get();
        second.connections() == 1
    });
    let before = first.requests().len();
    get();
    assert_eq!((first.requests().len(), second.connections()), (before, 1));
}

#[test]
fn connections_are_pooled_by_authority() {
    let origin = ScriptedOrigin::ok();
    let gate = gate(HOSTS, "");
    for host in [
        "a.test",
        "b.test",
        "a.test",
        "A.TEST.",
        "127.0.0.1",
        "b.test",
    ] {
        assert_eq!(
            status(&get(gate.proxy, &origin.url(host, "/"))),
            200,
            "{host}"
        );
    }
    let connections: Vec<usize> = origin
        .requests()
        .iter()
        .map(|request| request.connection)
        .collect();
    assert_eq!(connections, [0, 1, 0, 0, 2, 1]);
}

#[test]
fn an_unfinished_body_closes_its_connection() {
    let origin = ScriptedOrigin::start(|connection| {
        while connection.read_head().is_some() {
            connection.send(
                "HTTP/1.1 200 OK\r\nContent-Type: text/x-refused\r\nContent-Length: 4\r\n\r\nbo",
            );
        }
    });
    let gate = TestProxy::start(
        &config(&format!("  allow_loopback: true\n  hosts: {HOSTS}"), ""),
        &with_rule("content_type: text/x-refused"),
    );
    for turn in 1..=2 {
        let answer = get(gate.proxy, &origin.url("a.test", "/"));
        assert!(answer.contains("crawl-rule: only\r\n"), "{answer}");
        wait_until("the origin's connection ends", || {
            origin.ended_connections() == turn
        });
    }
    assert_eq!(origin.connections(), 2);
}

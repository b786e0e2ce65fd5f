//! Origins that always have something to say, and clients that do: no time-out may depend on their
//! silence, and no other request may wait for them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use super::times::check_broken;
use super::{Refused, check_refused, gate, get, status};
use crate::support::client::RawClient;
use crate::support::origin::{OK, ScriptedOrigin};
use crate::support::wait::wait_until;

/// Each endless origin has a name of its own, since a host that fails is left alone for a while.
const HOSTS: &str = "{ healthy.test: 127.0.0.1, e0.test: 127.0.0.1, e1.test: 127.0.0.1, \
                     e2.test: 127.0.0.1, e3.test: 127.0.0.1 }";

/// The time that other tests may take from this one, in an unoptimized build. `tests/hostile` has the
/// exact bounds.
const BUSY: Duration = Duration::from_secs(1);

/// The longest time that a healthy request may take meanwhile, on a busy machine.
const HEALTHY: Duration = Duration::from_millis(1_500);

/// Each test keeps the processor busy: they run one after the other.
static ALONE: Mutex<()> = Mutex::new(());

/// Sends bytes over and over until the other side closes.
fn flood(mut socket: &TcpStream, bytes: &[u8]) {
    let many = bytes.repeat(1 + (64 << 10) / bytes.len());
    while socket.write_all(&many).is_ok() {}
}

/// An origin that answers with this beginning, and then with endless repetitions.
fn endless(begun: &'static str, repeated: &'static str) -> ScriptedOrigin {
    ScriptedOrigin::start(move |connection| {
        connection.read_head();
        connection.send(begun);
        flood(&connection.socket, repeated.as_bytes());
    })
}

/// Runs a function for four hosts at once, with healthy requests to another host meanwhile; returns
/// the time of the slowest of these.
fn slowest_meanwhile(proxy: SocketAddr, run: impl Fn(&str) + Sync) -> Duration {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let healthy = ScriptedOrigin::ok();
    let url = healthy.url("healthy.test", "/");
    let run = &run;
    scope(|scope| {
        let floods: Vec<_> = ["e0.test", "e1.test", "e2.test", "e3.test"]
            .map(|host| scope.spawn(move || run(host)))
            .into();
        let mut slowest = Duration::ZERO;
        while floods.iter().any(|flood| !flood.is_finished()) {
            let began = Instant::now();
            assert_eq!(status(&get(proxy, &url)), 200);
            slowest = slowest.max(began.elapsed());
            sleep(Duration::from_millis(10));
        }
        slowest
    })
}

#[test]
fn interim_responses_are_limited() {
    let many = Refused {
        status: 502,
        reason: "upstream_protocol",
        error: "http_protocol_error",
        code: Some(720),
    };
    for interim in [
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\n",
    ] {
        let gate = gate(HOSTS, "timeouts: { response_head: 2s, request: 4s }");
        let origin = endless("", interim);
        let slowest = slowest_meanwhile(gate.proxy, |host| {
            let url = origin.url(host, "/");
            let began = Instant::now();
            check_refused(&get(gate.proxy, &url), many, interim);
            assert!(began.elapsed() < HEALTHY, "{:?}", began.elapsed());
        });
        assert!(slowest < HEALTHY, "{interim}: {slowest:?}");
    }
}

#[test]
fn as_many_interim_responses_as_allowed_pass() {
    let gate = gate(HOSTS, "");
    let interim = "HTTP/1.1 103 Early Hints\r\n\r\n";
    let origin = ScriptedOrigin::respond(move |request| {
        let count = if request.path() == "/more" { 33 } else { 32 };
        format!("{}{OK}", interim.repeat(count))
    });
    for _ in 0..3 {
        let answer = get(gate.proxy, &origin.url("e0.test", "/"));
        assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
    }
    assert_eq!(origin.connections(), 1);
    let answer = get(gate.proxy, &origin.url("e0.test", "/more"));
    assert_eq!(status(&answer), 502, "{answer}");
}

/// The bodies of endless responses.
const ENDLESS: [(&str, &str, &str); 4] = [
    (
        "chunks of one byte",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "1\r\na\r\n",
    ),
    (
        "large chunks",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "20\r\n0123456789abcdef0123456789abcdef\r\n",
    ),
    ("no length", "HTTP/1.1 200 OK\r\n\r\n", "abcdefghijklmnop"),
    (
        "a length",
        "HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n",
        "abcdefghijklmnop",
    ),
];

#[test]
fn a_body_without_end_is_cut_off_in_time() {
    const REQUEST: Duration = Duration::from_secs(3);
    for (case, begun, repeated) in ENDLESS {
        let times = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&times);
        // The time is taken at the origin: the client has still to read what is on its way.
        let origin = ScriptedOrigin::start(move |connection| {
            connection.read_head();
            let began = Instant::now();
            connection.send(begun);
            flood(&connection.socket, repeated.as_bytes());
            record.lock().unwrap().push(began.elapsed());
        });
        let gate = gate(HOSTS, "timeouts: { request: 3s, body_idle: 60s }");
        let slowest = slowest_meanwhile(gate.proxy, |host| {
            let url = origin.url(host, "/");
            let began = Instant::now();
            let mut client = RawClient::connect(gate.proxy);
            client.send_get(&url, "");
            let head = client.read_head();
            assert!(head.starts_with("HTTP/1.1 200"), "{case}: {head}");
            // Reads as fast as it can; the end is a reset.
            let mut buffer = vec![0; 1 << 16];
            while let Ok(1..) = client.socket.read(&mut buffer) {
                assert!(began.elapsed() < 3 * REQUEST, "{case}: not cut off");
            }
        });
        assert!(slowest < HEALTHY, "{case}: {slowest:?}");
        wait_until("the origins are let go", || origin.ended_connections() == 4);
        for time in times.lock().unwrap().iter() {
            assert!(
                REQUEST * 9 / 10 <= *time && *time < REQUEST * 11 / 10 + BUSY,
                "{case}: {time:?}"
            );
        }
    }
}

#[test]
fn framing_without_data_is_an_error() {
    let origin = endless(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        "0",
    );
    let gate = gate(HOSTS, "timeouts: { request: 60s, body_idle: 60s }");
    let slowest = slowest_meanwhile(gate.proxy, |host| {
        let began = Instant::now();
        let mut client = RawClient::connect(gate.proxy);
        client.send_get(&origin.url(host, "/"), "");
        check_broken(client.read_to_end(), "the digits of a chunk size");
        assert!(began.elapsed() < HEALTHY, "{:?}", began.elapsed());
    });
    assert!(slowest < HEALTHY, "{slowest:?}");
    wait_until("the origins are let go", || origin.ended_connections() == 4);
}

#[test]
fn a_head_without_end_is_cut_off_in_time() {
    const HEAD: Duration = Duration::from_millis(1_500);
    let timeout = Refused {
        status: 504,
        reason: "upstream_timeout",
        error: "http_response_timeout",
        code: Some(613),
    };
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let gate = gate(HOSTS, "timeouts: { response_head: 1500ms }");
    let origin = ScriptedOrigin::start(|connection| {
        connection.read_head();
        connection.send("HTTP/1.1 200 OK\r\nX-Long: ");
        while connection.socket.write_all(b"a").is_ok() {
            sleep(Duration::from_millis(2));
        }
    });
    let began = Instant::now();
    let answer = get(gate.proxy, &origin.url("e0.test", "/"));
    let elapsed = began.elapsed();
    check_refused(&answer, timeout, "a dripping head");
    assert!(
        HEAD <= elapsed && elapsed < HEAD * 11 / 10 + Duration::from_millis(200),
        "{elapsed:?}"
    );
}

#[test]
fn an_upload_without_end_is_cut_off_in_time() {
    const REQUEST: Duration = Duration::from_secs(3);
    let late = Refused {
        status: 408,
        reason: "request_timeout",
        error: "http_request_error",
        code: None,
    };
    let gate = gate(
        HOSTS,
        "timeouts: { request: 3s, body_idle: 60s }\nlimits: { request_body: 1GiB }",
    );
    let origin = ScriptedOrigin::start(|connection| {
        connection.read_head();
        connection.wait_for_close();
    });
    for (case, begun, repeated) in [
        ("chunks of one byte", "", "1\r\na\r\n"),
        (
            "the digits of a chunk size",
            "10000\r\n",
            "0000000000000000",
        ),
    ] {
        // The second one begins with a chunk that is longer than what is read ahead.
        let filler = if begun.is_empty() {
            String::new()
        } else {
            format!("{}\r\n", "x".repeat(0x10000))
        };
        let slowest = slowest_meanwhile(gate.proxy, |host| {
            let began = Instant::now();
            let url = origin.url(host, "/");
            let port = origin.port;
            let mut client = RawClient::connect(gate.proxy);
            client.send(format!(
                "POST {url} HTTP/1.1\r\nHost: {host}:{port}\r\nTransfer-Encoding: chunked\r\n\r\n{begun}{filler}"
            ));
            let sender = client.socket.try_clone().unwrap();
            scope(|scope| {
                scope.spawn(|| flood(&sender, repeated.as_bytes()));
                let head = client.read_head();
                check_refused(&head, late, case);
                let _ = client.socket.shutdown(std::net::Shutdown::Both);
            });
            let elapsed = began.elapsed();
            assert!(elapsed < REQUEST * 11 / 10 + BUSY, "{case}: {elapsed:?}");
        });
        assert!(slowest < HEALTHY, "{case}: {slowest:?}");
    }
}

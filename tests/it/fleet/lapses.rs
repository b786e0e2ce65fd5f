//! The end of a lease: what is under way at origins is broken off, unless the host was given away in order.

use std::io::Read as _;
use std::thread;
use std::time::Duration;

use crate::origin_tls::certs::Authority;
use crate::support::client::{ConnectionEnd, RawClient};
use crate::support::http2_origin::{Http2Origin, Http2Reply};
use crate::support::origin::{Reply, ScriptedOrigin, response};
use crate::support::wait::wait_until;
use crate::tunnel::hello;

use super::bench::{BenchSettings, FleetBench, POLICY};

/// Long enough for a mistake to show.
const MOMENT: Duration = Duration::from_millis(200);

/// An origin that stops in the middle of a body at `/part`, and before its answer to the first request for anything else.
fn stalling_origin() -> ScriptedOrigin {
    ScriptedOrigin::respond(|request| {
        if request.path() == "/part" {
            Reply::Hang(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart".to_vec())
        } else if request.number == 0 {
            Reply::Hang(vec![])
        } else {
            Reply::Bytes(response(200, "", "again"))
        }
    })
}

#[test]
fn a_response_is_broken_off() {
    let fleet = FleetBench::start(2, POLICY);
    let origin = stalling_origin();
    fleet.set_owner("a.test", 0, 1);
    fleet.set_owner("b.test", 0, 1);
    let mut clients = [0, 1].map(|at| {
        let mut client = fleet.client(at);
        client.send_get(&origin.url("a.test", "/part"), "");
        client.read_until("part");
        client
    });
    let mut given = fleet.client(0);
    given.send_get(&origin.url("b.test", "/part"), "");
    given.read_until("part");
    // Given away in order: the next owner knows of it.
    fleet.set_owner("b.test", 1, 2);
    end_and_break_off(&fleet, &origin, &mut clients);
    thread::sleep(MOMENT);
    assert_eq!(origin.ended_connections(), 2);
    for line in fleet.lines(0, 2) {
        assert_eq!(line["error"], "destination_unavailable", "{line}");
    }
}

#[test]
fn a_response_of_an_ownership_that_was_taken_again_goes_on() {
    let fleet = FleetBench::start(1, POLICY);
    let (origin, release) = {
        let (release, released) = std::sync::mpsc::channel::<()>();
        let released = std::sync::Mutex::new(released);
        let origin = ScriptedOrigin::start(move |connection| {
            connection.read_request();
            connection.send("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\npart");
            let _ = released.lock().unwrap().recv();
            connection.send("rest");
            connection.wait_for_close();
        });
        (origin, release)
    };
    fleet.set_owner("a.test", 0, 1);
    let mut client = fleet.client(0);
    client.send_get(&origin.url("a.test", "/"), "");
    client.read_until("part");
    fleet.end_lease(0);
    fleet.set_owner("a.test", 0, 2);
    fleet.break_off(0, "a.test");
    thread::sleep(MOMENT);
    drop(release);
    assert_eq!(client.read_bytes(4), b"rest");
}

#[test]
fn a_request_without_an_answer_is_sent_again_only_if_that_is_safe() {
    for at in [0, 1] {
        for (method, body) in [("GET", ""), ("POST", ""), ("PUT", "hello")] {
            let fleet = FleetBench::start(2, POLICY);
            let origin = stalling_origin();
            fleet.set_owner("a.test", 0, 1);
            let request = format!(
                "{method} {} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}",
                origin.url("a.test", "/"),
                body.len()
            );
            thread::scope(|scope| {
                let answer = scope.spawn(|| fleet.client(at).request(request));
                wait_until("it is sent", || origin.heads().len() == 1);
                fleet.end_lease(0);
                fleet.break_off(0, "a.test");
                wait_until("it is broken off", || origin.ended_connections() == 1);
                fleet.set_owner("a.test", 1, 2);
                let answer = answer.join().unwrap();
                if method == "GET" {
                    answer.check(200, &["again"]);
                } else {
                    answer.check(502, &["crawl-reason: owner_unavailable"]);
                }
            });
            let count = if method == "GET" { 2 } else { 1 };
            assert_eq!(origin.heads().len(), count, "{at} {method}");
        }
    }
}

#[test]
fn an_upload_is_broken_off() {
    let fleet = FleetBench::start(2, POLICY);
    // It never reads a whole body.
    let origin = ScriptedOrigin::start(|connection| {
        let _ = (&connection.socket).read(&mut [0; 1024]);
        connection.wait_for_close();
    });
    fleet.set_owner("a.test", 0, 1);
    let mut client = fleet.client(0);
    let url = origin.url("a.test", "/");
    client.send(format!(
        "POST {url} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"
    ));
    client.send(vec![b'x'; 100_000]);
    wait_until("it is sent", || origin.connections() == 1);
    thread::sleep(MOMENT);
    fleet.end_lease(0);
    fleet.break_off(0, "a.test");
    let answer = client.read_response();
    answer.check(
        502,
        &["crawl-reason: owner_unavailable", "connection: close"],
    );
    wait_until("its connection has ended", || {
        origin.ended_connections() == 1
    });
}

#[test]
fn a_stream_of_http2_is_broken_off() {
    let settings = BenchSettings {
        config: "tls: { intercept: false, verify_upstream: false }\n",
        ..BenchSettings::default()
    };
    let fleet = FleetBench::start_with(1, POLICY, &settings);
    let config = Authority::new().server(&["a.test"]);
    let origin = Http2Origin::start(&config, |request| {
        let mut reply = Http2Reply::text("part");
        match request.uri.path() {
            "/part" => {
                reply.body = vec![b"part".to_vec(), b"rest".to_vec()];
                reply.pause = Duration::from_secs(60);
            }
            _ => reply.delay = Duration::from_secs(60),
        }
        reply
    });
    fleet.set_owner("a.test", 0, 1);
    let url = |path: &str| format!("https://a.test:{}{path}", origin.port);
    let [mut part, mut head] = ["/part", "/head"].map(|path| {
        let mut client = fleet.client(0);
        client.send(format!(
            "POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
            url(path)
        ));
        client
    });
    wait_until("both are sent", || origin.log().requests.len() == 2);
    part.read_until("\r\n\r\n");
    fleet.end_lease(0);
    fleet.break_off(0, "a.test");
    head.read_response()
        .check(502, &["crawl-reason: owner_unavailable"]);
    let (text, end) = part.read_to_end();
    assert_eq!(end, ConnectionEnd::Reset, "{text}");
    wait_until("both streams are reset", || origin.log().resets == 2);
}

#[test]
fn a_tunnel_is_broken_off() {
    let fleet = FleetBench::start(2, super::tunnels::BLIND);
    let origin = ScriptedOrigin::echo();
    fleet.set_owner("a.test", 0, 1);
    let authority = format!("a.test:{}", origin.port);
    let mut clients = [0, 1].map(|at| {
        let mut client = RawClient::tunnel_to(fleet.nodes[at].proxy, &authority);
        let hello = hello::hello(Some("a.test"));
        client.send(&hello);
        assert_eq!(client.read_bytes(hello.len()), hello);
        client
    });
    end_and_break_off(&fleet, &origin, &mut clients);
    for line in fleet.lines(0, 2) {
        assert_eq!(line["error"], "lease_ended", "{line}");
    }
}

/// Ends the lease of the owner of `a.test`, which alone changes nothing, and breaks off what two clients have under way.
#[track_caller]
fn end_and_break_off(fleet: &FleetBench, origin: &ScriptedOrigin, clients: &mut [RawClient; 2]) {
    fleet.end_lease(0);
    thread::sleep(MOMENT);
    assert_eq!(origin.ended_connections(), 0);
    fleet.break_off(0, "a.test");
    for client in clients {
        assert_eq!(client.read_to_end(), (String::new(), ConnectionEnd::Reset));
    }
    wait_until("its connections have ended", || {
        origin.ended_connections() == 2
    });
}

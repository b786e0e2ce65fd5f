//! Open tunnels: bytes in both directions, and the causes of their end.

use std::thread;
use std::time::Duration;

use super::hello::hello;
use super::wire::{POLICY, echo_and_proxy};
use std::io::Write as _;

use crate::support::client::RawClient;
use crate::support::origin::ScriptedOrigin;
use crate::support::wait::wait_until;

#[test]
fn real_clients_connects_are_granted() {
    let (origin, gate) = echo_and_proxy("", POLICY);
    let port = origin.port;
    for head in [
        format!("CONNECT a.test:{port} HTTP/1.1\r\nHost: a.test:{port}\r\n\r\n"),
        format!("CONNECT a.test:{port} HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n"),
        format!("CONNECT a.test:{port} HTTP/1.1\r\nProxy-Connection: close\r\n\r\n"),
        format!(
            "CONNECT a.test:{port} HTTP/1.1\r\nHost: a.test:{port}\r\nContent-Length: 0\r\n\r\n"
        ),
        format!("CONNECT a.test:{port} HTTP/1.0\r\n\r\n"),
        format!("CONNECT A.TEST.:{port} HTTP/1.0\r\nHost: a.test\r\n\r\n"),
    ] {
        let mut client = RawClient::connect(gate.proxy);
        client.send(&head);
        let answer = client.read_head();
        assert!(
            answer.contains(" 200 Connection established\r\n"),
            "{head:?}: {answer}"
        );
        assert!(!answer.contains("content-length"), "{answer}");
        assert!(!answer.contains("transfer-encoding"), "{answer}");
        client.echo_client_hello("a.test");
    }
}

#[test]
fn bytes_that_come_with_the_connect_are_carried() {
    let (origin, gate) = echo_and_proxy("", POLICY);
    let mut client = RawClient::connect(gate.proxy);
    let connect = format!("CONNECT a.test:{} HTTP/1.1\r\nHost: x\r\n\r\n", origin.port);
    let early = [&hello(Some("a.test"))[..], b"early"].concat();
    client.send([connect.as_bytes(), &early].concat());
    client.read_head();
    assert!(client.read_bytes(early.len()) == early);
    client.send(" late");
    assert_eq!(client.read_bytes(5), b" late");
    assert_eq!(origin.received(), [&early[..], b" late"].concat());
}

#[test]
fn large_loads_arrive_whole_and_are_counted() {
    let (origin, gate) = echo_and_proxy("", POLICY);
    let mut client = RawClient::tls_tunnel(gate.proxy, origin.port);
    assert_eq!(gate.counter("crawlgate_tunnels"), 1);
    assert_eq!(gate.counter("crawlgate_inflight_requests"), 0);
    let load: Vec<u8> = (0..8_000_000_u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let mut writer = client.socket.try_clone().unwrap();
    let sent = load.clone();
    let writing = thread::spawn(move || std::io::Write::write_all(&mut writer, &sent).unwrap());
    let got = client.read_bytes(load.len());
    writing.join().unwrap();
    assert!(got == load);
    client.half_close();
    assert_eq!(client.read_rest(), "");
    let carried = (load.len() + hello(Some("a.test")).len()) as u64;
    wait_until("the tunnel is over", || {
        gate.counter("crawlgate_tunnels") == 0
    });
    for series in [
        "crawlgate_bytes_total{direction=\"received\",side=\"client\"}",
        "crawlgate_bytes_total{direction=\"sent\",side=\"client\"}",
        "crawlgate_bytes_total{direction=\"received\",side=\"origin\"}",
        "crawlgate_bytes_total{direction=\"sent\",side=\"origin\"}",
    ] {
        assert_eq!(gate.counter(series), carried, "{series}");
    }
    assert_eq!(
        gate.counter("crawlgate_tunnels_total{verdict=\"allow\"}"),
        1
    );
}

#[test]
fn a_half_closed_side_still_receives() {
    let origin = ScriptedOrigin::start(|connection| {
        use std::io::{Read, Write};
        let mut all = Vec::new();
        connection.socket.read_to_end(&mut all).unwrap();
        connection
            .socket
            .write_all(format!("got {}", all.len()).as_bytes())
            .unwrap();
    });
    let gate = super::wire::proxy_to(&origin, "", POLICY);
    let mut client = RawClient::tunnel(gate.proxy, origin.port);
    let hello = hello(Some("a.test"));
    client.send(&hello);
    client.send("12345");
    client.half_close();
    assert_eq!(client.read_rest(), format!("got {}", hello.len() + 5));
}

#[test]
fn a_client_that_leaves_takes_the_origins_connection_with_it() {
    let (origin, gate) = echo_and_proxy("", POLICY);
    let mut client = RawClient::tls_tunnel(gate.proxy, origin.port);
    client.send("x");
    client.read_bytes(1);
    client.reset();
    wait_until("the origin's connection ends", || {
        origin.ended_connections() == 1
    });
    wait_until("the tunnel is over", || {
        gate.counter("crawlgate_tunnels") == 0
    });
}

#[test]
fn silence_ends_a_tunnel() {
    let (origin, gate) = echo_and_proxy("timeouts: { tunnel_idle: 400ms }", POLICY);
    let mut client = RawClient::tls_tunnel(gate.proxy, origin.port);
    for _ in 0..6 {
        thread::sleep(Duration::from_millis(150));
        client.send("x");
        assert_eq!(client.read_bytes(1), b"x");
    }
    assert_eq!(client.read_rest(), "");
    wait_until("the origin's connection ends", || {
        origin.ended_connections() == 1
    });
}

#[test]
fn a_tunnel_has_a_time_limit() {
    let (origin, gate) = echo_and_proxy("timeouts: { tunnel: 300ms }", POLICY);
    let mut client = RawClient::tls_tunnel(gate.proxy, origin.port);
    client.send("x");
    assert_eq!(client.read_rest(), "x");
}

/// The limit also applies to a tunnel that is never idle.
#[test]
fn a_busy_tunnel_ends_in_its_time() {
    let origin = ScriptedOrigin::start(
        |connection| {
            while connection.socket.write_all(&[7; 1 << 18]).is_ok() {}
        },
    );
    let gate = super::wire::proxy_to(
        &origin,
        "runtime: { workers: 1 }\ntimeouts: { tunnel: 400ms }",
        POLICY,
    );
    let mut client = RawClient::tunnel(gate.proxy, origin.port);
    client.send(hello(Some("a.test")));
    let mut buffer = vec![0; 1 << 18];
    let began = std::time::Instant::now();
    while matches!(
        std::io::Read::read(&mut client.socket, &mut buffer),
        Ok(1..)
    ) {
        assert!(
            began.elapsed() < crate::support::wait::TIMEOUT,
            "it goes on"
        );
    }
    assert!(gate.counter("crawlgate_bytes_total{direction=\"sent\",side=\"client\"}") > 1 << 20);
}

/// A reload evaluates open tunnels again: those that it refuses are closed, also in the middle of a transfer; others
/// are not affected.
#[test]
fn a_reload_closes_only_the_tunnels_that_it_refuses() {
    let (origin, gate) = echo_and_proxy("", POLICY);
    let mut refused = RawClient::tls_tunnel(gate.proxy, origin.port);
    let mut kept = RawClient::tunnel_to(gate.proxy, &format!("b.test:{}", origin.port));
    kept.echo_client_hello("b.test");
    fn reload(gate: &crate::support::proxy::TestProxy, policy: &str) {
        let before = gate.stderr().matches(" is active").count();
        gate.write("policy.yaml", policy);
        gate.signal("HUP");
        wait_until("the policy is loaded", || {
            gate.stderr().matches(" is active").count() > before
        });
    }
    // The same rules under another revision refuse nothing that is open.
    reload(
        &gate,
        &format!("{POLICY}  - {{ id: other, forbid: {{ host: other.test }} }}\n"),
    );
    for client in [&mut refused, &mut kept] {
        client.send("still");
        assert_eq!(client.read_bytes(5), b"still");
    }
    assert_eq!(gate.counter("crawlgate_tunnels"), 2);
    reload(
        &gate,
        &format!("{POLICY}  - {{ id: no-more, forbid: {{ host: a.test }} }}\n"),
    );
    assert_eq!(refused.read_rest(), "");
    kept.send("still");
    assert_eq!(kept.read_bytes(5), b"still");
    wait_until("one is open", || gate.counter("crawlgate_tunnels") == 1);
    let decided =
        "crawlgate_rule_decided_total{mode=\"enforce\",rule=\"no-more\",verdict=\"reject\"}";
    assert_eq!(gate.counter(decided), 1);
    let path = gate.write("unused", "").with_file_name("log.json");
    let log = || std::fs::read_to_string(&path).unwrap();
    wait_until("it is logged", || log().contains("\"policy_changed\""));
    let log = log();
    let line = log
        .lines()
        .find(|line| line.contains("\"policy_changed\""))
        .unwrap();
    for part in [
        "\"rule\":\"no-more\"",
        "\"verdict\":\"reject\"",
        "\"sent_status\":200",
        "\"host\":\"a.test\"",
    ] {
        assert!(line.contains(part), "{part} in {line}");
    }
}

#[test]
fn a_host_has_so_many_tunnels_and_others_have_theirs() {
    let (origin, gate) = echo_and_proxy("limits: { tunnels_per_host: 2 }", POLICY);
    let first = RawClient::tls_tunnel(gate.proxy, origin.port);
    let _second = RawClient::tls_tunnel(gate.proxy, origin.port);
    let mut third = RawClient::connect(gate.proxy);
    third.send(format!(
        "CONNECT a.test:{} HTTP/1.1\r\nHost: x\r\n\r\n",
        origin.port
    ));
    let answer = third.read_rest();
    assert!(
        answer.starts_with("HTTP/1.1 503 Policy-503 reason=overloaded id="),
        "{answer}"
    );
    assert!(answer.contains("\r\nretry-after: "), "{answer}");
    let mut other = RawClient::tunnel_to(gate.proxy, &format!("b.test:{}", origin.port));
    other.echo_client_hello("b.test");
    drop(first);
    wait_until("a place is free", || gate.counter("crawlgate_tunnels") == 2);
    let _third = RawClient::tls_tunnel(gate.proxy, origin.port);
    wait_until("all are at the origin", || origin.connections() == 4);
}

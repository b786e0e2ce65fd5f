//! Open tunnels: bytes both ways, and what ends them.

use std::thread;
use std::time::Duration;

use super::hello::hello;
use super::wire::{Client, Origin, POLICY, metric, until};

#[test]
fn real_clients_connects_are_granted() {
    let (origin, gate) = Origin::behind_a_gate("", POLICY);
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
        let mut client = Client::connect(gate.proxy);
        client.send(&head);
        let answer = client.head();
        assert!(
            answer.contains(" 200 Connection established\r\n"),
            "{head:?}: {answer}"
        );
        assert!(
            !answer.contains("content-length") && !answer.contains("transfer-encoding"),
            "{answer}"
        );
        client.greet("a.test");
    }
}

#[test]
fn bytes_that_come_with_the_connect_are_carried() {
    let (origin, gate) = Origin::behind_a_gate("", POLICY);
    let mut client = Client::connect(gate.proxy);
    let connect = format!("CONNECT a.test:{} HTTP/1.1\r\nHost: x\r\n\r\n", origin.port);
    let early = [&hello(Some("a.test"))[..], b"early"].concat();
    client.send([connect.as_bytes(), &early].concat());
    client.head();
    assert!(client.bytes(early.len()) == early);
    client.send(" late");
    assert_eq!(client.bytes(5), b" late");
    assert_eq!(origin.seen(), [&early[..], b" late"].concat());
}

#[test]
fn large_loads_arrive_whole_and_are_counted() {
    let (origin, gate) = Origin::behind_a_gate("", POLICY);
    let mut client = Client::in_tls(gate.proxy, origin.port);
    assert_eq!(metric(&gate, "crawlgate_tunnels"), 1);
    assert_eq!(metric(&gate, "crawlgate_inflight_requests"), 0);
    let load: Vec<u8> = (0..8_000_000_u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let mut writer = client.0.try_clone().unwrap();
    let sent = load.clone();
    let writing = thread::spawn(move || std::io::Write::write_all(&mut writer, &sent).unwrap());
    let got = client.bytes(load.len());
    writing.join().unwrap();
    assert!(got == load);
    client.half_close();
    assert_eq!(client.rest(), "");
    let carried = (load.len() + hello(Some("a.test")).len()) as u64;
    until("the tunnel is over", || {
        metric(&gate, "crawlgate_tunnels") == 0
    });
    for series in [
        "crawlgate_bytes_total{direction=\"received\",side=\"client\"}",
        "crawlgate_bytes_total{direction=\"sent\",side=\"client\"}",
        "crawlgate_bytes_total{direction=\"received\",side=\"origin\"}",
        "crawlgate_bytes_total{direction=\"sent\",side=\"origin\"}",
    ] {
        assert_eq!(metric(&gate, series), carried, "{series}");
    }
    assert_eq!(
        metric(&gate, "crawlgate_tunnels_total{verdict=\"allow\"}"),
        1
    );
}

#[test]
fn a_side_that_has_said_all_may_still_listen() {
    let origin = Origin::start(|socket, _| {
        use std::io::{Read, Write};
        let mut all = Vec::new();
        socket.read_to_end(&mut all).unwrap();
        socket
            .write_all(format!("got {}", all.len()).as_bytes())
            .unwrap();
    });
    let gate = super::wire::gate_to(&origin, "", POLICY);
    let mut client = Client::tunnel(gate.proxy, origin.port);
    let hello = hello(Some("a.test"));
    client.send(&hello);
    client.send("12345");
    client.half_close();
    assert_eq!(client.rest(), format!("got {}", hello.len() + 5));
}

#[test]
fn a_client_that_leaves_takes_the_origins_connection_with_it() {
    let (origin, gate) = Origin::behind_a_gate("", POLICY);
    let mut client = Client::in_tls(gate.proxy, origin.port);
    client.send("x");
    client.bytes(1);
    client.reset();
    until("the origin's connection ends", || origin.ended() == 1);
    until("the tunnel is over", || {
        metric(&gate, "crawlgate_tunnels") == 0
    });
}

#[test]
fn silence_ends_a_tunnel() {
    let (origin, gate) = Origin::behind_a_gate("timeouts: { tunnel_idle: 400ms }", POLICY);
    let mut client = Client::in_tls(gate.proxy, origin.port);
    for _ in 0..6 {
        thread::sleep(Duration::from_millis(150));
        client.send("x");
        assert_eq!(client.bytes(1), b"x");
    }
    assert_eq!(client.rest(), "");
    until("the origin's connection ends", || origin.ended() == 1);
}

#[test]
fn no_tunnel_lasts_for_ever() {
    let (origin, gate) = Origin::behind_a_gate("timeouts: { tunnel: 300ms }", POLICY);
    let mut client = Client::in_tls(gate.proxy, origin.port);
    client.send("x");
    assert_eq!(client.rest(), "x");
}

/// Nor one in which bytes never cease to move.
#[test]
fn a_busy_tunnel_ends_in_its_time() {
    let origin = Origin::start(
        |socket, _| while std::io::Write::write_all(socket, &[7; 1 << 18]).is_ok() {},
    );
    let gate = super::wire::gate_to(
        &origin,
        "runtime: { workers: 1 }\ntimeouts: { tunnel: 400ms }",
        POLICY,
    );
    let mut client = Client::tunnel(gate.proxy, origin.port);
    client.send(hello(Some("a.test")));
    let (mut buffer, began) = (vec![0; 1 << 18], std::time::Instant::now());
    while matches!(std::io::Read::read(&mut client.0, &mut buffer), Ok(1..)) {
        assert!(began.elapsed() < super::wire::LONG, "it goes on");
    }
    assert!(
        metric(
            &gate,
            "crawlgate_bytes_total{direction=\"sent\",side=\"client\"}"
        ) > 1 << 20
    );
}

/// A reload judges open tunnels again: those that it refuses are closed, also in the middle of what they carry; others
/// notice nothing.
#[test]
fn a_reload_closes_what_it_refuses_and_leaves_the_rest() {
    let (origin, gate) = Origin::behind_a_gate("", POLICY);
    let mut refused = Client::in_tls(gate.proxy, origin.port);
    let mut kept = Client::tunnel_to(gate.proxy, &format!("b.test:{}", origin.port));
    kept.greet("b.test");
    let reload = |policy: &str| {
        let before = gate.said().matches(" is active").count();
        gate.write("policy.yaml", policy);
        gate.signal("HUP");
        until("the policy is loaded", || {
            gate.said().matches(" is active").count() > before
        });
    };
    // The same rules under another revision refuse nothing that is open.
    reload(&format!(
        "{POLICY}  - {{ id: other, forbid: {{ host: other.test }} }}\n"
    ));
    for client in [&mut refused, &mut kept] {
        client.send("still");
        assert_eq!(client.bytes(5), b"still");
    }
    assert_eq!(metric(&gate, "crawlgate_tunnels"), 2);
    reload(&format!(
        "{POLICY}  - {{ id: no-more, forbid: {{ host: a.test }} }}\n"
    ));
    assert_eq!(refused.rest(), "");
    kept.send("still");
    assert_eq!(kept.bytes(5), b"still");
    until("one is open", || metric(&gate, "crawlgate_tunnels") == 1);
    let decided =
        "crawlgate_rule_decided_total{mode=\"enforce\",rule=\"no-more\",verdict=\"reject\"}";
    assert_eq!(metric(&gate, decided), 1);
    let path = gate.write("unused", "").with_file_name("log.json");
    let log = || std::fs::read_to_string(&path).unwrap();
    until("it is logged", || log().contains("\"policy_changed\""));
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
    let (origin, gate) = Origin::behind_a_gate("limits: { tunnels_per_host: 2 }", POLICY);
    let first = Client::in_tls(gate.proxy, origin.port);
    let _second = Client::in_tls(gate.proxy, origin.port);
    let mut third = Client::connect(gate.proxy);
    third.send(format!(
        "CONNECT a.test:{} HTTP/1.1\r\nHost: x\r\n\r\n",
        origin.port
    ));
    let answer = third.rest();
    assert!(
        answer.starts_with("HTTP/1.1 503 Policy-503 reason=overloaded id="),
        "{answer}"
    );
    assert!(answer.contains("\r\nretry-after: "), "{answer}");
    let mut other = Client::tunnel_to(gate.proxy, &format!("b.test:{}", origin.port));
    other.greet("b.test");
    drop(first);
    until("a place is free", || {
        metric(&gate, "crawlgate_tunnels") == 2
    });
    let _third = Client::in_tls(gate.proxy, origin.port);
    until("all are at the origin", || origin.connections() == 4);
}

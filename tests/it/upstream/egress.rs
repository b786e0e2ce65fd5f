//! The reach of requests under `egress`: ports, private networks, loopback, and never the proxy itself.

use super::{POLICY, config, gate, get, status, with_rule};
use crate::support::client::RawClient;
use crate::support::origin::ScriptedOrigin;
use crate::support::proxy::TestProxy;

fn reason(answer: &str) -> &str {
    answer
        .split("\r\ncrawl-reason: ")
        .nth(1)
        .and_then(|rest| rest.split("\r\n").next())
        .unwrap_or("none")
}

#[test]
fn the_gate_itself_is_refused_in_every_spelling() {
    let gate = gate(
        "{ me.test: 127.0.0.1, six.test: \"::1\", other.test: 127.9.9.9 }",
        "",
    );
    for (listener, setting) in [(gate.proxy, "listen"), (gate.admin, "admin.listen")] {
        let port = listener.port();
        let detail = format!(
            "the URL leads back to this proxy: {listener} is its own listener ({setting} in the configuration). Request it \
             without the proxy"
        );
        for host in [
            "127.0.0.1",
            "127.1",
            "0x7f.1",
            "0x7f000001",
            "2130706433",
            "0177.0.0.1",
            "127.0.0.1.",
            "127.8.8.8",
            "0.0.0.0",
            "0",
            "[::1]",
            "[0:0:0:0:0:0:0:1]",
            "[::]",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]",
            "localhost",
            "LOCALHOST.",
            "me.test",
            "Me.Test.",
            "six.test",
            "other.test",
        ] {
            for path in ["metrics", "healthz"] {
                let answer = get(gate.proxy, &format!("http://{host}:{port}/{path}"));
                assert_eq!(status(&answer), 403, "{host}:{port}/{path}: {answer}");
                assert_eq!(
                    reason(&answer),
                    "ip_prohibited",
                    "{host}:{port}/{path}: {answer}"
                );
                assert!(answer.contains(&detail), "{host}:{port}/{path}: {answer}");
            }
        }
    }
    // The same spellings reach other services, so the refusal is not of the spelling.
    let origin = ScriptedOrigin::ok();
    for host in [
        "127.0.0.1",
        "127.1",
        "0x7f.1",
        "[::ffff:127.0.0.1]",
        "localhost",
        "me.test",
    ] {
        assert_eq!(
            status(&get(gate.proxy, &origin.url(host, "/"))),
            200,
            "{host}"
        );
    }
}

/// No setting would allow it, so that none is proposed.
#[test]
fn a_listener_of_the_gate_is_named_even_if_loopback_or_its_port_is_closed() {
    let closed = config("", "").replace("[1-65535]", "80");
    let gate = TestProxy::start(&closed, POLICY);
    for host in ["127.0.0.1", "localhost", "[::1]"] {
        let answer = get(
            gate.proxy,
            &format!("http://{host}:{}/ui", gate.admin.port()),
        );
        assert_eq!(reason(&answer), "ip_prohibited", "{host}: {answer}");
        assert!(
            answer.contains("own listener (admin.listen"),
            "{host}: {answer}"
        );
        assert!(!answer.contains("egress."), "{host}: {answer}");
    }
    let address = gate.admin;
    let mut client = RawClient::connect(gate.proxy);
    let answer = client.request(format!(
        "CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n\r\n"
    ));
    assert_eq!(answer.field("crawl-reason"), Some("port_denied"));
    assert!(answer.body.contains("allows 80, 443"), "{}", answer.body);
}

#[test]
fn loopback_is_closed_unless_it_is_opened() {
    let gate = TestProxy::start(&config("  hosts: { a.test: 127.0.0.1 }", ""), POLICY);
    let origin = ScriptedOrigin::ok();
    for host in [
        "127.0.0.1",
        "a.test",
        "[::ffff:127.0.0.1]",
        "0",
        "localhost",
    ] {
        let answer = get(gate.proxy, &origin.url(host, "/"));
        assert_eq!(status(&answer), 403, "{host}: {answer}");
        assert_eq!(reason(&answer), "ip_prohibited", "{host}: {answer}");
        if host != "0" {
            assert!(answer.contains("egress.allow_loopback"), "{host}: {answer}");
        }
    }
    assert_eq!(origin.connections(), 0);
}

#[test]
fn a_private_network_is_open_to_its_hosts_alone() {
    let egress = "  allow_private:
    - { host: one.test, cidr: 192.0.2.0/25 }
    - { host: \"*.corp.test\", cidr: 10.2.0.0/16 }
    - { host: 192.0.2.9, cidr: 192.0.2.9/32 }
  hosts:
    one.test: 192.0.2.1
    sub.one.test: 192.0.2.1
    a.corp.test: 10.2.0.1
    a.b.corp.test: 10.2.0.1
    corp.test: 10.2.0.1
    xcorp.test: 10.2.0.1
    wrong.corp.test: 192.0.2.1
    far.test: 192.0.2.200";
    // A rule refuses what the address check allows, so that no request leaves this machine.
    let gate = TestProxy::start(
        &config(egress, ""),
        &with_rule("address: [ 192.0.2.0/24, 10.0.0.0/8 ]"),
    );
    for (host, want) in [
        ("one.test", "rule"),
        ("ONE.test.", "rule"),
        ("a.corp.test", "rule"),
        ("a.b.corp.test", "rule"),
        ("192.0.2.9", "rule"),
        ("192.0.521", "rule"),
        ("sub.one.test", "ip_prohibited"),
        ("corp.test", "ip_prohibited"),
        ("xcorp.test", "ip_prohibited"),
        ("wrong.corp.test", "ip_prohibited"),
        ("far.test", "ip_prohibited"),
        ("192.0.2.1", "ip_prohibited"),
    ] {
        let answer = get(gate.proxy, &format!("http://{host}:8000/"));
        assert_eq!(reason(&answer), want, "{host}: {answer}");
    }
}

#[test]
fn only_the_ports_of_egress_are_dialled() {
    let open = ScriptedOrigin::ok();
    let shut = ScriptedOrigin::ok();
    let egress = format!(
        "  allow_loopback: true\n  ports: [80, {}]\n  hosts: {{ a.test: 127.0.0.1 }}",
        open.port
    );
    let gate = TestProxy::start(
        &config("", "").replace("  ports: [1-65535]\n", &format!("{egress}\n")),
        POLICY,
    );
    assert_eq!(status(&get(gate.proxy, &open.url("a.test", "/"))), 200);
    for host in ["a.test", "127.0.0.1", "localhost"] {
        let answer = get(gate.proxy, &shut.url(host, "/"));
        assert_eq!(status(&answer), 403, "{host}: {answer}");
        assert_eq!(reason(&answer), "port_denied", "{host}: {answer}");
        let detail = format!(
            "port {} is not allowed: egress.ports in the configuration allows 80, {}",
            shut.port, open.port
        );
        assert!(answer.contains(&detail), "{host}: {answer}");
    }
    assert_eq!(shut.connections(), 0);
}

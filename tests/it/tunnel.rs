//! CONNECT through a running proxy: refusals with their status lines, blind tunnels, their content and their
//! end.

mod first;
pub(crate) mod hello;
pub(crate) mod inside;
mod judged;
mod leave;
mod open;
mod plain;
mod sniff;
pub(crate) mod wire;

use crate::support::client::RawClient;
use crate::support::proxy::TestProxy;
use wire::{POLICY, config, echo_and_proxy, text_origin};

/// Checks the status line of a refusal, up to the id of the decision.
#[track_caller]
fn check_refused(gate: &TestProxy, head: &str, line: &str, fields: &[&str]) {
    let mut client = RawClient::connect(gate.proxy);
    client.send(head);
    let answer = client.read_rest();
    let (status, rest) = answer.split_once("\r\n").unwrap_or_default();
    assert_eq!(
        status.split_once(" id=").map_or(status, |(line, _)| line),
        line,
        "{head:?}"
    );
    let phrase = status.splitn(3, ' ').nth(2).unwrap_or_default();
    assert!(phrase.len() <= 80 && phrase.is_ascii(), "{phrase}");
    let decision = phrase
        .split_once(" id=")
        .map(|(_, id)| format!("crawl-decision: {id}"))
        .unwrap();
    for field in
        fields
            .iter()
            .copied()
            .chain(["connection: close", "crawl-policy: tunnels@", &decision])
    {
        assert!(
            rest.contains(&format!("\r\n{field}")) || rest.starts_with(field),
            "{head:?}: {field} in {answer}"
        );
    }
    assert!(
        rest.contains("\"instance\":\"urn:crawlgate:decision:"),
        "{answer}"
    );
}

#[test]
fn a_refused_connect_has_its_reason_in_the_status_line() {
    let gate = TestProxy::start(
        &config(
            "connect_ports: [443, 80, 8443]\n  tls_ports: [443, 8443]",
            "",
        ),
        POLICY,
    );
    let connect =
        |authority: &str, rest: &str| format!("CONNECT {authority} HTTP/1.1\r\n{rest}\r\n");
    for (head, line, fields) in [
        // A refused host.
        (
            connect("refused.test:443", "Host: refused.test:443\r\n"),
            "HTTP/1.1 451 Policy-451 rule=refused-host",
            [
                "crawl-reason: rule",
                "crawl-rule: refused-host",
                "crawl-status: REJECTED_FILTER",
            ],
        ),
        (
            connect("REFUSED.test.:443", ""),
            "HTTP/1.1 451 Policy-451 rule=refused-host",
            [
                "crawl-reason: rule",
                "crawl-retry: policy-change",
                "content-type: application/problem+json",
            ],
        ),
        // The text names the rule and the remedies.
        (
            connect("half.test:443", "Host: half.test:443\r\n"),
            "HTTP/1.1 451 Policy-451 rule=half",
            [
                "crawl-reason: undecided",
                "crawl-rule: half",
                "proxy-status: \"crawlgate\"; error=http_request_denied",
            ],
        ),
        (
            connect("a.test:22", "Host: a.test:22\r\n"),
            "HTTP/1.1 403 Policy-403 reason=port_denied",
            [
                "crawl-reason: port_denied",
                "crawl-code: 770",
                "crawl-status: REJECTED_REQUEST",
            ],
        ),
        (
            connect("a.test", "Host: a.test\r\n"),
            "HTTP/1.1 400 Policy-400 reason=bad_request",
            [
                "crawl-reason: bad_request",
                "crawl-retry: never",
                "crawl-status: REJECTED_REQUEST",
            ],
        ),
        (
            connect("nowhere.invalid:443", "Host: x\r\n"),
            "HTTP/1.1 502 Policy-502 reason=upstream_dns",
            [
                "crawl-reason: upstream_dns",
                "crawl-retry: after",
                "crawl-status: REJECTED_ERROR",
            ],
        ),
        (
            connect("private.test:443", "Host: x\r\n"),
            "HTTP/1.1 403 Policy-403 reason=ip_prohibited",
            [
                "crawl-reason: ip_prohibited",
                "crawl-status: REJECTED_ADDRESS",
                "proxy-status: \"crawlgate\"; error=destination_ip_prohibited",
            ],
        ),
        // A rule on addresses: the name is looked up, and each address is evaluated.
        (
            connect("by-address.test:443", "Host: x\r\n"),
            "HTTP/1.1 451 Policy-451 rule=no-such-network",
            [
                "crawl-reason: rule",
                "crawl-rule: no-such-network",
                "crawl-status: REJECTED_FILTER",
            ],
        ),
        // Nothing listens there.
        (
            connect("a.test:8443", "Host: x\r\n"),
            "HTTP/1.1 502 Policy-502 reason=upstream_connect",
            [
                "crawl-reason: upstream_connect",
                "crawl-code: 612",
                "proxy-status: \"crawlgate\"; error=connection_refused",
            ],
        ),
    ] {
        check_refused(&gate, &head, line, &fields);
    }
}

#[test]
fn an_address_is_vetted_however_it_is_written() {
    let gate = TestProxy::start(
        &config("", "").replace("allow_loopback: true", "allow_loopback: false"),
        POLICY,
    );
    for authority in [
        "127.0.0.1:443",
        "127.1:443",
        "0x7f000001:443",
        "017700000001:443",
        "2130706433:443",
        "[::1]:443",
        "[::ffff:127.0.0.1]:443",
        "[::ffff:7f00:1]:443",
        "[64:ff9b::7f00:1]:443",
        "0.0.0.0:443",
        "[::]:443",
        "169.254.169.254:443",
        "10.0.0.1:443",
        "localtest.test:443",
    ] {
        let mut client = RawClient::connect(gate.proxy);
        client.send(format!("CONNECT {authority} HTTP/1.1\r\nHost: x\r\n\r\n"));
        let answer = client.read_rest();
        assert!(
            answer.starts_with("HTTP/1.1 403 Policy-403 reason=ip_prohibited id="),
            "{authority}: {answer}"
        );
    }
}

/// Not even with loopback allowed, and not by any spelling.
#[test]
fn the_proxy_and_its_admin_listener_are_out_of_reach() {
    let ports = "connect_ports: [1-65535]\n  tls_ports: [1-65535]";
    let gate = TestProxy::start(&config(ports, ""), POLICY);
    for port in [gate.proxy.port(), gate.admin.port()] {
        for host in [
            "127.0.0.1",
            "a.test",
            "[::ffff:127.0.0.1]",
            "127.0.0.2",
            "0x7f.1",
        ] {
            let mut client = RawClient::connect(gate.proxy);
            client.send(format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: x\r\n\r\n"));
            let answer = client.read_rest();
            assert!(
                answer.starts_with("HTTP/1.1 403 Policy-403 reason=ip_prohibited"),
                "{host}: {answer}"
            );
        }
    }
}

#[test]
fn an_unreadable_connect_is_a_bad_request() {
    let gate = TestProxy::start(&config("", ""), POLICY);
    for line in [
        "CONNECT a.test: HTTP/1.1",
        "CONNECT a.test:0 HTTP/1.1",
        "CONNECT a.test:65536 HTTP/1.1",
        "CONNECT a.test:+443 HTTP/1.1",
        "CONNECT a.test:443x HTTP/1.1",
        "CONNECT :443 HTTP/1.1",
        "CONNECT user@a.test:443 HTTP/1.1",
        "CONNECT user:password@a.test:443 HTTP/1.1",
        "CONNECT http://a.test:443/ HTTP/1.1",
        "CONNECT /a.test:443 HTTP/1.1",
        "CONNECT a.test:443/x HTTP/1.1",
        "CONNECT ::1:443 HTTP/1.1",
        "CONNECT a..test:443 HTTP/1.1",
        "CONNECT a%2etest:443 HTTP/1.1",
        "CONNECT * HTTP/1.1",
    ] {
        let mut client = RawClient::connect(gate.proxy);
        client.send(format!("{line}\r\nHost: a.test\r\n\r\n"));
        let answer = client.read_rest();
        assert!(answer.starts_with("HTTP/1.1 400 "), "{line}: {answer}");
        assert!(
            answer.contains("crawl-reason: bad_request"),
            "{line}: {answer}"
        );
    }
}

#[test]
fn a_loop_is_seen() {
    let (origin, gate) = echo_and_proxy("", POLICY);
    let mut client = RawClient::connect(gate.proxy);
    // What the gate calls itself shows in a request that it passes on.
    let plain = text_origin();
    client.send_get(&plain.url("a.test", "/"), "");
    let seen = plain.wait_for_text("\r\n\r\n");
    let via = seen
        .lines()
        .find_map(|l| l.strip_prefix("via: "))
        .unwrap()
        .to_owned();
    let mut client = RawClient::connect(gate.proxy);
    client.send(format!(
        "CONNECT a.test:{} HTTP/1.1\r\nHost: x\r\nVia: {via}\r\n\r\n",
        origin.port
    ));
    assert!(
        client
            .read_rest()
            .starts_with("HTTP/1.1 502 Policy-502 reason=loop id=")
    );
    assert_eq!(origin.connections(), 0);
}

//! The way to the origin through a running gate: names, addresses, connections, time-outs, and who sees what break.
//!
//! Every origin and name server is scripted and counts what it gets.

mod broken;
mod closing;
mod dial;
mod egress;
mod endless;
mod names;
mod pool;
mod times;
mod uploads;

use std::net::SocketAddr;

use crate::support::client::RawClient;
use crate::support::proxy::TestProxy;

/// A policy that neither refuses nor delays a request.
const POLICY: &str = "
policy: 1
name: upstream
options:
  disposition: allow
  robots: { obey: false }
  politeness: { delay: 0s, concurrency: 100 }
rules: []
";

/// That policy with one rule that forbids this.
fn with_rule(forbidden: &str) -> String {
    POLICY.replace(
        "rules: []",
        &format!("rules: [ {{ id: only, forbid: {{ {forbidden} }} }} ]"),
    )
}

/// A configuration with more lines of `egress`, and more groups.
fn config(egress: &str, more: &str) -> String {
    format!(
        "listen: 127.0.0.1:0
admin: {{ listen: 127.0.0.1:0 }}
policy: {{ path: policy.yaml, watch: false }}
logs: {{ decisions: none }}
egress:
  ports: [1-65535]
{egress}
{more}
"
    )
}

/// A proxy that may reach origins on loopback.
fn gate(hosts: &str, more: &str) -> TestProxy {
    TestProxy::start(
        &config(&format!("  allow_loopback: true\n  hosts: {hosts}"), more),
        POLICY,
    )
}

/// GETs a URL on a new connection; returns the whole response.
fn get(proxy: SocketAddr, url: &str) -> String {
    ask(proxy, "GET", url, "")
}

/// Sends a request on a new connection; returns the whole response.
fn ask(proxy: SocketAddr, method: &str, url: &str, body: &str) -> String {
    let mut client = RawClient::connect(proxy);
    let length = if body.is_empty() {
        String::new()
    } else {
        format!("Content-Length: {}\r\n", body.len())
    };
    let host = url.split('/').nth(2).unwrap();
    client.send(format!(
        "{method} {url} HTTP/1.1\r\nHost: {host}\r\n{length}Connection: close\r\n\r\n{body}"
    ));
    client.read_rest()
}

/// The status of a response.
fn status(answer: &str) -> u16 {
    answer
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .unwrap_or_else(|| panic!("{answer:?}"))
}

/// An expected refusal.
#[derive(Clone, Copy, Debug)]
struct Refused {
    status: u16,
    reason: &'static str,
    /// The error type in `Proxy-Status`.
    error: &'static str,
    code: Option<u16>,
}

#[track_caller]
fn check_refused(answer: &str, want: Refused, case: &str) {
    assert_eq!(status(answer), want.status, "{case}: {answer}");
    let head = answer.split("\r\n\r\n").next().unwrap_or_default();
    let field = |name: &str| {
        head.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
            .unwrap_or_default()
    };
    assert_eq!(field("crawl-reason"), want.reason, "{case}: {answer}");
    assert_eq!(
        field("crawl-code"),
        want.code.map_or(String::new(), |code| code.to_string()),
        "{case}"
    );
    let proxy_status = field("proxy-status");
    let error = proxy_status
        .split("error=")
        .nth(1)
        .and_then(|rest| rest.split(';').next());
    assert_eq!(error, Some(want.error), "{case}: {proxy_status}");
}

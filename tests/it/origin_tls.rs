//! TLS to origins, through a running gate: whom it trusts, what it says of those whom it does not, and what is kept of a
//! connection. Every origin is in this process and has a certificate that was made for its test.

mod broken;
mod certificates;
pub(crate) mod certs;
pub(crate) mod origin;
mod pool;
mod robots;
mod sessions;
mod settings;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::support::gate::Gate;
use certs::Authority;

/// Longer than anything takes on a busy machine.
const LONG: Duration = Duration::from_secs(20);
/// What no answer of a refused origin may hold.
const SECRET: &str = "the page of nobody";

/// Nothing is refused, and no host has to wait or has a robots.txt that anybody asks for.
const POLICY: &str = "
policy: 1
name: origin-tls
options:
  disposition: allow
  robots: { obey: false }
  politeness: { delay: 0s, concurrency: 100 }
rules:
  - { id: lax, when: { under: /lax }, set: { verify: skip } }
";

/// The policy with robots.txt obeyed.
fn obedient() -> String {
    POLICY.replace("{ obey: false }", "{ obey: true }")
}

/// A gate that trusts one authority and nobody else on these machines.
fn gate(trusted: &Authority) -> Gate {
    gate_with(trusted, "", POLICY)
}

/// The same with more keys of `tls`, and another policy.
fn gate_with(trusted: &Authority, tls: &str, policy: &str) -> Gate {
    let config = format!(
        "listen: 127.0.0.1:0
admin: {{ listen: 127.0.0.1:0 }}
policy: {{ path: policy.yaml, watch: false }}
logs: {{ decisions: decisions.log }}
timeouts: {{ tls: 1s }}
tls: {{ roots: webpki, extra_roots: [ca.pem]{tls} }}
egress:
  ports: [1-65535]
  allow_loopback: true
  hosts: {{ a.test: 127.0.0.1, b.test: 127.0.0.1 }}
"
    );
    let pem = trusted.pem();
    Gate::start_with(&config, policy, move |command| {
        let directory = command.get_current_dir().unwrap();
        std::fs::write(directory.join("ca.pem"), pem).unwrap();
    })
}

/// A whole answer, or as much of it as came.
#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn field(&self, name: &str) -> &str {
        let fields = self.head.lines().filter_map(|line| line.split_once(": "));
        fields
            .into_iter()
            .find(|(n, _)| n.eq_ignore_ascii_case(name))
            .map_or("", |(_, value)| value)
    }
}

/// One GET on a connection of its own.
#[track_caller]
fn get(proxy: SocketAddr, url: &str) -> Answer {
    try_get(proxy, url).unwrap_or_else(|| panic!("no answer: {url}"))
}

/// One GET on a connection of its own, which may end before there is an answer.
fn try_get(proxy: SocketAddr, url: &str) -> Option<Answer> {
    let mut socket = TcpStream::connect(proxy).unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    let host = url.split('/').nth(2).unwrap();
    let request = format!("GET {url} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).unwrap();
    let mut bytes = Vec::new();
    // A connection that is cut ends in an error; what came before it is what the client has got.
    let _ = socket.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Answer {
        status,
        head: head.to_owned(),
        body: body.to_owned(),
    })
}

/// How TLS with an origin must have failed.
#[derive(Clone, Copy, Debug)]
struct Failure {
    status: u16,
    /// The error type in `Proxy-Status`.
    error: &'static str,
    /// Its `details`.
    words: &'static str,
}

/// A certificate that is not to be trusted.
fn untrusted(words: &'static str) -> Failure {
    Failure {
        status: 502,
        error: "tls_certificate_error",
        words,
    }
}

#[track_caller]
fn check_failed(answer: &Answer, want: Failure, case: &str) {
    assert_eq!(answer.status, want.status, "{case}: {answer:?}");
    for (name, value) in [
        ("crawl-reason", "upstream_tls"),
        ("crawl-status", "REJECTED_ERROR"),
        ("crawl-code", "614"),
        ("crawl-retry", "after"),
    ] {
        assert_eq!(answer.field(name), value, "{case}: {name}: {answer:?}");
    }
    let told = format!(
        "\"crawlgate\"; error={}; details=\"upstream_tls; {}\"",
        want.error, want.words
    );
    assert_eq!(answer.field("proxy-status"), told, "{case}");
    assert!(answer.body.contains(want.words), "{case}: {}", answer.body);
    assert!(
        !answer.body.contains(SECRET) && !answer.body.contains("EVIL"),
        "{case}: {}",
        answer.body
    );
}

/// A metric without labels, or with these.
fn metric(gate: &Gate, name: &str) -> f64 {
    let mut socket = TcpStream::connect(gate.admin).unwrap();
    let request = format!(
        "GET /metrics HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
        gate.admin
    );
    socket.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).unwrap();
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value
        .unwrap_or_else(|| panic!("no {name}"))
        .parse()
        .unwrap()
}

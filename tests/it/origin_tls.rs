//! TLS to origins, through a running proxy: trusted and untrusted certificates, and the reuse of connections and sessions.
//! Every origin is in this process and has a certificate made for its test.

mod broken;
mod certificates;
pub(crate) mod certs;
pub(crate) mod origin;
mod pool;
mod robots;
mod sessions;
mod settings;

use std::io::Read;
use std::net::SocketAddr;

use crate::support::client::{RawClient, Response};
use crate::support::proxy::TestProxy;
use certs::Authority;

/// Text that no response for a refused origin may contain.
const SECRET: &str = "the page of nobody";

/// A policy that neither refuses nor delays a request, and does not use robots.txt.
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

/// That policy with robots.txt obeyed.
fn obedient() -> String {
    POLICY.replace("{ obey: false }", "{ obey: true }")
}

/// A proxy that trusts one authority.
fn gate(trusted: &Authority) -> TestProxy {
    gate_with(trusted, "", POLICY)
}

/// A proxy with more keys of `tls`, and another policy.
fn gate_with(trusted: &Authority, tls: &str, policy: &str) -> TestProxy {
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
    TestProxy::start_with(&config, policy, move |command| {
        let directory = command.get_current_dir().unwrap();
        std::fs::write(directory.join("ca.pem"), pem).unwrap();
    })
}

/// GETs a URL on a new connection, which may end before the response does.
fn try_get(proxy: SocketAddr, url: &str) -> Option<Response> {
    let mut client = RawClient::connect(proxy);
    client.send_get(url, "Connection: close\r\n");
    let mut bytes = Vec::new();
    // A connection that is cut ends with an error; the bytes before it have arrived.
    let _ = client.socket.read_to_end(&mut bytes);
    let response = Response::parse(&String::from_utf8_lossy(&bytes));
    (response.status > 0).then_some(response)
}

/// An expected failure of TLS with an origin.
#[derive(Clone, Copy, Debug)]
struct Failure {
    status: u16,
    /// The error type in `Proxy-Status`.
    error: &'static str,
    /// Its `details`.
    words: &'static str,
}

/// A certificate that is not trusted.
fn untrusted(words: &'static str) -> Failure {
    Failure {
        status: 502,
        error: "tls_certificate_error",
        words,
    }
}

#[track_caller]
fn check_failed(answer: &Response, want: Failure, case: &str) {
    assert_eq!(answer.status, want.status, "{case}: {answer:?}");
    for (name, value) in [
        ("crawl-reason", "upstream_tls"),
        ("crawl-status", "REJECTED_ERROR"),
        ("crawl-code", "614"),
        ("crawl-retry", "after"),
    ] {
        assert_eq!(answer.value(name), value, "{case}: {name}: {answer:?}");
    }
    let reported = format!(
        "\"crawlgate\"; error={}; details=\"upstream_tls; {}\"",
        want.error, want.words
    );
    assert_eq!(answer.value("proxy-status"), reported, "{case}");
    assert!(answer.body.contains(want.words), "{case}: {}", answer.body);
    assert!(!answer.body.contains(SECRET), "{case}: {answer}");
    assert!(!answer.body.contains("EVIL"), "{case}: {answer}");
}

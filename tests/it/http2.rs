//! HTTP/2 to clients of a running proxy: requests, tunnels, refusals, limits and the shutdown.

mod floods;
mod requests;
mod tunnels;

use crate::support::proxy::TestProxy;

/// Robots.txt is not obeyed, nothing waits, and some paths are refused.
const POLICY: &str = "
policy: 1
name: http2
options:
  disposition: allow
  robots: { obey: false }
  politeness: { delay: 0s, concurrency: 100 }
rules:
  - { id: private, forbid: { under: /private } }
  - { id: refused-host, forbid: { host: refused.test } }
";

/// A configuration that accepts HTTP/2 without TLS, with more settings of `h2`, and more groups.
fn config(h2: &str, more: &str) -> String {
    format!(
        "listen: 127.0.0.1:0
admin: {{ listen: 127.0.0.1:0 }}
policy: {{ path: policy.yaml, watch: false }}
logs: {{ decisions: log.json }}
tls: {{ intercept: true, ca: {{ cert: ca.pem, key: ca.key }}, bundle: bundle.pem, extra_roots: [] }}
h2: {{ prior_knowledge: true{h2} }}
egress:
  allow_loopback: true
  ports: [1-65535]
  connect_ports: [1-65535]
  hosts: {{ a.test: 127.0.0.1, b.test: 127.0.0.1, refused.test: 127.0.0.1 }}
{more}
"
    )
}

fn gate() -> TestProxy {
    TestProxy::start(&config("", ""), POLICY)
}

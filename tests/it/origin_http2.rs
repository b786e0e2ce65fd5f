//! HTTP/2 to origins, through a running proxy: the sharing of connections, the pace, what origins refuse, and
//! hostile origins.

mod hostile;
mod pace;
mod refused;
mod sharing;
mod uploads;

use std::sync::Arc;

use rustls::ServerConfig;

use crate::origin_tls::certs::Authority;
use crate::support::http2_origin::{FramePeer, with_protocols};
use crate::support::origin::ScriptedOrigin;
use crate::support::proxy::TestProxy;

/// A proxy that trusts one authority. `politeness` is that option, and `more` more of the configuration.
fn gate_with(trusted: &Authority, politeness: &str, more: &str) -> TestProxy {
    let config = format!(
        "listen: 127.0.0.1:0
admin: {{ listen: 127.0.0.1:0 }}
policy: {{ path: policy.yaml, watch: false }}
logs: {{ decisions: log.json }}
tls: {{ roots: webpki, extra_roots: [ca.pem] }}
egress:
  ports: [1-65535]
  allow_loopback: true
  hosts: {{ a.test: 127.0.0.1, b.test: 127.0.0.1 }}
{more}"
    );
    let policy = format!(
        "policy: 1
name: origin-http2
options:
  disposition: allow
  robots: {{ obey: false }}
  politeness: {politeness}
rules:
  - {{ id: one, when: {{ under: /one }}, set: {{ http2: none }} }}
  - {{ id: client, when: {{ under: /client }}, set: {{ http2: client }} }}
  - {{ id: two, when: {{ under: /two }}, set: {{ http2: origin }} }}
"
    );
    let pem = trusted.pem();
    TestProxy::start_with(&config, &policy, move |command| {
        let directory = command.get_current_dir().unwrap();
        std::fs::write(directory.join("ca.pem"), pem).unwrap();
    })
}

/// A proxy whose policy delays nothing.
fn gate(trusted: &Authority) -> TestProxy {
    gate_with(trusted, "{ delay: 0s, concurrency: 100 }", "")
}

/// An origin that speaks HTTP/2 frame by frame. The function gets the number of each connection.
fn frame_origin(
    ours: &Authority,
    serve: impl Fn(usize, FramePeer) + Send + Sync + 'static,
) -> ScriptedOrigin {
    frame_origin_with(&ours.server(&["a.test", "b.test"]), &[], serve)
}

/// As [`frame_origin`], with the payload of the first SETTINGS.
fn frame_origin_with(
    server: &Arc<ServerConfig>,
    settings: &'static [u8],
    serve: impl Fn(usize, FramePeer) + Send + Sync + 'static,
) -> ScriptedOrigin {
    let server = with_protocols(server, &["h2"]);
    ScriptedOrigin::start(move |connection| {
        if let Some(stream) = connection.accept_tls(&server)
            && let Some(peer) = FramePeer::accept(stream, settings)
        {
            serve(connection.number, peer);
        }
    })
}

/// The count of a reason in `upstream_http2_failures_total`.
fn failures(gate: &TestProxy, reason: &str) -> u64 {
    gate.counter(&format!(
        "crawlgate_upstream_http2_failures_total{{reason=\"{reason}\"}}"
    ))
}

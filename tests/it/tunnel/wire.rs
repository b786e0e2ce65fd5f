//! Clients in tunnels, and the proxy between them and their origins.

use crate::support::client::RawClient;
use crate::support::origin::{ScriptedOrigin, response};
use crate::support::proxy::TestProxy;

use super::hello::hello;
use std::net::SocketAddr;

/// The policy of most tests of tunnels.
pub(crate) const POLICY: &str = "
policy: 1
name: tunnels
options:
  disposition: allow
  robots: { obey: false }
  politeness: { delay: 0s, concurrency: 100 }
rules:
  - { id: refused-host, forbid: { host: refused.test } }
  - { id: half, forbid: { all: [ { host: half.test }, { under: /private } ] } }
  - { id: no-such-network, forbid: { address: 127.7.7.0/24 } }
  - { id: secret, forbid: { all: [ { scheme: http }, { under: /secret } ] } }
";

/// A configuration with more lines of `egress`, and more groups.
pub(crate) fn config(egress: &str, more: &str) -> String {
    format!(
        "listen: 127.0.0.1:0
admin: {{ listen: 127.0.0.1:0 }}
policy: {{ path: policy.yaml, watch: false }}
logs: {{ decisions: log.json }}
egress:
  allow_loopback: true
  ports: [1-65535]
  hosts: {{ a.test: 127.0.0.1, b.test: 127.0.0.1, half.test: 127.0.0.1, refused.test: 127.0.0.1, private.test: 10.0.0.1, localtest.test: 127.0.0.1, by-address.test: 127.7.7.7 }}
  {egress}
{more}
"
    )
}

impl RawClient {
    /// A client whose CONNECT to this port of a.test succeeds.
    pub(crate) fn tunnel(proxy: SocketAddr, port: u16) -> Self {
        Self::tunnel_to(proxy, &format!("a.test:{port}"))
    }

    pub(crate) fn tunnel_to(proxy: SocketAddr, authority: &str) -> Self {
        let mut client = Self::connect(proxy);
        client.send(format!(
            "CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n"
        ));
        let head = client.read_head();
        assert!(
            head.starts_with("HTTP/1.1 200 Connection established\r\n"),
            "{head}"
        );
        client
    }

    /// A client in an open tunnel to an echo, which has sent a ClientHello back.
    pub(crate) fn tls_tunnel(proxy: SocketAddr, port: u16) -> Self {
        let mut client = Self::tunnel(proxy, port);
        client.echo_client_hello("a.test");
        client
    }

    /// Sends a ClientHello, and reads it back from an echo.
    pub(crate) fn echo_client_hello(&mut self, name: &str) {
        let hello = hello(Some(name));
        self.send(&hello);
        assert!(self.read_bytes(hello.len()) == hello);
    }
}

/// An origin that answers every request with a text.
pub(crate) fn text_origin() -> ScriptedOrigin {
    ScriptedOrigin::respond(|_| response(200, "Content-Type: text/plain\r\n", "ok"))
}

/// An echo, and a proxy that allows TLS in tunnels to it.
pub(crate) fn echo_and_proxy(more: &str, policy: &str) -> (ScriptedOrigin, TestProxy) {
    let origin = ScriptedOrigin::echo();
    let proxy = proxy_to(&origin, more, policy);
    (origin, proxy)
}

/// A proxy that allows TLS in tunnels to this origin.
pub(crate) fn proxy_to(origin: &ScriptedOrigin, more: &str, policy: &str) -> TestProxy {
    let egress = format!("connect_ports: [1-65535]\n  tls_ports: [{}]", origin.port);
    TestProxy::start(&config(&egress, more), policy)
}

//! Raw clients and origins, and the gate between them.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::gate::Gate;

use super::hello::hello;

/// Longer than anything takes on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// What the gates judge by.
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

/// A gate's configuration: lines of `egress`, and whole groups.
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

/// A raw client.
pub(crate) struct Client(pub(crate) TcpStream);

impl Client {
    pub(crate) fn connect(proxy: SocketAddr) -> Self {
        let socket = TcpStream::connect(proxy).unwrap();
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(LONG)).unwrap();
        Self(socket)
    }

    /// A client whose CONNECT to this port of a.test is granted.
    pub(crate) fn tunnel(proxy: SocketAddr, port: u16) -> Self {
        Self::tunnel_to(proxy, &format!("a.test:{port}"))
    }

    pub(crate) fn tunnel_to(proxy: SocketAddr, authority: &str) -> Self {
        let mut client = Self::connect(proxy);
        client.send(format!(
            "CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n"
        ));
        let head = client.head();
        assert!(
            head.starts_with("HTTP/1.1 200 Connection established\r\n"),
            "{head}"
        );
        client
    }

    /// A client in an open tunnel to an echo: its ClientHello has come back.
    pub(crate) fn in_tls(proxy: SocketAddr, port: u16) -> Self {
        let mut client = Self::tunnel(proxy, port);
        client.greet("a.test");
        client
    }

    /// Sends a ClientHello, and has an echo send it back.
    pub(crate) fn greet(&mut self, name: &str) {
        let hello = hello(Some(name));
        self.send(&hello);
        assert!(self.bytes(hello.len()) == hello);
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).unwrap();
    }

    /// The head of one answer.
    pub(crate) fn head(&mut self) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.extend(self.bytes(1));
        }
        String::from_utf8(head).unwrap()
    }

    /// One answer: its head, and its body by `Content-Length`.
    pub(crate) fn answer(&mut self) -> (String, String) {
        let head = self.head();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let body = self.bytes(length.map_or(0, |length| length.parse().unwrap()));
        (head, String::from_utf8(body).unwrap())
    }

    /// So many bytes.
    #[track_caller]
    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// All that comes until the connection ends, in order or by a reset.
    pub(crate) fn rest(&mut self) -> String {
        let mut bytes = Vec::new();
        match self.0.read_to_end(&mut bytes) {
            Err(error) if error.kind() != ErrorKind::ConnectionReset => {
                panic!("{error} after {:?}", String::from_utf8_lossy(&bytes))
            }
            _ => String::from_utf8_lossy(&bytes).into_owned(),
        }
    }

    /// Says that no more will come; a connection that is closed already needs not be told.
    pub(crate) fn half_close(&self) {
        let _ = self.0.shutdown(Shutdown::Write);
    }

    /// Leaves at once, by a reset.
    pub(crate) fn reset(self) {
        socket2::SockRef::from(&self.0)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
    }
}

/// A listening socket that keeps what it gets.
pub(crate) struct Origin {
    pub(crate) port: u16,
    seen: Arc<Mutex<Vec<u8>>>,
    accepted: Arc<AtomicUsize>,
    ended: Arc<AtomicUsize>,
}

impl Origin {
    /// Sends back what comes, and ends when the other side has.
    pub(crate) fn echo() -> Self {
        Self::start(|socket, seen| {
            let mut buffer = [0; 65536];
            while let Ok(count @ 1..) = socket.read(&mut buffer) {
                seen.lock().unwrap().extend_from_slice(&buffer[..count]);
                if socket.write_all(&buffer[..count]).is_err() {
                    return;
                }
            }
        })
    }

    /// Answers each head with 200 and `ok`.
    pub(crate) fn http() -> Self {
        Self::start(|socket, seen| {
            let (mut buffer, mut head) = ([0; 65536], Vec::new());
            while let Ok(count @ 1..) = socket.read(&mut buffer) {
                seen.lock().unwrap().extend_from_slice(&buffer[..count]);
                head.extend_from_slice(&buffer[..count]);
                if head.ends_with(b"\r\n\r\n") {
                    head.clear();
                    let answer = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok";
                    socket.write_all(answer.as_bytes()).unwrap();
                }
            }
        })
    }

    /// Does as told with each connection.
    pub(crate) fn start(
        serve: impl Fn(&mut TcpStream, &Mutex<Vec<u8>>) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (seen, accepted, ended) = (
            Arc::default(),
            Arc::new(AtomicUsize::new(0)),
            Arc::default(),
        );
        let origin = Self {
            port,
            seen: Arc::clone(&seen),
            accepted: Arc::clone(&accepted),
            ended: Arc::clone(&ended),
        };
        let serve = Arc::new(serve);
        thread::spawn(move || {
            for socket in listener.incoming() {
                let Ok(mut socket) = socket else { return };
                accepted.fetch_add(1, Ordering::SeqCst);
                let (seen, ended, serve) =
                    (Arc::clone(&seen), Arc::clone(&ended), Arc::clone(&serve));
                thread::spawn(move || {
                    serve(&mut socket, &seen);
                    ended.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        origin
    }

    /// An echo, and a gate whose tunnels may go to it as TLS.
    pub(crate) fn behind_a_gate(more: &str, policy: &str) -> (Self, Gate) {
        let origin = Self::echo();
        let gate = gate_to(&origin, more, policy);
        (origin, gate)
    }

    /// Connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    /// Connections that have ended.
    pub(crate) fn ended(&self) -> usize {
        self.ended.load(Ordering::SeqCst)
    }

    /// All that came so far.
    pub(crate) fn seen(&self) -> Vec<u8> {
        self.seen.lock().unwrap().clone()
    }

    /// The same, once it holds this.
    pub(crate) fn seen_within(&self, text: &str) -> String {
        let mut seen = String::new();
        until("the origin sees it", || {
            seen = String::from_utf8_lossy(&self.seen()).into_owned();
            seen.contains(text)
        });
        seen
    }
}

/// Waits until something holds.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// The value of a series of the gate's.
pub(crate) fn metric(gate: &Gate, series: &str) -> u64 {
    let mut client = Client::connect(gate.admin);
    client.send(format!(
        "GET /metrics HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
        gate.admin
    ));
    let metrics = client.rest();
    let line = metrics.lines().find(|line| {
        line.strip_prefix(series)
            .is_some_and(|rest| rest.starts_with(' '))
    });
    line.unwrap_or_else(|| panic!("no {series} in {metrics}"))
        .rsplit(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap()
}

/// A gate whose tunnels may go to this origin as TLS.
pub(crate) fn gate_to(origin: &Origin, more: &str, policy: &str) -> Gate {
    Gate::start(
        &config(
            &format!("connect_ports: [1-65535]\n  tls_ports: [{}]", origin.port),
            more,
        ),
        policy,
    )
}

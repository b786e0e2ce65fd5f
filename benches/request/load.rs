//! The load of the benches that go through a whole proxy: an origin, and clients that keep their connections.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

/// Clients at once.
pub(crate) const CLIENTS: usize = 16;
/// Lets all pages pass, after a look at URL, pace and content.
pub(crate) const POLICY: &str = "policy: 1
name: bench
options:
  disposition: allow
  # In the path of every request, and so high that it never bites.
  politeness: { delay: 0s, rate: 10000000/s, burst: 1000000, concurrency: 100000, jitter: none }
rules:
  - { id: no-cgi, forbid: { under: /cgi-bin }, log: true }
  - { id: no-sessions, forbid: { in_query: sid= } }
  - { id: no-archives, forbid: { ext: [zip, exe, iso] } }
  - { id: no-video, when: { content_type: \"video/*\" }, then: exclude }
";

/// Answers `/SIZE` with so many bytes, on kept connections, a thread each.
pub(crate) fn origin() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            thread::spawn(move || serve(socket));
        }
    });
    address
}

fn serve(mut socket: TcpStream) {
    let _ = socket.set_nodelay(true);
    let mut buffer = vec![0; 16 << 10];
    let mut filled = 0;
    while let Ok(read) = socket.read(&mut buffer[filled..]) {
        if read == 0 {
            return;
        }
        filled += read;
        if !buffer[..filled].ends_with(b"\r\n\r\n") {
            continue;
        }
        let head = String::from_utf8_lossy(&buffer[..filled]);
        let size: usize = head
            .split(' ')
            .nth(1)
            .and_then(|p| p.rsplit('/').next()?.parse().ok())
            .unwrap_or(0);
        let mut answer =
            format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {size}\r\n\r\n")
                .into_bytes();
        answer.resize(answer.len() + size, b'x');
        filled = 0;
        if socket.write_all(&answer).is_err() {
            return;
        }
    }
}

/// Clients that ask for pages of one size, one after the other, until they are stopped. Each answer's length is checked.
pub(crate) struct Clients {
    done: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Clients {
    /// Begins to ask: the origin itself, or through a proxy.
    pub(crate) fn start(origin: SocketAddr, proxy: Option<SocketAddr>, size: usize) -> Self {
        let (done, stop) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let start = |_| {
            let (done, stop) = (Arc::clone(&done), Arc::clone(&stop));
            thread::spawn(move || client(origin, proxy, size, &done, &stop))
        };
        let threads = (0..CLIENTS).map(start).collect();
        Self {
            done,
            stop,
            threads,
        }
    }

    /// Answers so far.
    pub(crate) fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Lets each finish its request.
    pub(crate) fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("a client ends well");
        }
    }
}

fn client(
    origin: SocketAddr,
    proxy: Option<SocketAddr>,
    size: usize,
    done: &AtomicU64,
    stop: &AtomicBool,
) {
    let mut socket = TcpStream::connect(proxy.unwrap_or(origin)).expect("a connection");
    let _ = socket.set_nodelay(true);
    let target = if proxy.is_some() {
        format!("http://{origin}/{size}")
    } else {
        format!("/{size}")
    };
    let request = format!("GET {target} HTTP/1.1\r\nHost: {origin}\r\nAccept: */*\r\n\r\n");
    let mut buffer = vec![0; 256 << 10];
    while !stop.load(Ordering::Relaxed) {
        socket
            .write_all(request.as_bytes())
            .expect("the request is taken");
        let (mut head, mut body) = (Vec::new(), None);
        loop {
            let read = socket.read(&mut buffer).expect("an answer");
            assert!(read > 0, "the connection is kept");
            let body_now = match body {
                Some(so_far) => so_far + read,
                None => {
                    head.extend_from_slice(&buffer[..read]);
                    let Some(end) = head.windows(4).position(|w| w == b"\r\n\r\n") else {
                        continue;
                    };
                    assert!(
                        head.starts_with(b"HTTP/1.1 200"),
                        "{}",
                        String::from_utf8_lossy(&head[..end])
                    );
                    head.len() - end - 4
                }
            };
            body = Some(body_now);
            if body_now >= size {
                assert_eq!(body_now, size, "not a byte more");
                break;
            }
        }
        done.fetch_add(1, Ordering::Relaxed);
    }
}

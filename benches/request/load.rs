//! The load for the benchmarks of the whole proxy: an origin, and clients with persistent
//! connections.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

/// The number of concurrent clients.
pub(crate) const CLIENTS: usize = 16;
/// A policy that allows all pages after it has evaluated URL, pace and content type.
pub(crate) const POLICY: &str = "policy: 1
name: bench
options:
  disposition: allow
  # Applied to every request, but too high to delay one.
  politeness: { delay: 0s, rate: 10000000/s, burst: 1000000, concurrency: 100000, jitter: none }
rules:
  - { id: no-cgi, forbid: { under: /cgi-bin }, log: true }
  - { id: no-sessions, forbid: { in_query: sid= } }
  - { id: no-archives, forbid: { ext: [zip, exe, iso] } }
  - { id: no-video, when: { content_type: \"video/*\" }, then: exclude }
";

/// Starts an origin that answers `/SIZE` with SIZE bytes, with one thread per connection.
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
        let mut response =
            format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {size}\r\n\r\n")
                .into_bytes();
        response.resize(response.len() + size, b'x');
        filled = 0;
        if socket.write_all(&response).is_err() {
            return;
        }
    }
}

/// Clients that request pages of one size until they are stopped. They check the length of each
/// response.
pub(crate) struct Clients {
    completed: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Clients {
    /// Starts clients that connect to the origin directly or through a proxy.
    pub(crate) fn start(origin: SocketAddr, proxy: Option<SocketAddr>, size: usize) -> Self {
        let completed = Arc::new(AtomicU64::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let threads = (0..CLIENTS)
            .map(|_| {
                let completed = Arc::clone(&completed);
                let stop = Arc::clone(&stop);
                thread::spawn(move || client(origin, proxy, size, &completed, &stop))
            })
            .collect();
        Self {
            completed,
            stop,
            threads,
        }
    }

    /// The number of responses so far.
    pub(crate) fn completed(&self) -> u64 {
        self.completed.load(Ordering::Relaxed)
    }

    /// Stops the clients after their current requests.
    pub(crate) fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("no client panics");
        }
    }
}

fn client(
    origin: SocketAddr,
    proxy: Option<SocketAddr>,
    size: usize,
    completed: &AtomicU64,
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
            .expect("the request is sent");
        let mut head = Vec::new();
        let mut body = None;
        loop {
            let read = socket.read(&mut buffer).expect("a response");
            assert!(read > 0, "the connection stays open");
            let received = match body {
                Some(before) => before + read,
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
            body = Some(received);
            if received >= size {
                assert_eq!(received, size, "the body has the announced length");
                break;
            }
        }
        completed.fetch_add(1, Ordering::Relaxed);
    }
}

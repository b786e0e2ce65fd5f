//! One request through the whole proxy: origin, clients and gate in one run, direct beside proxied.
//!
//! `cargo bench --bench request [-- SECONDS]`. Everything is on loopback and in one process, so what counts is the
//! ratio between the two and not the absolute figure: the clients' and the origin's work is in both.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a bench may panic and reads the time"
)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crawlgate::cli::serve::Server;
use crawlgate::config::settings::{Listener, LogTarget, Settings, Workers};
use crawlgate::policy::compile;
use crawlgate::policy::source::MemoryFiles;

/// Clients at once.
const CLIENTS: usize = 16;
const POLICY: &str = "policy: 1
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

fn main() {
    let seconds = std::env::args().skip(1).find_map(|a| a.parse().ok()).unwrap_or(2.0);
    let time = Duration::from_secs_f64(seconds);
    let origin = origin();
    let proxy = proxy();
    println!(
        "{CLIENTS} clients, {seconds} s each, loopback, checked answers; one worker thread in the proxy\n"
    );
    println!("{:<12}{:>14}{:>14}{:>10}", "body", "direct/s", "proxied/s", "ratio");
    for (name, size) in [("1 KiB", 1 << 10), ("64 KiB", 64 << 10), ("1 MiB", 1 << 20)] {
        // Interleaved and repeated, so that a machine that speeds up or slows down does so for both.
        let (mut direct, mut proxied) = (0.0, 0.0);
        for _ in 0..3 {
            direct += load(origin, None, size, time / 3);
            proxied += load(origin, Some(proxy), size, time / 3);
        }
        println!("{name:<12}{:>14.0}{:>14.0}{:>10.2}", direct / 3.0, proxied / 3.0, proxied / direct);
    }
}

fn proxy() -> SocketAddr {
    let (sender, receiver) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let mut settings =
            Settings { listen: vec![Listener::for_all(([127, 0, 0, 1], 0).into())], ..Settings::default() };
        settings.admin.listen = ([127, 0, 0, 1], 0).into();
        settings.logs.decisions = LogTarget::Nowhere;
        settings.egress.allow_loopback = true;
        settings.egress.ports = [1..=65535].into_iter().collect();
        settings.workers = Workers::Count(1);
        let policy =
            compile::load(&MemoryFiles::new().with("p.yaml", POLICY), "p.yaml", compile::Purpose::Serve)
                .expect("a policy")
                .policy;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let server = Server::start(&settings, policy).expect("a server");
            sender.send(server.proxy[0]).expect("the bench waits");
            std::future::pending::<()>().await;
        });
    });
    receiver.recv().expect("the proxy starts")
}

/// Answers `/SIZE` with so many bytes, on kept connections, a thread each.
fn origin() -> SocketAddr {
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
        let size: usize =
            head.split(' ').nth(1).and_then(|p| p.rsplit('/').next()?.parse().ok()).unwrap_or(0);
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

/// Requests a second, each answer's length checked.
fn load(origin: SocketAddr, proxy: Option<SocketAddr>, size: usize, time: Duration) -> f64 {
    let (done, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let (done, stop) = (Arc::clone(&done), Arc::clone(&stop));
            thread::spawn(move || client(origin, proxy, size, &done, &stop))
        })
        .collect();
    let began = Instant::now();
    thread::sleep(time);
    stop.store(true, Ordering::Relaxed);
    let rate = done.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64();
    for client in clients {
        client.join().expect("a client ends well");
    }
    rate
}

fn client(origin: SocketAddr, proxy: Option<SocketAddr>, size: usize, done: &AtomicU64, stop: &AtomicBool) {
    let mut socket = TcpStream::connect(proxy.unwrap_or(origin)).expect("a connection");
    let _ = socket.set_nodelay(true);
    let target = if proxy.is_some() { format!("http://{origin}/{size}") } else { format!("/{size}") };
    let request = format!("GET {target} HTTP/1.1\r\nHost: {origin}\r\nAccept: */*\r\n\r\n");
    let mut buffer = vec![0; 256 << 10];
    while !stop.load(Ordering::Relaxed) {
        socket.write_all(request.as_bytes()).expect("the request is taken");
        let (mut head, mut body) = (Vec::new(), None);
        loop {
            let read = socket.read(&mut buffer).expect("an answer");
            assert!(read > 0, "the connection is kept");
            let body_now = match body {
                Some(so_far) => so_far + read,
                None => {
                    head.extend_from_slice(&buffer[..read]);
                    let Some(end) = head.windows(4).position(|w| w == b"\r\n\r\n") else { continue };
                    assert!(head.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&head[..end]));
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

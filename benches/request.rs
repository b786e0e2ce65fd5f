//! Measures requests through the whole proxy and, for comparison, directly to the origin.
//!
//! `cargo bench --bench request [-- SECONDS]`. Origin, clients and proxy are on loopback and in one
//! process. The ratio of the two rates is the result, not the absolute rates: both include the work
//! of the clients and the origin.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a benchmark may panic and reads the clock"
)]

#[path = "request/load.rs"]
mod load;

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use crawlgate::config::settings::{ListenerConfig, Settings, WorkerCount};
use crawlgate::metrics::log::LogDestination;
use crawlgate::policy::compile;
use crawlgate::policy::source::MemoryFileSystem;
use crawlgate::server::Server;

use load::{CLIENTS, Clients, POLICY};

fn main() {
    let seconds = std::env::args()
        .skip(1)
        .find_map(|argument| argument.parse().ok())
        .unwrap_or(2.0);
    let time = Duration::from_secs_f64(seconds);
    let origin = load::origin();
    let proxy = proxy();
    println!(
        "{CLIENTS} clients, {seconds} s each, loopback, checked responses; one worker thread in the proxy\n"
    );
    println!(
        "{:<12}{:>14}{:>14}{:>10}",
        "body", "direct/s", "proxied/s", "ratio"
    );
    for (name, size) in [("1 KiB", 1 << 10), ("64 KiB", 64 << 10), ("1 MiB", 1 << 20)] {
        // Interleaved and repeated, so that changes of the machine's speed affect both rates.
        let mut direct = 0.0;
        let mut proxied = 0.0;
        for _ in 0..3 {
            direct += rate(origin, None, size, time / 3);
            proxied += rate(origin, Some(proxy), size, time / 3);
        }
        println!(
            "{name:<12}{:>14.0}{:>14.0}{:>10.2}",
            direct / 3.0,
            proxied / 3.0,
            proxied / direct
        );
    }
}

fn proxy() -> SocketAddr {
    let (sender, receiver) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let mut settings = Settings {
            listen: vec![ListenerConfig::for_all(([127, 0, 0, 1], 0).into())],
            ..Settings::default()
        };
        settings.admin.listen = ([127, 0, 0, 1], 0).into();
        settings.tls.intercept = false;
        settings.logs.destination = LogDestination::None;
        settings.egress.allow_loopback = true;
        settings.egress.ports = vec![1..=65535];
        settings.workers = WorkerCount::Count(1);
        let policy = compile::load(
            &MemoryFileSystem::new().with_file("p.yaml", POLICY),
            "p.yaml",
        )
        .expect("a policy")
        .policy;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let server = Server::start(&settings, policy).expect("a server");
            sender
                .send(server.proxy[0])
                .expect("the benchmark waits for the address");
            std::future::pending::<()>().await;
        });
    });
    receiver.recv().expect("the proxy starts")
}

/// Measures the requests per second, directly to the origin or through a proxy.
fn rate(origin: SocketAddr, proxy: Option<SocketAddr>, size: usize, time: Duration) -> f64 {
    let clients = Clients::start(origin, proxy, size);
    let start = Instant::now();
    thread::sleep(time);
    let rate = clients.completed() as f64 / start.elapsed().as_secs_f64();
    clients.stop();
    rate
}

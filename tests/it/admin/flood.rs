//! The admin listener under floods of connections: probes and scrapes are answered, and no client takes all places.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::AdminBench;

/// The time in which a probe must be answered: the shortest time-out that orchestrators use is 1 s.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// A request that holds its connection, since its body does not arrive.
const UNFINISHED: &str =
    "POST /api/v1/explain HTTP/1.1\r\nHost: {host}\r\nContent-Length: 9\r\n\r\n";

/// Connects from this address, and sends this text, in which `{host}` is the address of the listener.
async fn connect_from(source: &str, admin: SocketAddr, text: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket
        .bind(SocketAddr::new(source.parse().unwrap(), 0))
        .unwrap();
    let mut stream = socket.connect(admin).await.unwrap();
    let text = text.replace("{host}", &admin.to_string());
    // The server may have closed the connection already.
    let _ = stream.write_all(text.as_bytes()).await;
    stream
}

async fn answer(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    let read = tokio::time::timeout(PROBE_TIMEOUT, read).await;
    assert!(read.is_ok(), "no answer in {PROBE_TIMEOUT:?}: {answer:?}");
    String::from_utf8(answer).unwrap()
}

async fn check_probes(admin: SocketAddr, source: &str) {
    for path in ["/healthz", "/readyz", "/metrics"] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {{host}}\r\n\r\n");
        let answer = answer(connect_from(source, admin, &request).await).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{path}: {answer}");
    }
}

#[tokio::test]
async fn probes_are_answered_under_half_open_connections_of_one_address() {
    let bench = AdminBench::new(None).await;
    let mut flood = Vec::new();
    for _ in 0..200 {
        flood.push(connect_from("127.0.0.1", bench.address(), "GET /healthz HT").await);
    }
    check_probes(bench.address(), "127.0.0.2").await;
    check_probes(bench.address(), "127.0.0.1").await;
}

#[tokio::test]
async fn probes_are_answered_under_half_open_connections_of_many_addresses() {
    let bench = AdminBench::new(None).await;
    let mut flood = Vec::new();
    for n in 0..200 {
        let source = format!("127.0.{}.{}", 1 + n / 100, 1 + n % 100);
        flood.push(connect_from(&source, bench.address(), "GET /healthz HT").await);
    }
    check_probes(bench.address(), "127.0.0.1").await;
}

#[tokio::test]
async fn one_client_cannot_occupy_the_api_and_never_the_probes() {
    let bench = AdminBench::new(None).await;
    let mut flood = Vec::new();
    for _ in 0..100 {
        flood.push(connect_from("127.0.0.1", bench.address(), UNFINISHED).await);
    }
    check_probes(bench.address(), "127.0.0.1").await;
    let request = "GET /api/v1/status HTTP/1.1\r\nHost: {host}\r\n\r\n";
    let refused = answer(connect_from("127.0.0.1", bench.address(), request).await).await;
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    assert!(refused.contains("\r\nretry-after: "), "{refused}");
    let other = answer(connect_from("127.0.0.2", bench.address(), request).await).await;
    assert!(other.starts_with("HTTP/1.1 200 "), "{other}");
    drop(flood);
    // The places of connections that ended are free.
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let again = answer(connect_from("127.0.0.1", bench.address(), request).await).await;
        if again.starts_with("HTTP/1.1 200 ") {
            break;
        }
        assert!(Instant::now() < deadline, "{again}");
    }
}

#[tokio::test]
async fn a_head_that_drips_is_not_awaited_for_longer_than_one_that_stops() {
    let bench = AdminBench::new(None).await;
    let (mut read, mut write) =
        connect_from("127.0.0.1", bench.address(), "GET /healthz HTTP/1.1\r\n")
            .await
            .into_split();
    let began = Instant::now();
    let dripping = tokio::spawn(async move {
        while write.write_all(b"X-A: b\r\n").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(5), read.read_to_end(&mut rest))
        .await
        .expect("the server closes");
    assert!(began.elapsed() >= Duration::from_secs(1), "not at once");
    dripping.abort();
}

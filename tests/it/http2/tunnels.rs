//! HTTP/2 inside intercepted tunnels and on listeners with TLS, and CONNECT in streams.

use std::io::Read as _;
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::http2::{
    DATA, GOAWAY, Http2Client, PING, PREFACE, RawFrames, RawHttp2, RecordReader, field_section,
    frame, tls_over,
};
use crate::support::origin::{ScriptedOrigin, response};
use crate::support::proxy::TestProxy;
use crate::support::wait::TIMEOUT;
use crate::tunnel::inside::{builder, trusting};

use super::{POLICY, config, gate};

const BOTH: &[&[u8]] = &[b"h2", b"http/1.1"];

/// Opens a tunnel with an HTTP/1 CONNECT.
async fn tunnel(gate: &TestProxy, authority: &str) -> TcpStream {
    let mut socket = TcpStream::connect(gate.proxy).await.unwrap();
    let connect = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n");
    socket.write_all(connect.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(socket.read_u8().await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 200 "));
    socket
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_choose_http2_inside_an_intercepted_tunnel() {
    let gate = gate();
    let tls = trusting(&gate);
    let stream = tls_over(tunnel(&gate, "a.test:443").await, &tls, "a.test", BOTH).await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let client = Http2Client::over(stream).await;
    for _ in 0..2 {
        let refused = client.get("https://a.test/private", &[]).await;
        assert_eq!(
            (refused.status, refused.value("crawl-rule")),
            (451, "private")
        );
    }
    let other = client.get("https://b.test/private", &[]).await;
    assert_eq!(
        (other.status, other.value("crawl-reason")),
        (421, "host_mismatch")
    );
    let plain = client.get("http://a.test/private", &[]).await;
    assert_eq!(
        (plain.status, plain.value("crawl-reason")),
        (403, "scheme_denied")
    );
    assert_eq!(client.connect_to("a.test:443").await.err(), Some(405));
}

/// A proxy that refuses tunnels to b.test.
fn without_tls() -> TestProxy {
    TestProxy::start(
        &config("", ""),
        &POLICY.replace(
            "  - { id: refused-host",
            "  - { id: no-tls, when: { host: b.test }, set: { tls: reject } }\n  - { id: refused-host",
        ),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_tunnel_ends_after_its_refusal() {
    let gate = without_tls();
    let tls = trusting(&gate);
    let stream = tls_over(tunnel(&gate, "b.test:443").await, &tls, "b.test", BOTH).await;
    let client = Http2Client::over(stream).await;
    let refused = client.get("https://b.test/", &[]).await;
    assert_eq!(refused.value("crawl-rule"), "no-tls", "{refused:?}");
    // A client would repeat this request through another tunnel.
    let ended = async {
        let next = || http::Request::get("https://b.test/").body(()).unwrap();
        loop {
            if let Err(error) = client.send(next()).await {
                return error;
            }
        }
    };
    let error = tokio::time::timeout(TIMEOUT, ended).await.expect("an end");
    assert_eq!(error.reason(), Some(h2::Reason::NO_ERROR), "{error:?}");
}

/// Python's `h2` loses a response if it reads a PING after a GOAWAY in the same piece, curl fails a request that it sends
/// between a response and the GOAWAY, and a reset of the connection would destroy what is unread.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_tunnel_ends_with_one_goaway_and_no_reset() {
    let gate = without_tls();
    let tls = trusting(&gate);
    let socket = RecordReader::new(tunnel(&gate, "b.test:443").await);
    let mut stream = tls_over(socket, &tls, "b.test", BOTH).await;
    let head = field_section(&[
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", "b.test"),
        (":path", "/"),
    ]);
    let request = |number| frame(1, 0x5, number, &head);
    let start = [PREFACE, &frame(4, 0, 0, &[]), &request(1)].concat();
    stream.write_all(&start).await.unwrap();
    let mut frames = RawFrames::default();
    while !frames.has_ended(1) {
        frames.unread.reserve(16 << 10);
        let count = stream.read_buf(&mut frames.unread).await.unwrap();
        assert_ne!(count, 0, "{frames:?}");
        frames.parse();
    }
    let last = frames.frames.last().unwrap();
    assert_eq!(last.kind, GOAWAY, "in the record of the end: {frames:?}");
    // The proxy is closing the connection, or has done so.
    let more: Vec<u8> = (1..20).flat_map(|number| request(2 * number + 1)).collect();
    stream.write_all(&more).await.unwrap();
    let ended = async { while stream.read_buf(&mut frames.unread).await.expect("no reset") > 0 {} };
    tokio::time::timeout(TIMEOUT, ended).await.expect("an end");
    frames.parse();
    let all = &frames.frames;
    assert!(all.iter().all(|one| one.kind != PING), "{all:?}");
    let last = all.last().unwrap();
    assert_eq!(
        all.iter().filter(|one| one.kind == GOAWAY).count(),
        1,
        "{all:?}"
    );
    assert_eq!(
        (last.kind, &last.payload[4..]),
        (GOAWAY, &[0; 4][..]),
        "{all:?}"
    );
    let last_stream = u32::from_be_bytes(last.payload[..4].try_into().unwrap());
    for number in 0..20 {
        let stream = 2 * number + 1;
        assert_eq!(
            frames.has_ended(stream),
            stream <= last_stream,
            "stream {stream}: {all:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn http_1_can_be_the_only_version() {
    let gate = TestProxy::start(&config(", clients: false", ""), POLICY);
    let tls = trusting(&gate);
    let stream = tls_over(tunnel(&gate, "a.test:443").await, &tls, "a.test", BOTH).await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_can_be_a_tunnel() {
    let gate = gate();
    let origin = ScriptedOrigin::respond(|_| response(200, "", "inside"));
    let client = Http2Client::connect(gate.proxy).await;
    // HTTP/1 in the clear.
    let mut plain = client
        .connect_to(&format!("a.test:{}", origin.port))
        .await
        .unwrap();
    let get = format!(
        "GET / HTTP/1.1\r\nHost: a.test:{}\r\nConnection: close\r\n\r\n",
        origin.port
    );
    plain.write_all(get.as_bytes()).await.unwrap();
    let mut answer = String::new();
    plain.read_to_string(&mut answer).await.unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("inside"),
        "{answer}"
    );
    // HTTP/2 inside intercepted TLS inside a stream, beside a request of its own.
    let tls = trusting(&gate);
    let io = client.connect_to("a.test:443").await.unwrap();
    let inner = Http2Client::over(tls_over(io, &tls, "a.test", BOTH).await).await;
    let refused = inner.get("https://a.test/private", &[]).await;
    assert_eq!(
        (refused.status, refused.value("crawl-rule")),
        (451, "private")
    );
    let beside = client.get(&origin.url("a.test", "/"), &[]).await;
    assert_eq!(beside.body, "inside");
    // A refusal ends its stream only.
    assert_eq!(client.connect_to("a.test:0").await.err(), Some(400));
    let denied = TestProxy::start(
        &config("", "").replace("connect_ports: [1-65535]", "connect_ports: [443]"),
        POLICY,
    );
    let client = Http2Client::connect(denied.proxy).await;
    assert_eq!(client.connect_to("a.test:22").await.err(), Some(403));
    assert!(client.connect_to("a.test:443").await.is_ok());
}

/// A proxy that does not intercept TLS, which is spoken at this port.
fn without_interception(port: u16) -> TestProxy {
    let text = config("", "")
        .replace("tls: { intercept: true,", "tls: { intercept: false,")
        .replace(
            "ports: [1-65535]\n  hosts",
            &format!("ports: [1-65535]\n  tls_ports: [{port}]\n  hosts"),
        );
    // A rule on paths would leave a tunnel undecided.
    let policy = POLICY.replace("  - { id: private, forbid: { under: /private } }\n", "");
    TestProxy::start(&text, &policy)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_can_be_an_opaque_tunnel() {
    let origin = ScriptedOrigin::echo();
    let gate = without_interception(origin.port);
    let client = Http2Client::connect(gate.proxy).await;
    let mut io = client
        .connect_to(&format!("a.test:{}", origin.port))
        .await
        .unwrap();
    let hello = crate::tunnel::hello::hello(Some("a.test"));
    io.write_all(&hello).await.unwrap();
    let mut echoed = vec![0; hello.len()];
    io.read_exact(&mut echoed).await.unwrap();
    assert_eq!(echoed, hello);
    let large = vec![7; 100_000];
    io.write_all(&large).await.unwrap();
    let mut echoed = vec![0; large.len()];
    io.read_exact(&mut echoed).await.unwrap();
    assert_eq!(echoed, large);
    io.reset();
    tokio::task::block_in_place(|| {
        crate::support::wait::wait_until("the origin's connection ends", || {
            origin.ended_connections() == 1
        });
    });
}

/// The stream has ended in both directions, and the client's connection too, before the origin reads.
#[test]
fn what_a_tunnel_has_received_reaches_its_origin_at_a_shutdown() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut gate = without_interception(port);
    let (read_on, may_read) = std::sync::mpsc::channel();
    let origin = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        socket.shutdown(Shutdown::Write).unwrap();
        may_read.recv().unwrap();
        let mut received = Vec::new();
        socket.read_to_end(&mut received).map(|_| received.len())
    });
    let mut client = RawHttp2::connect(gate.proxy);
    let connect = field_section(&[
        (":method", "CONNECT"),
        (":authority", &format!("a.test:{port}")),
    ]);
    client.send(&frame(1, 0x4, 1, &connect));
    let hello = crate::tunnel::hello::hello(Some("a.test"));
    let mut frames = RawFrames::default();
    let sent = client.send_until_blocked(1, &hello, &mut frames);
    client.send(&frame(DATA, 1, 1, &[]));
    gate.signal("TERM");
    while let Some(received) = client.read_frame() {
        if received.kind == PING && received.flags == 0 {
            client.send(&frame(PING, 1, 0, &received.payload));
        }
        frames.frames.push(received);
    }
    assert!(frames.has_ended(1), "the origin's end has not arrived");
    drop(client);
    // A proxy that does not wait for the origin ends meanwhile.
    std::thread::sleep(Duration::from_secs(1));
    assert!(gate.is_running());
    read_on.send(()).unwrap();
    assert_eq!(origin.join().unwrap().unwrap(), sent);
    assert_eq!(gate.exit_within(TIMEOUT), Some(0));
}

/// Writes a certificate for `proxy.test`, with its key, beside the configuration.
fn certificate(directory: &std::path::Path) -> Arc<ClientConfig> {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(["proxy.test".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    std::fs::write(directory.join("listener.pem"), certificate.pem()).unwrap();
    let path = directory.join("listener.key");
    std::fs::write(&path, key.serialize_pem()).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let mut roots = RootCertStore::empty();
    let der = CertificateDer::from_pem_slice(certificate.pem().as_bytes()).unwrap();
    roots.add(der).unwrap();
    Arc::new(
        builder()
            .with_root_certificates(roots)
            .with_no_client_auth(),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_has_a_certificate() {
    let files = crate::support::temp_dir::TempDir::new();
    let tls = certificate(files.path());
    let directory = files.path().display();
    let listen = format!(
        "listen: [{{ addr: 127.0.0.1:0, tls: {{ cert: {directory}/listener.pem, key: {directory}/listener.key }} }}]"
    );
    let gate = TestProxy::start(
        &config("", "").replace("listen: 127.0.0.1:0\n", &format!("{listen}\n")),
        POLICY,
    );
    let origin = ScriptedOrigin::respond(|_| response(200, "", "over tls"));
    let connect = |protocols: &'static [&'static [u8]]| {
        let (tls, address) = (Arc::clone(&tls), gate.proxy);
        async move {
            let socket = TcpStream::connect(address).await.unwrap();
            tls_over(socket, &tls, "proxy.test", protocols).await
        }
    };
    let client = Http2Client::over(connect(BOTH).await).await;
    assert_eq!(
        client.get(&origin.url("a.test", "/"), &[]).await.body,
        "over tls"
    );
    // Interception inside a stream, and inside a CONNECT on HTTP/1.
    let trust = trusting(&gate);
    let io = client.connect_to("a.test:443").await.unwrap();
    let inner = Http2Client::over(tls_over(io, &trust, "a.test", BOTH).await).await;
    assert_eq!(inner.get("https://a.test/private", &[]).await.status, 451);
    let mut old = connect(&[b"http/1.1"]).await;
    old.write_all(b"CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n")
        .await
        .unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(old.read_u8().await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 200 "));
    let inner = Http2Client::over(tls_over(old, &trust, "a.test", BOTH).await).await;
    assert_eq!(inner.get("https://a.test/private", &[]).await.status, 451);
}

//! Metrics and logs of requests over sockets: bytes of uploads, look-ups, OPTIONS that end at the proxy, a full log.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use crate::support::client::exchange;
use crate::support::origin::{OK, Reply, ScriptedOrigin};
use crate::support::proxy::TestProxy;
use crate::support::wait::{TIMEOUT, wait_until};

const POLICY: &str = "
policy: 1
name: t
options: { disposition: allow, robots: { obey: false }, politeness: { delay: 0s, concurrency: 100 } }
rules: [{ id: refused, forbid: { under: /refused }, log: true }]
";

fn gate(logs: &str) -> TestProxy {
    let config = format!(
        "listen: 127.0.0.1:0\nadmin: {{ listen: 127.0.0.1:0 }}\negress: {{ allow_loopback: true, ports: [1-65535] }}\n\
         logs: {logs}\n"
    );
    TestProxy::start(&config, POLICY)
}

fn origin() -> SocketAddr {
    let response = OK.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
    let origin = ScriptedOrigin::respond(move |_| Reply::Last(response.clone().into()));
    (Ipv4Addr::LOCALHOST, origin.port).into()
}

#[test]
fn uploads_and_lookups_are_counted() {
    let gate = gate("{ decisions: none }");
    let host = format!("localhost:{}", origin().port());
    let body = "x".repeat(5_000);
    for (length, body) in [(5_000, body.as_str()), (0, "")] {
        let head = format!(
            "POST http://{host}/ HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {length}"
        );
        let answer = exchange(gate.proxy, format!("{head}\r\n\r\n{body}"));
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    for side in [
        "direction=\"received\",side=\"client\"",
        "direction=\"sent\",side=\"origin\"",
    ] {
        assert_eq!(
            gate.metric(&format!("crawlgate_bytes_total{{{side}}}")),
            5_000.0,
            "{side}"
        );
    }
    let lookups = gate.metric("crawlgate_dns_duration_seconds_count");
    assert_eq!(lookups, 1.0, "the name was known the second time");
}

#[test]
fn options_requests_that_end_at_the_proxy_are_evaluated_and_logged() {
    let gate = gate("{ decisions: stderr }");
    for (path, status) in [("/refused/x", "451"), ("/open", "200")] {
        let answer = exchange(
            gate.proxy,
            format!(
                "OPTIONS http://127.0.0.1:9{path} HTTP/1.1\r\nHost: 127.0.0.1:9\r\nMax-Forwards: 0\r\nConnection: close\r\n\r\n"
            ),
        );
        assert_eq!(answer.split(' ').nth(1), Some(status), "{answer}");
        assert_eq!(
            answer.to_ascii_lowercase().contains("\r\nallow: "),
            status == "200",
            "{answer}"
        );
    }
    wait_until("both requests are logged", || {
        gate.stderr().matches("\"method\":\"OPTIONS\"").count() >= 2
    });
    let output = gate.stderr();
    assert!(output.contains("/refused/x"), "{output}");
    assert!(output.contains("\"reason\":\"rule\""), "{output}");
    assert!(!output.contains("client_left"), "{output}");
}

/// An origin that reads everything and answers nothing; it reports the first bytes of a request.
fn silent_origin() -> (SocketAddr, mpsc::Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let (here, first) = mpsc::channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let here = here.clone();
            std::thread::spawn(move || {
                let mut bytes = [0; 4_096];
                while stream.read(&mut bytes).is_ok_and(|n| n > 0) {
                    let _ = here.send(());
                }
            });
        }
    });
    (address, first)
}

#[test]
fn a_client_that_leaves_while_it_uploads_is_no_failure_of_the_origin() {
    let gate = gate("{ decisions: stderr }");
    let (origin, first) = silent_origin();
    for framing in [
        // More than is read before the origin is contacted.
        format!("Content-Length: 50000\r\n\r\n{}", "x".repeat(20_000)),
        format!(
            "Transfer-Encoding: chunked\r\n\r\n5000\r\n{}\r\n",
            "x".repeat(0x5000)
        ),
    ] {
        let before = gate.stderr().matches("\"method\":\"POST\"").count();
        let mut stream = TcpStream::connect(gate.proxy).expect("it listens");
        let request = format!("POST http://{origin}/ HTTP/1.1\r\nHost: {origin}\r\n{framing}");
        stream.write_all(request.as_bytes()).expect("it reads");
        first.recv_timeout(TIMEOUT).expect("the origin has it");
        drop(stream);
        wait_until("the request is logged", || {
            gate.stderr().matches("\"method\":\"POST\"").count() > before
        });
    }
    let output = gate.stderr();
    assert_eq!(
        output.matches("\"error\":\"client_left\"").count(),
        2,
        "{output}"
    );
    assert!(!output.contains("bad_request"), "{output}");
    let text = gate.admin("GET /metrics").body;
    let errors = text
        .lines()
        .filter(|line| line.starts_with("crawlgate_upstream_errors_total"));
    assert!(
        errors.clone().all(|line| line.ends_with(" 0")),
        "{:?}",
        errors.collect::<Vec<_>>()
    );
}

#[test]
fn requests_wait_while_the_log_is_full() {
    let gate = gate("{ decisions: /dev/full, on_full: wait }");
    let mut stream = TcpStream::connect(gate.proxy).expect("it listens");
    stream
        .set_read_timeout(Some(Duration::from_millis(1_500)))
        .expect("a socket");
    // The log buffers 8 MiB; each line contains the whole URL.
    let request = format!(
        "GET http://h.example/refused/{} HTTP/1.1\r\nHost: h.example\r\n\r\n",
        "x".repeat(7_000)
    );
    let mut reader = BufReader::new(stream.try_clone().expect("a socket"));
    let mut answered = 0;
    let waits = loop {
        assert!(answered < 5_000, "nothing ever waits");
        stream.write_all(request.as_bytes()).expect("it reads");
        match read_answer(&mut reader) {
            Ok(()) => answered += 1,
            Err(error) => break error,
        }
    };
    assert!(
        matches!(waits, ErrorKind::WouldBlock | ErrorKind::TimedOut),
        "{waits:?} after {answered} answers"
    );
    assert!(answered > 500, "{answered} answers only");
    let ready = gate.admin("GET /readyz").body;
    assert!(ready.contains("warn decision_log"), "{ready}");
    assert_eq!(gate.metric("crawlgate_decision_log_dropped_total"), 0.0);
}

fn read_answer(reader: &mut impl BufRead) -> Result<(), ErrorKind> {
    let mut line = String::new();
    let mut length = 0;
    while line != "\r\n" {
        line.clear();
        if reader.read_line(&mut line).map_err(|error| error.kind())? == 0 {
            return Err(ErrorKind::UnexpectedEof);
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().expect("a length");
        }
    }
    reader
        .read_exact(&mut vec![0; length])
        .map_err(|error| error.kind())
}

#[test]
fn the_admin_listener_has_names_and_metrics_may_be_off() {
    let config = "listen: 127.0.0.1:0\nadmin: { listen: 127.0.0.1:0, names: [gate.test, \"other.test:81\"] }\n\
                  egress: { allow_loopback: true, ports: [1-65535] }\nlogs: { decisions: none }\n\
                  telemetry: { metrics: none }\n";
    let gate = TestProxy::start(config, POLICY);
    let origin = origin();
    let asked =
        format!("GET http://{origin}/ HTTP/1.1\r\nHost: {origin}\r\nConnection: close\r\n\r\n");
    let page = exchange(gate.proxy, &asked);
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    fn ask(gate: &TestProxy, host: &str) -> String {
        exchange(
            gate.admin,
            format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"),
        )
    }
    for (host, status) in [
        ("Gate.Test:9", "200"),
        ("gate.test", "200"),
        ("other.test:81", "200"),
        ("other.test", "403"),
        ("evil.test", "403"),
    ] {
        assert!(
            ask(&gate, host).starts_with(&format!("HTTP/1.1 {status}")),
            "{host}"
        );
    }
    let text = ask(&gate, "gate.test");
    assert!(
        text.contains("crawlgate_policy_info{policy=\"t\""),
        "{text}"
    );
    assert!(text.contains("process_open_fds"), "{text}");
    for family in [
        "requests_total",
        "decisions_total",
        "rule_matched_total",
        "connections",
        "hosts_tracked",
    ] {
        assert!(
            !text.contains(&format!("crawlgate_{family}")),
            "{family}: {text}"
        );
    }
}

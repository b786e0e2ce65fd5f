//! What operators see of requests over sockets: bytes of uploads, look-ups, OPTIONS that end here, a log that is full.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use crate::support::gate::Gate;

const LONG: Duration = Duration::from_secs(20);
const POLICY: &str = "
policy: 1
name: t
options: { disposition: allow, robots: { obey: false }, politeness: { delay: 0s, concurrency: 100 } }
rules: [{ id: refused, forbid: { under: /refused }, log: true }]
";

fn gate(logs: &str) -> Gate {
    let config = format!(
        "listen: 127.0.0.1:0\nadmin: {{ listen: 127.0.0.1:0 }}\negress: {{ allow_loopback: true, ports: [1-65535] }}\n\
         logs: {logs}\n"
    );
    Gate::start(&config, POLICY)
}

/// Sends bytes and reads what comes until the end of the connection.
fn exchange(to: SocketAddr, bytes: &str) -> String {
    let mut stream = TcpStream::connect(to).expect("it listens");
    stream.set_read_timeout(Some(LONG)).expect("a socket");
    stream.write_all(bytes.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .expect("it answers and closes");
    answer
}

fn metric(gate: &Gate, series: &str) -> f64 {
    let text = exchange(
        gate.admin,
        &format!("GET /metrics HTTP/1.1\r\nHost: {}\r\n\r\n", gate.admin),
    );
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    value
        .unwrap_or_else(|| panic!("no {series} in {text}"))
        .parse()
        .expect("a number")
}

/// An origin that reads whole requests of known length and answers them; each on a connection of its own.
fn origin() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut reader = BufReader::new(stream);
            let (mut line, mut length) = (String::new(), 0);
            while reader.read_line(&mut line).is_ok_and(|n| n > 0) && line != "\r\n" {
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().expect("a length");
                }
                line.clear();
            }
            let _ = reader.read_exact(&mut vec![0; length]);
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
            let _ = reader.get_mut().write_all(answer);
        }
    });
    address
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
        let answer = exchange(gate.proxy, &format!("{head}\r\n\r\n{body}"));
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    for side in [
        "direction=\"received\",side=\"client\"",
        "direction=\"sent\",side=\"origin\"",
    ] {
        assert_eq!(
            metric(&gate, &format!("crawlgate_bytes_total{{{side}}}")),
            5_000.0,
            "{side}"
        );
    }
    let lookups = metric(&gate, "crawlgate_dns_duration_seconds_count");
    assert_eq!(lookups, 1.0, "the name was known the second time");
}

#[test]
fn options_that_end_here_are_judged_and_logged() {
    let gate = gate("{ decisions: stderr }");
    for (path, status) in [("/refused/x", "451"), ("/open", "200")] {
        let answer = exchange(
            gate.proxy,
            &format!(
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
    let begun = std::time::Instant::now();
    while gate.said().matches("\"method\":\"OPTIONS\"").count() < 2 && begun.elapsed() < LONG {
        std::thread::yield_now();
    }
    let said = gate.said();
    assert!(
        said.contains("/refused/x") && said.contains("\"reason\":\"rule\""),
        "{said}"
    );
    assert!(!said.contains("client_left"), "{said}");
}

/// An origin that takes all and answers nothing; it reports a request's first bytes.
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
        "Content-Length: 5000\r\n\r\nabc",
        "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    ] {
        let before = gate.said().matches("\"method\":\"POST\"").count();
        let mut stream = TcpStream::connect(gate.proxy).expect("it listens");
        let request = format!("POST http://{origin}/ HTTP/1.1\r\nHost: {origin}\r\n{framing}");
        stream.write_all(request.as_bytes()).expect("it reads");
        first.recv_timeout(LONG).expect("the origin has it");
        drop(stream);
        let begun = std::time::Instant::now();
        while gate.said().matches("\"method\":\"POST\"").count() == before && begun.elapsed() < LONG
        {
            std::thread::yield_now();
        }
    }
    let said = gate.said();
    assert_eq!(
        said.matches("\"error\":\"client_left\"").count(),
        2,
        "{said}"
    );
    assert!(!said.contains("bad_request"), "{said}");
    let text = exchange(
        gate.admin,
        &format!("GET /metrics HTTP/1.1\r\nHost: {}\r\n\r\n", gate.admin),
    );
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
    // 8 MiB are kept; each line has the whole URL.
    let request = format!(
        "GET http://h.example/refused/{} HTTP/1.1\r\nHost: h.example\r\n\r\n",
        "x".repeat(7_000)
    );
    let (mut reader, mut answered) = (BufReader::new(stream.try_clone().expect("a socket")), 0);
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
    let ready = exchange(
        gate.admin,
        &format!("GET /readyz HTTP/1.1\r\nHost: {}\r\n\r\n", gate.admin),
    );
    assert!(ready.contains("warn decision_log"), "{ready}");
    assert_eq!(metric(&gate, "crawlgate_decision_log_dropped_total"), 0.0);
}

fn read_answer(reader: &mut impl BufRead) -> Result<(), ErrorKind> {
    let (mut line, mut length) = (String::new(), 0);
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
fn the_admin_listener_is_asked_by_its_names_and_counts_no_requests_where_that_is_asked_for() {
    let config = "listen: 127.0.0.1:0\nadmin: { listen: 127.0.0.1:0, names: [gate.test, \"other.test:81\"] }\n\
                  egress: { allow_loopback: true, ports: [1-65535] }\nlogs: { decisions: none }\n\
                  telemetry: { metrics: none }\n";
    let gate = Gate::start(config, POLICY);
    let origin = origin();
    let asked =
        format!("GET http://{origin}/ HTTP/1.1\r\nHost: {origin}\r\nConnection: close\r\n\r\n");
    let page = exchange(gate.proxy, &asked);
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    let ask = |host: &str| {
        exchange(
            gate.admin,
            &format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"),
        )
    };
    for (host, status) in [
        ("Gate.Test:9", "200"),
        ("gate.test", "200"),
        ("other.test:81", "200"),
        ("other.test", "403"),
        ("evil.test", "403"),
    ] {
        assert!(
            ask(host).starts_with(&format!("HTTP/1.1 {status}")),
            "{host}"
        );
    }
    let text = ask("gate.test");
    assert!(
        text.contains("crawlgate_policy_info{policy=\"t\"") && text.contains("process_open_fds"),
        "{text}"
    );
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

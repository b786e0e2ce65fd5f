//! Shutdown: requests in progress are finished, held ones are refused, new ones are not accepted; and immediate shutdown.

use std::fs::OpenOptions;
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::reload::{CONFIG, policy};
use crate::support::client::RawClient;
use crate::support::origin::{Reply, ScriptedOrigin};
use crate::support::proxy::TestProxy;
use crate::support::wait::TIMEOUT;
use crate::support::wait::wait_until;

/// An origin that never responds: a request to it delays the end of the drain.
fn silent_origin() -> ScriptedOrigin {
    ScriptedOrigin::respond(|_| Reply::Hang(Vec::new()))
}

/// A client whose request has reached the origin.
fn client_of(gate: &TestProxy, origin: &ScriptedOrigin) -> RawClient {
    let client = sent(gate.proxy, &origin.url("127.0.0.1", "/"));
    wait_until("the request arrives", || !origin.requests().is_empty());
    client
}

fn sent(proxy: SocketAddr, url: &str) -> RawClient {
    let mut client = RawClient::connect(proxy);
    client.send_get(url, "");
    client
}

#[test]
fn a_second_signal_cuts_the_drain_short() {
    let config = format!("{CONFIG}timeouts: {{ drain: 10m }}\n");
    let mut gate = TestProxy::start(&config, &policy("one", "deny"));
    let origin = silent_origin();
    let _under_way = client_of(&gate, &origin);
    gate.signal("TERM");
    wait_until("it drains", || gate.stderr().contains("SIGTERM"));
    assert!(gate.is_running());
    let begun = Instant::now();
    gate.signal("TERM");
    assert_eq!(gate.wait_for_exit(), Some(0));
    assert!(begun.elapsed() < TIMEOUT, "{:?}", begun.elapsed());
}

#[test]
fn a_drain_refuses_held_requests_and_closes_the_listener() {
    let config = format!("{CONFIG}timeouts: {{ drain: 10m }}\n");
    let slow =
        policy("one", "deny").replace("delay: 0s, concurrency: 100", "delay: 1m, max_hold: 1m");
    let mut gate = TestProxy::start(&config, &slow);
    let origin = silent_origin();
    let under_way = client_of(&gate, &origin);
    let mut waiting: Vec<RawClient> = (0..5)
        .map(|_| sent(gate.proxy, &origin.url("127.0.0.1", "/")))
        .collect();
    wait_until("they wait", || {
        gate.admin("GET /metrics")
            .body
            .contains("\ncrawlgate_held_requests 5\n")
    });
    assert_eq!(gate.admin("GET /readyz").status, 200);

    gate.signal("TERM");
    for client in &mut waiting {
        let answer = client.read_response();
        assert_eq!(
            (answer.status, answer.field("crawl-reason")),
            (503, Some("shutting_down"))
        );
        assert_eq!(answer.field("crawl-retry"), Some("after"));
        assert!(answer.field("retry-after").is_some());
        assert!(answer.field("connection") == Some("close"));
    }
    wait_until("the port is closed", || {
        TcpStream::connect(gate.proxy).is_err()
    });
    let ready = gate.admin("GET /readyz");
    assert!(ready.status == 503, "{}", ready.body);
    assert!(ready.body.contains("fail drain"), "{}", ready.body);
    assert!(gate.is_running(), "one request is still in progress");
    drop(under_way);
    assert_eq!(gate.wait_for_exit(), Some(0));
}

#[test]
fn balancers_get_time_to_notice() {
    let config = format!("{CONFIG}timeouts: {{ drain_delay: 10m }}\n");
    let mut gate = TestProxy::start(&config, &policy("one", "deny"));
    gate.signal("TERM");
    wait_until("readiness fails at once", || {
        gate.admin("GET /readyz").status == 503
    });
    let answer = RawClient::connect(gate.proxy).get("http://127.0.0.1:9/refused");
    assert_eq!(answer.status, 451, "it serves until balancers have noticed");
    assert_eq!(gate.admin("GET /healthz").status, 200);
    gate.signal("INT");
    assert_eq!(gate.wait_for_exit(), Some(0));
}

#[test]
fn an_unread_standard_error_does_not_block_requests() {
    // Decisions go there, too.
    let config = CONFIG.replace("logs: { decisions: none }", "logs: { decisions: stderr }");
    let mut gate = TestProxy::start(&config, &policy("one", "deny"));
    let output = gate.stderr_buffer();
    let unread = output.lock().expect("not poisoned");
    // One line for each request: together more than a pipe holds.
    for _ in 0..1_000 {
        let mut client = sent(gate.proxy, "ftp://unread.test/");
        assert_eq!(client.read_response().status, 403);
    }
    gate.signal("TERM");
    wait_until("it ends", || !gate.is_running());
    drop(unread);
    assert_eq!(gate.wait_for_exit(), Some(0));
    wait_until("the buffered output was larger than a pipe", || {
        gate.stderr().len() > 16 * 1024
    });
}

/// The decision log is a pipe that nobody reads: it can neither be written nor closed.
#[test]
fn a_second_signal_ends_the_process_whatever_hangs() {
    let config = CONFIG.replace("decisions: none", "decisions: log.pipe");
    let config = format!("{config}timeouts: {{ drain: 10m }}\n");
    let mut gate = TestProxy::start_with(&config, &policy("one", "deny"), |command| {
        let directory = command.get_current_dir().expect("its own");
        let made = Command::new("mkfifo")
            .arg(directory.join("log.pipe"))
            .status();
        assert!(made.expect("mkfifo").success());
        // Readable and writable: opening it does not wait for the other side.
        let pipe = OpenOptions::new()
            .read(true)
            .write(true)
            .open(directory.join("log.pipe"));
        std::mem::forget(pipe.expect("a pipe"));
    });
    let origin = silent_origin();
    let _under_way = client_of(&gate, &origin);
    for _ in 0..1_000 {
        let mut client = sent(gate.proxy, "ftp://unread.test/");
        assert_eq!(client.read_response().status, 403);
    }
    gate.signal("TERM");
    wait_until("it drains", || gate.stderr().contains("SIGTERM"));
    let begun = Instant::now();
    gate.signal("INT");
    assert_eq!(gate.exit_within(TIMEOUT), Some(0));
    let ended = begun.elapsed();
    assert!(ended < Duration::from_secs(5), "{ended:?}");
    let log = gate.stderr();
    assert!(
        log.contains("SIGTERM: completing running requests"),
        "{log}"
    );
    assert!(log.contains("a second signal"), "{log}");
}

//! Requests that are retried because their connection was closed: at the pace of the host, and not during
//! its rest.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use super::sockets::gate;
use crate::support::client::RawClient;
use crate::support::origin::{OK, ScriptedConnection, ScriptedOrigin, path_of};
use crate::support::proxy::TestProxy;
use crate::support::wait::wait_until;

const MS: Duration = Duration::from_millis(1);
const DELAY: Duration = Duration::from_millis(1_000);
/// The origin reads a request some time after its arrival; the time varies on a busy machine.
const EARLY: Duration = Duration::from_millis(60);
/// The time after which an idle connection may have been closed.
const IDLE: Duration = Duration::from_millis(1_300);

/// An origin whose first connection is closed when the second head is read and `closes` fires; `/busy` sends a Retry-After.
fn origin(closes: Receiver<()>) -> ScriptedOrigin {
    let closes = Mutex::new(closes);
    ScriptedOrigin::start(move |connection: &mut ScriptedConnection| {
        let mut first = true;
        while let Some(head) = connection.read_head() {
            if connection.number == 0 && !std::mem::take(&mut first) {
                let _ = closes.lock().unwrap().recv();
                return;
            }
            match path_of(&head) {
                "/busy" => connection
                    .send("HTTP/1.1 429 Too Many Requests\r\nRetry-After: 30\r\nContent-Length: 0\r\n\r\n"),
                _ => connection.send(OK),
            }
        }
    })
}

fn ask(gate: &TestProxy, origin: &ScriptedOrigin, path: &str) -> RawClient {
    let mut client = RawClient::connect(gate.proxy);
    let port = origin.port;
    client.send_get(&format!("http://a.test:{port}{path}"), "");
    client
}

/// A proxy with an idle connection, and a sender that closes the connection once the next head is read.
fn idle(politeness: &str) -> (TestProxy, ScriptedOrigin, Sender<()>) {
    let gate = gate(politeness);
    let (close, closes) = channel();
    let origin = origin(closes);
    assert_eq!(ask(&gate, &origin, "/first").read_response().status, 200);
    thread::sleep(IDLE);
    (gate, origin, close)
}

#[test]
fn a_retry_keeps_the_delay_to_its_first_attempt() {
    let (gate, origin, close) = idle("{ delay: 1s, jitter: none }");
    close.send(()).unwrap();
    let answer = ask(&gate, &origin, "/again").read_response();
    assert_eq!(answer.status, 200);
    assert_eq!(
        origin.paths(),
        ["/first", "/again", "/again"].map(str::to_owned).to_vec()
    );
    assert!(
        origin.shortest_gap() >= DELAY - EARLY,
        "{:?}",
        origin.shortest_gap()
    );
    assert_eq!(origin.connections(), 2);
}

#[test]
fn a_held_request_keeps_the_delay_to_a_retry() {
    let (gate, origin, close) = idle("{ delay: 1s, jitter: none, concurrency: 5, max_hold: 20s }");
    let mut again = ask(&gate, &origin, "/again");
    wait_until("the first copy is there", || origin.requests().len() == 2);
    let mut neighbours = ["/1", "/2"].map(|path| ask(&gate, &origin, path));
    // The requests wait for their turn when the connection is closed.
    thread::sleep(100 * MS);
    close.send(()).unwrap();
    for client in std::iter::once(&mut again).chain(&mut neighbours) {
        assert_eq!(client.read_response().status, 200);
    }
    let mut paths = origin.paths();
    assert_eq!(
        paths[..3],
        ["/first", "/again", "/again"],
        "it goes before those that came later"
    );
    paths.sort_unstable();
    assert_eq!(paths, ["/1", "/2", "/again", "/again", "/first"]);
    assert!(
        origin.shortest_gap() >= DELAY - EARLY,
        "{:?}",
        origin.requests()
    );
}

#[test]
fn a_resting_host_gets_no_retry() {
    let (gate, origin, close) =
        idle("{ delay: 300ms, jitter: none, concurrency: 5, max_hold: 1s }");
    let mut again = ask(&gate, &origin, "/again");
    wait_until("the first copy is there", || origin.requests().len() == 2);
    assert_eq!(ask(&gate, &origin, "/busy").read_response().status, 429);
    close.send(()).unwrap();
    let answer = again.read_response();
    assert_eq!(
        (answer.status, answer.field("crawl-reason")),
        (503, Some("host_backoff"))
    );
    let after: u64 = answer.field("retry-after").unwrap().parse().unwrap();
    assert!((20..=30).contains(&after), "{after}");
    thread::sleep(500 * MS);
    assert_eq!(origin.paths(), ["/first", "/again", "/busy"]);
}

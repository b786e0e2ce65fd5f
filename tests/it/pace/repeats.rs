//! Requests that are sent once more, since their connection was closed under them: at the host's pace, and not during
//! its rest.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::sockets::{Client, gate};
use crate::support::gate::Gate;
use crate::upstream::scripted::{OK, Origin, Visit, until};

const MS: Duration = Duration::from_millis(1);
const DELAY: Duration = Duration::from_millis(1_000);
/// The origin reads a request some time after it came, which differs on a busy machine.
const EARLY: Duration = Duration::from_millis(60);
/// Behind so long an idle connection may have been closed.
const IDLE: Duration = Duration::from_millis(1_300);

/// Requests as they come to the origin.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<(Instant, String)>>>);

impl Seen {
    fn note(&self, head: &str) {
        self.0
            .lock()
            .unwrap()
            .push((Instant::now(), path(head).to_owned()));
    }

    fn all(&self) -> Vec<(Instant, String)> {
        self.0.lock().unwrap().clone()
    }

    fn paths(&self) -> Vec<String> {
        self.all().into_iter().map(|(_, path)| path).collect()
    }

    fn least_gap(&self) -> Duration {
        self.all()
            .windows(2)
            .map(|pair| pair[1].0 - pair[0].0)
            .min()
            .expect("two requests")
    }
}

fn path(head: &str) -> &str {
    head.split(' ').nth(1).expect("a request line")
}

/// An origin whose first connection is closed when the second head is read and `closes` says so; `/busy` asks for rest.
fn origin(seen: &Seen, closes: Receiver<()>) -> Origin {
    let (seen, closes) = (seen.clone(), Mutex::new(closes));
    Origin::start(move |visit: &mut Visit| {
        let mut first = true;
        while let Some(head) = visit.request() {
            seen.note(&head);
            if visit.number == 0 && !std::mem::take(&mut first) {
                let _ = closes.lock().unwrap().recv();
                return;
            }
            match path(&head) {
                "/busy" => visit
                    .send("HTTP/1.1 429 Too Many Requests\r\nRetry-After: 30\r\nContent-Length: 0\r\n\r\n"),
                _ => visit.send(OK),
            }
        }
    })
}

fn ask(gate: &Gate, origin: &Origin, path: &str) -> Client {
    let mut client = Client::to(gate.proxy);
    let port = origin.port;
    client.send(&format!(
        "GET http://a.test:{port}{path} HTTP/1.1\r\nHost: a.test:{port}\r\n\r\n"
    ));
    client
}

/// A gate with an idle connection, and what closes it once the next head is read there.
fn idle(politeness: &str) -> (Gate, Origin, Seen, Sender<()>) {
    let (gate, seen, (close, closes)) = (gate(politeness), Seen::default(), channel());
    let origin = origin(&seen, closes);
    assert_eq!(ask(&gate, &origin, "/first").answer().unwrap().status, 200);
    thread::sleep(IDLE);
    (gate, origin, seen, close)
}

#[test]
fn what_is_sent_once_more_keeps_its_distance_to_itself() {
    let (gate, origin, seen, close) = idle("{ delay: 1s, jitter: none }");
    close.send(()).unwrap();
    let answer = ask(&gate, &origin, "/again").answer().unwrap();
    assert_eq!(
        (answer.status, seen.paths()),
        (
            200,
            ["/first", "/again", "/again"].map(str::to_owned).to_vec()
        )
    );
    assert!(seen.least_gap() >= DELAY - EARLY, "{:?}", seen.least_gap());
    assert_eq!(origin.connections(), 2);
}

#[test]
fn a_neighbour_that_waits_keeps_its_distance_to_what_is_sent_once_more() {
    let (gate, origin, seen, close) =
        idle("{ delay: 1s, jitter: none, concurrency: 5, max_hold: 20s }");
    let mut again = ask(&gate, &origin, "/again");
    until("the first copy is there", || seen.all().len() == 2);
    let mut neighbours = ["/1", "/2"].map(|path| ask(&gate, &origin, path));
    // They wait for their turn when the connection is closed.
    thread::sleep(100 * MS);
    close.send(()).unwrap();
    for client in std::iter::once(&mut again).chain(&mut neighbours) {
        assert_eq!(client.answer().unwrap().status, 200);
    }
    let mut paths = seen.paths();
    assert_eq!(
        paths[..3],
        ["/first", "/again", "/again"],
        "it goes before those that came later"
    );
    paths.sort_unstable();
    assert_eq!(paths, ["/1", "/2", "/again", "/again", "/first"]);
    assert!(seen.least_gap() >= DELAY - EARLY, "{:?}", seen.all());
}

#[test]
fn nothing_is_sent_once_more_during_a_rest() {
    let (gate, origin, seen, close) =
        idle("{ delay: 300ms, jitter: none, concurrency: 5, max_hold: 1s }");
    let mut again = ask(&gate, &origin, "/again");
    until("the first copy is there", || seen.all().len() == 2);
    assert_eq!(ask(&gate, &origin, "/busy").answer().unwrap().status, 429);
    close.send(()).unwrap();
    let answer = again.answer().unwrap();
    assert_eq!(
        (answer.status, answer.field("crawl-reason")),
        (503, Some("host_backoff"))
    );
    let after: u64 = answer.field("retry-after").unwrap().parse().unwrap();
    assert!((20..=30).contains(&after), "{after}");
    thread::sleep(500 * MS);
    assert_eq!(seen.paths(), ["/first", "/again", "/busy"]);
}

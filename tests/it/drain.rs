//! Going down: what is under way is finished, what waits is sent away, what is new is not begun; and going down at once.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Instant;

use crate::reload::{CONFIG, Client, LONG, admin, policy, until};
use crate::support::gate::Gate;

/// An origin that takes connections and never answers: a request to it holds the drain up.
struct Silent {
    listener: TcpListener,
    held: Vec<TcpStream>,
}

impl Silent {
    fn new() -> Self {
        Self {
            listener: TcpListener::bind("127.0.0.1:0").expect("a port"),
            held: Vec::new(),
        }
    }

    fn url(&self) -> String {
        format!(
            "http://{}/",
            self.listener.local_addr().expect("an address")
        )
    }

    /// A client whose request has arrived here.
    fn asked_through(&mut self, gate: &Gate) -> TcpStream {
        let client = sent(gate.proxy, &self.url());
        self.held
            .push(self.listener.accept().expect("the request arrives").0);
        client
    }
}

fn sent(proxy: SocketAddr, url: &str) -> TcpStream {
    let mut client = TcpStream::connect(proxy).expect("it listens");
    client
        .write_all(format!("GET {url} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes())
        .expect("it reads");
    client
}

#[test]
fn a_second_signal_cuts_the_drain_short() {
    let config = format!("{CONFIG}timeouts: {{ drain: 10m }}\n");
    let mut gate = Gate::start(&config, &policy("one", "deny"));
    let mut origin = Silent::new();
    let _under_way = origin.asked_through(&gate);
    gate.signal("TERM");
    until("it drains", || gate.said().contains("SIGTERM"));
    assert!(gate.is_up());
    let begun = Instant::now();
    gate.signal("TERM");
    assert_eq!(gate.ended(), Some(0));
    assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
}

#[test]
fn who_waits_is_sent_away_at_once_and_nobody_new_comes_in() {
    let config = format!("{CONFIG}timeouts: {{ drain: 10m }}\n");
    let slow =
        policy("one", "deny").replace("delay: 0s, concurrency: 100", "delay: 1m, max_hold: 1m");
    let mut gate = Gate::start(&config, &slow);
    let mut origin = Silent::new();
    let under_way = origin.asked_through(&gate);
    let mut waiting: Vec<Client> = (0..5)
        .map(|_| Client::of(sent(gate.proxy, &origin.url())))
        .collect();
    until("they wait", || {
        admin(&gate, "GET /metrics")
            .body
            .contains("\ncrawlgate_held_requests 5\n")
    });
    assert_eq!(admin(&gate, "GET /readyz").status, 200);

    gate.signal("TERM");
    for client in &mut waiting {
        let answer = client.answer();
        assert_eq!(
            (answer.status, answer.field("crawl-reason")),
            (503, Some("shutting_down"))
        );
        assert_eq!(answer.field("crawl-retry"), Some("after"));
        assert!(
            answer.field("retry-after").is_some() && answer.field("connection") == Some("close")
        );
    }
    until("the port is closed", || {
        TcpStream::connect(gate.proxy).is_err()
    });
    let ready = admin(&gate, "GET /readyz");
    assert!(
        ready.status == 503 && ready.body.contains("fail drain"),
        "{}",
        ready.body
    );
    assert!(gate.is_up(), "one request is under way still");
    drop((under_way, origin));
    assert_eq!(gate.ended(), Some(0));
}

#[test]
fn balancers_get_time_to_notice() {
    let config = format!("{CONFIG}timeouts: {{ drain_delay: 10m }}\n");
    let mut gate = Gate::start(&config, &policy("one", "deny"));
    gate.signal("TERM");
    until("readiness fails at once", || {
        admin(&gate, "GET /readyz").status == 503
    });
    let answer = Client::new(gate.proxy).get("http://127.0.0.1:9/refused");
    assert_eq!(answer.status, 451, "it serves until balancers have noticed");
    assert_eq!(admin(&gate, "GET /healthz").status, 200);
    gate.signal("INT");
    assert_eq!(gate.ended(), Some(0));
}

#[test]
fn a_standard_error_that_nobody_reads_holds_nothing_up() {
    // Decisions go there, too.
    let config = CONFIG.replace("logs: { decisions: none }", "logs: { decisions: stderr }");
    let mut gate = Gate::start(&config, &policy("one", "deny"));
    let said = gate.unread();
    let unread = said.lock().expect("not poisoned");
    // A line each is more than a pipe holds.
    for _ in 0..1_000 {
        let mut client = Client::of(sent(gate.proxy, "ftp://unread.test/"));
        assert_eq!(client.answer().status, 403);
    }
    gate.signal("TERM");
    until("it ends", || !gate.is_up());
    drop(unread);
    assert_eq!(gate.ended(), Some(0));
    until("it had said much", || gate.said().len() > 16 * 1024);
}

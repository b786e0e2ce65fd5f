//! One pace for a host, through whichever nodes its requests come.

use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::client::RawClient;
use crate::support::origin::{OK, ScriptedOrigin};
use crate::support::wait::wait_until;

use super::bench::FleetBench;

fn policy(politeness: &str) -> String {
    format!(
        "policy: 1\nname: pace\noptions:\n  disposition: allow\n  robots: {{ obey: false }}\n  politeness: {{ \
         {politeness}, adaptive: null }}\n"
    )
}

#[test]
fn requests_through_all_nodes_keep_one_pace() {
    let fleet = FleetBench::start(3, &policy("delay: 100ms, concurrency: 1"));
    fleet.set_owner("a.test", 0, 1);
    let origin = ScriptedOrigin::ok();
    let url = origin.url("a.test", "/");
    thread::scope(|scope| {
        for at in [0, 1, 2] {
            let (fleet, url) = (&fleet, &url);
            scope.spawn(move || {
                let mut client = fleet.client(at);
                for _ in 0..5 {
                    client.get(url).check(200, &[]);
                }
            });
        }
    });
    assert_eq!(origin.heads().len(), 15);
    // With a pace for each node, it would be a third of 100 ms. The threads of the origin may be late by some milliseconds.
    let shortest = origin.shortest_gap();
    assert!(shortest >= Duration::from_millis(80), "{shortest:?}");
    assert_eq!(
        fleet
            .lines(0, 15)
            .iter()
            .filter(|l| l["entry"].is_string())
            .count(),
        10
    );
}

#[test]
fn a_client_that_leaves_gives_up_its_place_at_the_owner() {
    let fleet = FleetBench::start(2, &policy("delay: 0s, concurrency: 1"));
    fleet.set_owner("a.test", 0, 1);
    let origin = ScriptedOrigin::start(|connection| {
        while let Some(request) = connection.read_request() {
            if request.path() == "/slow" {
                connection.wait_for_close();
                return;
            }
            connection.send(OK);
        }
    });
    let mut first = RawClient::connect(fleet.nodes[1].proxy);
    first.send_get(&origin.url("a.test", "/slow"), "");
    wait_until("the first is sent", || origin.heads().len() == 1);
    let mut second = RawClient::connect(fleet.nodes[1].proxy);
    second.send_get(&origin.url("a.test", "/second"), "");
    let held = "crawlgate_held_requests";
    wait_until("the second is held", || fleet.metric(0, held) == 1);
    drop(second);
    wait_until("the second has left", || fleet.metric(0, held) == 0);
    // The first leaves in the middle of its exchange, which frees the slot.
    drop(first);
    fleet
        .get(1, &origin.url("a.test", "/third"))
        .check(200, &["ok"]);
    assert_eq!(origin.paths(), ["/slow", "/third"]);
}

#[test]
fn the_wait_at_the_entry_counts_at_the_owner() {
    let fleet = FleetBench::start(2, &policy("delay: 0s, concurrency: 1"));
    fleet.set_owner("a.test", 0, 1);
    let origin = ScriptedOrigin::start(|connection| {
        connection.read_request();
        connection.wait_for_close();
    });
    let mut first = RawClient::connect(fleet.nodes[0].proxy);
    first.send_get(&origin.url("a.test", "/slow"), "");
    wait_until("the first is sent", || origin.heads().len() == 1);
    // 3 s in all, of which the entry waits 2 s for an owner.
    fleet.set_owner_at(1, "a.test", None);
    let url = origin.url("a.test", "/");
    let began = Instant::now();
    thread::scope(|scope| {
        let agent = "User-Agent: python-httpx/0.28\r\n";
        let answer = scope.spawn(|| fleet.client(1).get_with(&url, agent));
        thread::sleep(Duration::from_secs(2));
        fleet.set_owner_at(1, "a.test", Some((0, 1)));
        let answer = answer.join().unwrap();
        answer.check(503, &["crawl-reason: rate_limited"]);
    });
    let waited = began.elapsed();
    assert!(waited < Duration::from_millis(4_700), "{waited:?}");
}

#[test]
fn sixty_crawlers_at_three_nodes_cause_one_fetch_of_a_robots_txt() {
    let fleet = FleetBench::start(
        3,
        "policy: 1\nname: robots\noptions:\n  disposition: allow\n  politeness: { delay: 0s, concurrency: 100, \
         adaptive: null }\n",
    );
    fleet.set_owner("a.test", 0, 1);
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let closed = Arc::clone(&gate);
    let origin = ScriptedOrigin::start(move |connection| {
        while let Some(request) = connection.read_request() {
            if request.path() == "/robots.txt" {
                let (is_open, opened) = &*closed;
                let guard = is_open.lock().unwrap();
                drop(opened.wait_while(guard, |is_open| !*is_open).unwrap());
            }
            connection.send(OK);
        }
    });
    let url = origin.url("a.test", "/");
    thread::scope(|scope| {
        for at in (0..60).map(|crawler| crawler % 3) {
            let (fleet, url) = (&fleet, &url);
            scope.spawn(move || fleet.get(at, url).check(200, &["ok"]));
        }
        wait_until("all of them are held", || {
            fleet.metric(0, "crawlgate_held_requests") == 60
        });
        *gate.0.lock().unwrap() = true;
        gate.1.notify_all();
    });
    let paths = origin.paths();
    let fetches = paths.iter().filter(|path| *path == "/robots.txt").count();
    assert_eq!((fetches, paths.len()), (1, 61));
}

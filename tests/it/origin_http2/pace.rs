//! The pace of hosts whose requests share a connection.

use std::thread::scope;
use std::time::Duration;

use crate::origin_tls::certs::Authority;
use crate::support::client::RawClient;
use crate::support::http2_origin::{Http2Origin, Http2Reply};

use super::gate_with;

const MS: Duration = Duration::from_millis(1);

#[test]
fn crawlers_at_once_keep_one_delay_on_one_connection() {
    let ours = Authority::new();
    let gate = gate_with(&ours, "{ delay: 200ms, jitter: none, concurrency: 10 }", "");
    // The responses take longer than the delay, so that streams overlap.
    let origin = Http2Origin::start(&ours.server(&["a.test"]), |_| Http2Reply {
        delay: 300 * MS,
        ..Http2Reply::text("x")
    });
    scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut client = RawClient::connect(gate.proxy);
                for page in 0..4 {
                    let answer = client.get(&origin.url("a.test", &format!("/{page}")));
                    assert_eq!(answer.status, 200, "{answer}");
                }
            });
        }
    });
    let log = origin.log();
    assert_eq!((log.requests.len(), log.connections), (12, 1));
    assert!(log.most_open > 1);
    let gap = origin.shortest_gap();
    assert!(gap >= 170 * MS, "{gap:?}");
}

#[test]
fn concurrency_counts_streams() {
    let ours = Authority::new();
    let gate = gate_with(&ours, "{ delay: 0s, concurrency: 3 }", "");
    let origin = Http2Origin::start(&ours.server(&["a.test"]), |_| Http2Reply {
        delay: 20 * MS,
        ..Http2Reply::text("x")
    });
    scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                let mut client = RawClient::connect(gate.proxy);
                for _ in 0..5 {
                    assert_eq!(client.get(&origin.url("a.test", "/")).status, 200);
                }
            });
        }
    });
    let log = origin.log();
    assert_eq!((log.requests.len(), log.most_open), (60, 3));
    // The first requests may each have dialled, before the version of the origin was known.
    assert!(log.connections <= 3, "{}", log.connections);
}

/// Of the requests that wait, half leave: no fetch for those.
#[test]
fn requests_that_leave_while_they_wait_cause_no_stream() {
    let ours = Authority::new();
    let gate = gate_with(&ours, "{ delay: 100ms, jitter: none, concurrency: 10 }", "");
    let origin = Http2Origin::start(&ours.server(&["a.test"]), |_| Http2Reply::text("x"));
    let mut clients: Vec<_> = (0..20)
        .map(|number| {
            let mut client = RawClient::connect(gate.proxy);
            client.send_get(&origin.url("a.test", &format!("/{number}")), "");
            (number, client)
        })
        .collect();
    clients.retain(|(number, _)| number % 2 == 0);
    for (_, client) in &mut clients {
        assert_eq!(client.read_response().status, 200);
    }
    let odd = origin.log().requests.into_iter().filter(|request| {
        let number: usize = request.uri.path()[1..].parse().unwrap();
        number % 2 == 1
    });
    // Some had their turn before their clients left.
    assert!(odd.count() <= 3);
    let gap = origin.shortest_gap();
    assert!(gap >= 70 * MS, "{gap:?}");
}

//! Owners that change, are not known, or die: a request finds the new one, or is refused, and is never sent twice.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::origin_tls::certs::Authority;
use crate::support::client::{RawClient, reset_on_close};
use crate::support::origin::{OK, ScriptedOrigin};
use crate::support::wait::wait_until;

use super::bench::{BenchSettings, FleetBench, POLICY};

/// The field of a crawler whose requests are held for 3 s at most.
const IMPATIENT: &str = "User-Agent: python-httpx/0.28\r\n";

#[test]
fn a_node_that_does_not_own_the_host_says_so_and_the_entry_finds_the_owner() {
    let fleet = FleetBench::start(3, POLICY);
    let origin = ScriptedOrigin::ok();
    fleet.set_owner("a.test", 2, 7);
    // `b` has an old table, in which `a` is the owner.
    fleet.set_owner_at(1, "a.test", Some((0, 6)));
    let moved = "crawlgate_fleet_forwarded_total{result=\"moved\"}";
    thread::scope(|scope| {
        let answer = scope.spawn(|| fleet.get(1, &origin.url("a.test", "/")));
        wait_until("a has refused it", || fleet.metric(1, moved) > 0);
        assert!(origin.heads().is_empty());
        fleet.set_owner_at(1, "a.test", Some((2, 7)));
        answer.join().unwrap().check(200, &["ok"]);
    });
    assert_eq!(origin.heads().len(), 1);
    assert_eq!(fleet.lines(2, 1)[0]["entry"], "b");
    for at in [0, 1] {
        assert!(fleet.lines(at, 0).is_empty());
    }
}

#[test]
fn two_nodes_that_name_each_other_do_not_send_a_request_around() {
    let fleet = FleetBench::start(2, POLICY);
    let origin = ScriptedOrigin::ok();
    fleet.set_owner_at(0, "a.test", Some((1, 1)));
    fleet.set_owner_at(1, "a.test", Some((0, 1)));
    let answer = fleet
        .client(0)
        .get_with(&origin.url("a.test", "/"), IMPATIENT);
    answer.check(
        503,
        &[
            "crawl-reason: owner_unavailable",
            "crawl-retry: after",
            // The rest of the lease.
            "retry-after: 12",
        ],
    );
    assert!(origin.heads().is_empty());
    let line = &fleet.lines(0, 1)[0];
    assert_eq!(
        (&line["reason"], &line["stage"]),
        (&"owner_unavailable".into(), &"pace".into())
    );
    assert!(fleet.lines(1, 0).is_empty());
}

#[test]
fn a_request_waits_for_an_owner_at_most_as_long_as_it_may_be_held() {
    let fleet = FleetBench::start(2, POLICY);
    let origin = ScriptedOrigin::ok();
    let url = origin.url("a.test", "/");
    let began = Instant::now();
    fleet
        .client(0)
        .get_with(&url, IMPATIENT)
        .check(503, &["owner_unavailable"]);
    let waited = began.elapsed();
    assert!(waited >= Duration::from_secs(3), "{waited:?}");
    // One that gets an owner meanwhile is served, here or there.
    for owner in [0, 1] {
        fleet.set_owner_at(0, "a.test", None);
        thread::scope(|scope| {
            let answer = scope.spawn(|| fleet.get(0, &url));
            thread::sleep(Duration::from_millis(200));
            fleet.set_owner("a.test", owner, 1);
            answer.join().unwrap().check(200, &["ok"]);
        });
    }
}

#[test]
fn a_body_goes_to_the_new_owner_if_it_has_not_begun() {
    let fleet = FleetBench::start(3, POLICY);
    let origin = ScriptedOrigin::ok();
    fleet.set_owner("a.test", 2, 7);
    fleet.set_owner_at(1, "a.test", Some((0, 6)));
    let moved = "crawlgate_fleet_forwarded_total{result=\"moved\"}";
    let request = format!(
        "POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
        origin.url("a.test", "/")
    );
    thread::scope(|scope| {
        let answer = scope.spawn(|| fleet.client(1).request(request));
        wait_until("a has refused it", || fleet.metric(1, moved) > 0);
        fleet.set_owner_at(1, "a.test", Some((2, 7)));
        answer.join().unwrap().check(200, &["ok"]);
    });
    assert_eq!(origin.requests()[0].body, b"hello");
}

/// Makes `b` take for the owner something that reads one request and then ends, as a process that is killed. Returns
/// the thread that it runs on.
fn dying_owner(fleet: &FleetBench) -> thread::JoinHandle<()> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    fleet.set_owner_at(1, "a.test", Some((0, 1)));
    fleet.publish_with_address(1, 0, address);
    thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        drop(listener);
        let _ = socket.read(&mut [0; 4096]);
        reset_on_close(&socket);
    })
}

#[test]
fn a_request_whose_owner_dies_is_repeated_only_if_that_is_safe() {
    let settings = BenchSettings {
        without_tls: true,
        ..BenchSettings::default()
    };
    let fleet = FleetBench::start_with(3, POLICY, &settings);
    let origin = ScriptedOrigin::ok();
    fleet.set_owner("a.test", 2, 2);
    let lost = "crawlgate_fleet_forwarded_total{result=\"lost\"}";
    let url = origin.url("a.test", "/");
    // A GET goes to the new owner.
    let dying = dying_owner(&fleet);
    thread::scope(|scope| {
        let answer = scope.spawn(|| fleet.get(1, &url));
        wait_until("the link is lost", || fleet.metric(1, lost) == 1);
        fleet.set_owner_at(1, "a.test", Some((2, 2)));
        answer.join().unwrap().check(200, &["ok"]);
    });
    dying.join().unwrap();
    // A POST is not sent again: the owner may have sent it.
    let dying = dying_owner(&fleet);
    let post = format!("POST {url} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
    let answer = fleet.client(1).request(post);
    answer.check(502, &["crawl-reason: owner_unavailable"]);
    dying.join().unwrap();
    assert_eq!(origin.heads().len(), 1);
    assert_eq!(fleet.metric(1, lost), 2);
}

#[test]
fn a_request_is_repeated_on_a_new_link() {
    let settings = BenchSettings {
        without_tls: true,
        ..BenchSettings::default()
    };
    let fleet = FleetBench::start_with(3, POLICY, &settings);
    let origin = ScriptedOrigin::ok();
    fleet.set_owner("a.test", 2, 2);
    fleet.set_owner_at(1, "a.test", Some((0, 1)));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    fleet.publish_with_address(1, 0, listener.local_addr().unwrap());
    let url = origin.url("a.test", "/");
    // An owner that answers on two links, and then ends with the next request on each.
    let owner = thread::spawn(move || {
        let mut links = [(); 2].map(|()| listener.accept().unwrap().0);
        for link in &mut links {
            assert!(link.read(&mut [0; 4096]).unwrap() > 0);
        }
        for link in &mut links {
            link.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                .unwrap();
        }
        drop(listener);
        for mut link in links {
            thread::spawn(move || {
                let _ = link.read(&mut [0; 4096]);
                reset_on_close(&link);
            });
        }
    });
    thread::scope(|scope| {
        for answer in [(); 2].map(|()| scope.spawn(|| fleet.get(1, &url))) {
            answer.join().unwrap().check(200, &["ok"]);
        }
    });
    owner.join().unwrap();
    let lost = "crawlgate_fleet_forwarded_total{result=\"lost\"}";
    thread::scope(|scope| {
        let answer = scope.spawn(|| fleet.get(1, &url));
        wait_until("a link is lost", || fleet.metric(1, lost) == 1);
        fleet.set_owner_at(1, "a.test", Some((2, 2)));
        answer.join().unwrap().check(200, &["ok"]);
    });
    assert_eq!(fleet.metric(1, lost), 1);
}

#[test]
fn a_node_that_has_ended_is_not_reached_and_the_link_is_reported() {
    let mut fleet = FleetBench::start(2, POLICY);
    let origin = ScriptedOrigin::ok();
    fleet.set_owner("a.test", 0, 1);
    fleet.get(1, &origin.url("a.test", "/")).check(200, &[]);
    fleet.kill(0);
    let answer = fleet
        .client(1)
        .get_with(&origin.url("a.test", "/"), IMPATIENT);
    answer.check(503, &["crawl-reason: owner_unavailable"]);
    assert!(
        fleet.ready(1).contains("warn links: a:"),
        "{}",
        fleet.ready(1)
    );
    // A new owner takes over.
    fleet.set_owner("a.test", 1, 2);
    fleet.get(1, &origin.url("a.test", "/")).check(200, &[]);
}

/// A policy with one request at a time and host.
const SLOW: &str = "policy: 1
name: slow
options:
  disposition: allow
  robots: { obey: false }
  politeness: { delay: 0s, concurrency: 1, adaptive: null }
";

#[test]
fn a_request_that_is_held_moves_to_the_new_owner() {
    let fleet = FleetBench::start(2, SLOW);
    let origin = slow_origin();
    fleet.set_owner("a.test", 0, 1);
    let _first = occupy(&fleet, 0, &origin);
    let url = origin.url("a.test", "/next");
    let held = "crawlgate_held_requests";
    thread::scope(|scope| {
        // One of its own crawler, one that `b` has forwarded.
        let own = scope.spawn(|| fleet.get(0, &url));
        let forwarded = scope.spawn(|| fleet.get(1, &url));
        wait_until("both are held", || fleet.metric(0, held) == 2);
        fleet.set_owner("a.test", 1, 2);
        for answer in [own, forwarded] {
            answer.join().unwrap().check(200, &["ok"]);
        }
    });
    assert_eq!(fleet.metric(0, held), 0);
    let lines = fleet.lines(1, 2);
    assert_eq!(lines.iter().filter(|line| line["entry"] == "a").count(), 1);
}

#[test]
fn nothing_is_sent_after_the_end_of_the_lease() {
    let fleet = FleetBench::start(1, SLOW);
    let origin = ScriptedOrigin::ok();
    fleet.set_owner("a.test", 0, 1);
    let url = origin.url("a.test", "/");
    fleet.get(0, &url).check(200, &[]);
    fleet.end_lease(0);
    let answer = fleet.client(0).get_with(&url, IMPATIENT);
    answer.check(503, &["crawl-reason: owner_unavailable"]);
    assert_eq!(origin.heads().len(), 1);
}

#[test]
fn a_rewrite_to_the_host_of_another_owner_is_refused_at_once() {
    let rewriting =
        format!("{SLOW}  replace: [{{ regex: '//a\\.test', with: '//b.test', rewrite: true }}]\n");
    let fleet = FleetBench::start(2, &rewriting);
    let origin = ScriptedOrigin::ok();
    fleet.set_owner("a.test", 0, 1);
    for other in [None, Some((1, 1))] {
        (0..2).for_each(|at| fleet.set_owner_at(at, "b.test", other));
        for at in [0, 1] {
            let began = Instant::now();
            let answer = fleet.get(at, &origin.url("a.test", "/"));
            answer.check(503, &["crawl-reason: owner_unavailable"]);
            let waited = began.elapsed();
            assert!(waited < Duration::from_secs(2), "{at}: {waited:?}");
        }
    }
    let moved = "crawlgate_fleet_forwarded_total{result=\"moved\"}";
    assert_eq!(fleet.metric(1, moved), 0);
    // Nothing else is in the way.
    fleet.set_owner("b.test", 0, 2);
    fleet.get(1, &origin.url("a.test", "/")).check(200, &["ok"]);
    assert_eq!(origin.heads().len(), 1);
}

#[test]
fn a_request_whose_owner_hangs_is_ended_once_the_owner_is_silent() {
    let settings = BenchSettings {
        without_tls: true,
        ..BenchSettings::default()
    };
    let fleet = FleetBench::start_with(3, POLICY, &settings);
    let origin = ScriptedOrigin::ok();
    fleet.set_owner("a.test", 2, 2);
    let url = origin.url("a.test", "/");
    let lost = "crawlgate_fleet_forwarded_total{result=\"lost\"}";
    for (method, status, lost_before) in [("GET", 200, 0), ("POST", 502, 1)] {
        let hanging = TcpListener::bind("127.0.0.1:0").unwrap();
        fleet.set_owner_at(1, "a.test", Some((0, 1)));
        fleet.publish_with_address(1, 0, hanging.local_addr().unwrap());
        let request = format!("{method} {url} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
        thread::scope(|scope| {
            let answer = scope.spawn(|| fleet.client(1).request(request));
            let (mut socket, _) = hanging.accept().unwrap();
            assert!(socket.read(&mut [0; 4096]).unwrap() > 0);
            // A new owner alone does not end it: the earlier one may have given the host away in order.
            fleet.set_owner_at(1, "a.test", Some((2, 2)));
            thread::sleep(Duration::from_millis(200));
            assert_eq!(fleet.metric(1, lost), lost_before);
            fleet.publish_silent(1, 0);
            answer.join().unwrap().check(status, &[]);
        });
        assert_eq!(fleet.metric(1, lost), lost_before + 1);
    }
    assert_eq!(origin.heads().len(), 1);
}

/// Makes `b` reach `a` through something that carries bytes until it is cut: then it takes them, and carries none on.
fn cuttable_link(fleet: &FleetBench, is_cut: &Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    fleet.publish_with_address(1, 0, listener.local_addr().unwrap());
    let (address, is_cut) = (fleet.links(0), Arc::clone(is_cut));
    thread::spawn(move || {
        while let Ok((near, _)) = listener.accept() {
            relay(near, address, &is_cut);
        }
    });
}

fn relay(near: TcpStream, address: SocketAddr, is_cut: &Arc<AtomicBool>) {
    let far = TcpStream::connect(address).unwrap();
    let (to_far, to_near) = (far.try_clone().unwrap(), near.try_clone().unwrap());
    for (from, to) in [(near, to_far), (far, to_near)] {
        let is_cut = Arc::clone(is_cut);
        thread::spawn(move || carry(from, to, &is_cut));
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, is_cut: &AtomicBool) {
    let mut bytes = [0; 4096];
    while let Ok(length @ 1..) = from.read(&mut bytes) {
        if !is_cut.load(Ordering::Relaxed) && to.write_all(&bytes[..length]).is_err() {
            return;
        }
    }
}

#[test]
fn a_request_on_a_link_that_is_cut_does_not_wait_for_ever() {
    let fleet = FleetBench::start(2, POLICY);
    let origin = slow_origin();
    fleet.set_owner("a.test", 0, 1);
    let is_cut = Arc::new(AtomicBool::new(false));
    cuttable_link(&fleet, &is_cut);
    let url = origin.url("a.test", "/slow");
    thread::scope(|scope| {
        let send = |method: &str| {
            let request = format!(
                "{method} {url} HTTP/1.1\r\nHost: x\r\n{IMPATIENT}Content-Length: 0\r\n\r\n"
            );
            let mut client = fleet.client(1);
            scope.spawn(move || client.request(request))
        };
        let (get, post) = (send("GET"), send("POST"));
        wait_until("both are at the origin", || origin.heads().len() == 2);
        is_cut.store(true, Ordering::Relaxed);
        let of_owner = "crawl-reason: owner_unavailable";
        get.join().unwrap().check(503, &[of_owner]);
        post.join().unwrap().check(502, &[of_owner]);
    });
    let ready = fleet.ready(1);
    assert!(ready.contains("warn links: a:"), "{ready}");
    is_cut.store(false, Ordering::Relaxed);
    let url = origin.url("a.test", "/");
    fleet.get(1, &url).check(200, &["ok"]);
}

/// As while it is drained.
#[test]
fn a_request_goes_on_while_its_owner_takes_no_new_links() {
    let fleet = FleetBench::start(2, POLICY);
    let (answer, waiting) = mpsc::channel::<()>();
    let waiting = Mutex::new(waiting);
    let origin = ScriptedOrigin::respond(move |_| {
        // An error: the test has dropped the other side.
        let _ = waiting.lock().unwrap().recv();
        OK
    });
    fleet.set_owner("a.test", 0, 1);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    fleet.publish_with_address(1, 0, listener.local_addr().unwrap());
    let address = fleet.links(0);
    thread::spawn(move || {
        let (near, _) = listener.accept().unwrap();
        drop(listener);
        relay(near, address, &Arc::default());
    });
    let url = origin.url("a.test", "/");
    thread::scope(|scope| {
        let response = scope.spawn(|| fleet.get(1, &url));
        wait_until("it is at the origin", || origin.heads().len() == 1);
        // The entry tries a new link each second, a fifth of the lease.
        thread::sleep(Duration::from_millis(2_500));
        drop(answer);
        response.join().unwrap().check(200, &["ok"]);
    });
    assert_eq!(origin.heads().len(), 1);
    let ready = fleet.ready(1);
    assert!(!ready.contains("links: a"), "{ready}");
}

/// An origin that never answers for `/slow`.
fn slow_origin() -> ScriptedOrigin {
    ScriptedOrigin::start(|connection| {
        while let Some(request) = connection.read_request() {
            if request.path() == "/slow" {
                connection.wait_for_close();
                return;
            }
            connection.send(OK);
        }
    })
}

/// Takes the only slot of the host at its owner.
fn occupy(fleet: &FleetBench, at: usize, origin: &ScriptedOrigin) -> RawClient {
    let before = origin.heads().len();
    let mut client = fleet.client(at);
    client.send_get(&origin.url("a.test", "/slow"), "");
    wait_until("it is sent", || origin.heads().len() == before + 1);
    client
}

#[test]
fn a_request_that_moves_is_not_held_longer_in_all() {
    let fleet = FleetBench::start(2, SLOW);
    let origin = slow_origin();
    fleet.set_owner("a.test", 1, 1);
    let _at_b = occupy(&fleet, 1, &origin);
    fleet.set_owner("a.test", 0, 2);
    let _at_a = occupy(&fleet, 0, &origin);
    // 3 s in all, of which its own node holds it for 2 s.
    let url = origin.url("a.test", "/");
    let began = Instant::now();
    thread::scope(|scope| {
        let answer = scope.spawn(|| fleet.client(0).get_with(&url, IMPATIENT));
        thread::sleep(Duration::from_secs(2));
        fleet.set_owner("a.test", 1, 3);
        let answer = answer.join().unwrap();
        answer.check(503, &["crawl-reason: rate_limited"]);
    });
    let waited = began.elapsed();
    assert!(waited < Duration::from_millis(4_700), "{waited:?}");
}

#[test]
fn a_tunnel_that_is_held_moves_to_the_new_owner() {
    for at in [0, 1] {
        let fleet = FleetBench::start(2, &SLOW.replace("delay: 0s", "delay: 5s"));
        let origin = ScriptedOrigin::ok();
        fleet.set_owner("a.test", 0, 1);
        fleet.get(0, &origin.url("a.test", "/")).check(200, &[]);
        let authority = format!("a.test:{}", origin.port);
        let began = Instant::now();
        thread::scope(|scope| {
            let opened = scope.spawn(|| RawClient::tunnel_to(fleet.nodes[at].proxy, &authority));
            thread::sleep(Duration::from_millis(500));
            fleet.set_owner("a.test", 1, 2);
            // The new owner opens it.
            opened.join().unwrap();
        });
        assert!(began.elapsed() < Duration::from_secs(4), "{at}");
        let moved = "crawlgate_fleet_forwarded_total{result=\"moved\"}";
        assert_eq!(fleet.metric(1, moved), at as u64);
    }
}

/// An origin over TLS whose first handshake waits until the sender sends something or is dropped.
fn slow_to_connect() -> (ScriptedOrigin, mpsc::Sender<()>) {
    let server = Authority::new().server(&["a.test"]);
    let (release, released) = mpsc::channel();
    let released = Mutex::new(Some(released));
    let origin = ScriptedOrigin::start(move |connection| {
        connection.peek_client_hello();
        let first = released.lock().unwrap().take();
        if let Some(released) = first {
            let _ = released.recv();
        }
        if let Some(mut stream) = connection.accept_tls(&server) {
            connection.serve_stream(&mut stream, &|_| OK.to_owned());
        }
    });
    (origin, release)
}

#[test]
fn a_request_that_is_connecting_moves_to_the_new_owner() {
    let settings = BenchSettings {
        config: "tls: { intercept: false, verify_upstream: false }\n",
        ..BenchSettings::default()
    };
    for (at, method) in [(0, "GET"), (0, "POST"), (1, "GET")] {
        let fleet = FleetBench::start_with(2, POLICY, &settings);
        let (origin, release) = slow_to_connect();
        fleet.set_owner("a.test", 0, 1);
        let url = origin.https_url("a.test", "/page?x=1");
        let body = if method == "POST" { "hello" } else { "" };
        let request = format!(
            "{method} {url} HTTP/1.1\r\nHost: a.test:{}\r\nX-Own: 1\r\nContent-Length: {}\r\n\r\n{body}",
            origin.port,
            body.len()
        );
        thread::scope(|scope| {
            let answer = scope.spawn(|| fleet.client(at).request(request));
            wait_until("a node connects", || {
                let logs = origin.connection_logs();
                logs.first().is_some_and(|log| log.client_hello.is_some())
            });
            for node in [0, 1] {
                fleet.set_owner_at(node, "a.test", None);
            }
            drop(release);
            wait_until("the connection is dropped", || {
                origin.ended_connections() == 1
            });
            assert!(!answer.is_finished(), "{at} {method}");
            fleet.set_owner("a.test", 1, 2);
            answer.join().unwrap().check(200, &["ok"]);
        });
        let requests = origin.requests();
        assert_eq!(requests.len(), 1, "{at} {method}");
        assert_eq!(requests[0].path(), "/page?x=1");
        assert_eq!(requests[0].body, body.as_bytes());
        assert!(
            requests[0].head.contains("x-own: 1"),
            "{}",
            requests[0].head
        );
        let line = &fleet.lines(1, 1)[0];
        assert_eq!(line["verdict"], "allow", "{line}");
        assert_eq!(line["entry"] == "a", at == 0, "{line}");
        assert!(fleet.lines(0, 0).is_empty());
    }
}

#[test]
fn a_request_that_is_connecting_goes_on_at_its_node_if_that_owns_the_host_again() {
    let settings = BenchSettings {
        config: "tls: { intercept: false, verify_upstream: false }\n",
        ..BenchSettings::default()
    };
    let fleet = FleetBench::start_with(1, POLICY, &settings);
    let (origin, release) = slow_to_connect();
    fleet.set_owner("a.test", 0, 1);
    let url = origin.https_url("a.test", "/");
    thread::scope(|scope| {
        let answer = scope.spawn(|| fleet.get(0, &url));
        wait_until("it connects", || origin.connections() == 1);
        fleet.set_owner("a.test", 0, 2);
        drop(release);
        answer.join().unwrap().check(200, &["ok"]);
    });
    assert_eq!(origin.heads().len(), 1);
    assert_eq!(fleet.lines(0, 1)[0]["verdict"], "allow");
}

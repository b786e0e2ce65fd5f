//! The delay, the rest and the robots.txt of a host survive its owner: one that gives the host away. Delay and rest also
//! survive one that is killed.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value as Json;

use crate::node::{
    LEASE, NodeConfig, NodeProcess, PARTITIONS, TAKEOVER, wait_for, wait_until_shared,
};
use crate::server::{PASSWORD, Postgres};

/// Longer than a host waits for a new owner.
const DELAY: Duration = Duration::from_secs(14);
const POLICY: &str = "policy: 1\nname: handover\noptions:\n  disposition: allow\n  \
    politeness: { delay: 14s, jitter: none, concurrency: 1, adaptive: null, max_hold: 60s }\n";
const WITHOUT_ROBOTS: &str = "  robots: { obey: false }\n";
const ROBOTS: &str = "User-agent: *\nDisallow: /private\n";
/// The seconds for which a host rests.
const REST: u64 = 300;
const HOSTS: usize = 24;

/// An origin that asks for a rest at `/rest`, and has a robots.txt.
struct RestingOrigin {
    port: u16,
    arrivals: Arc<Mutex<Vec<(String, Instant)>>>,
}

impl RestingOrigin {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let arrivals = Arc::default();
        let log: Arc<Mutex<Vec<_>>> = Arc::clone(&arrivals);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut reader = BufReader::new(stream.unwrap());
                let head: Vec<String> = reader
                    .by_ref()
                    .lines()
                    .map_while(Result::ok)
                    .take_while(|line| !line.is_empty())
                    .collect();
                let Some(host) = head.iter().find_map(|line| {
                    let (name, value) = line.split_once(": ")?;
                    name.eq_ignore_ascii_case("host").then(|| value.to_owned())
                }) else {
                    continue;
                };
                let host = host.split(':').next().unwrap().to_owned();
                log.lock().unwrap().push((host, Instant::now()));
                let status = match head[0].contains("/rest") {
                    true => format!("429 Too Many Requests\r\nRetry-After: {REST}"),
                    false => "200 OK".to_owned(),
                };
                let body = match head[0].contains("/robots.txt") {
                    true => ROBOTS,
                    false => "",
                };
                let length = body.len();
                let answer = format!(
                    "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
                );
                let _ = reader.get_mut().write_all(answer.as_bytes());
            }
        });
        Self { port, arrivals }
    }

    /// The time between the last two requests to a host.
    fn last_gap(&self, host: &str) -> Duration {
        let arrivals = self.arrivals.lock().unwrap();
        let times: Vec<Instant> = arrivals
            .iter()
            .filter(|(asked, _)| asked == host)
            .map(|(_, at)| *at)
            .collect();
        let [.., before, last] = times.as_slice() else {
            panic!("{host}: {arrivals:?}");
        };
        *last - *before
    }

    /// The number of requests to a host.
    fn count(&self, host: &str) -> usize {
        let arrivals = self.arrivals.lock().unwrap();
        arrivals.iter().filter(|(asked, _)| asked == host).count()
    }

    /// Asks for a page of a host through a node; returns the head of the answer.
    fn get(&self, node: &NodeProcess, host: &str, path: &str) -> String {
        let mut answer = String::new();
        let mut stream = self.send(node, host, path, Duration::from_secs(90));
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Asks for a page of a host that rests, and leaves after a while.
    fn ask_in_vain(&self, node: &NodeProcess, host: &str) {
        let mut stream = self.send(node, host, "/", Duration::from_secs(2));
        assert!(stream.read(&mut [0; 1]).is_err());
    }

    fn send(&self, node: &NodeProcess, host: &str, path: &str, timeout: Duration) -> TcpStream {
        let mut stream = TcpStream::connect(&node.proxy).unwrap();
        stream.set_read_timeout(Some(timeout)).unwrap();
        let port = self.port;
        write!(
            stream,
            "GET http://{host}:{port}{path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        stream
    }
}

fn configure(name: &str, url: &str, policy: &str) -> NodeConfig {
    let hosts: Vec<String> = (0..HOSTS)
        .map(|number| format!("h{number}.test: 127.0.0.1"))
        .collect();
    let store = format!("store: {{ kind: postgres, path: state, url: \"{url}\", timeout: 1s }}");
    let fleet = format!(
        "fleet: {{ node: {name}, listen: 127.0.0.1:0, lease: 5s }}\npolicy: {{ path: policy.yaml }}\n\
         egress: {{ allow_loopback: true, ports: [\"1-65535\"], hosts: {{ {} }} }}",
        hosts.join(", ")
    );
    let config = NodeConfig::with_sections(&store, &fleet);
    std::fs::write(config.path().join("policy.yaml"), policy).unwrap();
    config
}

/// Hosts that a node owns.
fn hosts_of(config: &NodeConfig, node: &str) -> Vec<String> {
    let names = (0..HOSTS).map(|number| format!("h{number}.test"));
    let is_own = |host: &String| {
        let (_, text) = config.run(&format!("fleet owner {host}"));
        text.starts_with(&format!("{host}: {node}"))
    };
    names.filter(is_own).collect()
}

/// The milliseconds for which a node lets a host rest.
fn rest_at(node: &NodeProcess, host: &str) -> Option<u64> {
    let (_, text) = node.get(&format!("/api/v1/hosts/{host}"))?;
    let document: Json = serde_json::from_str(&text).ok()?;
    document["resting"]["for_ms"].as_u64()
}

fn is_right(rest: u64, since: Instant) -> bool {
    let left = REST * 1_000 - u64::try_from(since.elapsed().as_millis()).unwrap();
    // Written, read and rounded.
    rest >= left && rest < left + 10_000
}

#[test]
fn the_delay_and_the_rest_of_a_host_survive_its_owner() {
    let Some(postgres) = Postgres::start() else {
        return;
    };
    let url = postgres.url("crawlgate", PASSWORD);
    let policy = format!("{POLICY}{WITHOUT_ROBOTS}");
    let configs = ["a", "b", "c"].map(|name| configure(name, &url, &policy));
    let (code, text) = configs[0].run("fleet found");
    assert_eq!(code, 0, "{text}");
    let origin = RestingOrigin::start();
    let mut a = NodeProcess::start(&configs[0]);
    let b = NodeProcess::start(&configs[1]);
    wait_until_shared(&a, &b);
    let own = hosts_of(&configs[0], "a");
    let [slow, resting, ..] = own.as_slice() else {
        panic!("{own:?}");
    };

    // The owner gives the hosts away.
    let rest_began = Instant::now();
    assert!(origin.get(&b, resting, "/rest").starts_with("HTTP/1.1 429"));
    assert!(origin.get(&b, slow, "/").starts_with("HTTP/1.1 200"));
    let asked = Instant::now();
    std::thread::sleep(LEASE);
    a.signal("TERM");
    let answer = std::thread::scope(|scope| {
        let answer = scope.spawn(|| origin.get(&b, slow, "/"));
        a.wait();
        wait_for("b owns all", TAKEOVER, || b.own() == PARTITIONS);
        println!("given away after {:?}", asked.elapsed());
        answer.join().unwrap()
    });
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let gap = origin.last_gap(slow);
    println!("a host that was given away: {gap:?} between two requests");
    // Without its state, it would have waited for its delay from the takeover on.
    assert!(gap >= DELAY - Duration::from_millis(5), "{gap:?}");
    assert!(gap < DELAY + LEASE, "{gap:?}");
    let rest = rest_at(&b, resting).unwrap();
    assert!(is_right(rest, rest_began), "{rest}");

    // The owner is killed.
    let c = NodeProcess::start(&configs[2]);
    wait_until_shared(&b, &c);
    let own = hosts_of(&configs[0], "b");
    let mut others = own.iter().filter(|host| *host != slow && *host != resting);
    let (slow, strict) = (others.next().unwrap(), others.next().unwrap());
    let strict_began = Instant::now();
    assert!(origin.get(&c, strict, "/rest").starts_with("HTTP/1.1 429"));
    assert!(origin.get(&c, slow, "/").starts_with("HTTP/1.1 200"));
    let row =
        format!("select cause, strikes, until_ms > 0 from crawlgate_rest where host = '{strict}'");
    wait_for("the rest is written", Duration::from_secs(5), || {
        postgres.sql(&row) == "retry_after|1|t"
    });
    b.kill();
    let killed = Instant::now();
    let answer = origin.get(&c, slow, "/");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let gap = origin.last_gap(slow);
    println!(
        "a host of a killed node: {gap:?} between two requests, {:?} after the end",
        killed.elapsed()
    );
    assert!(gap >= DELAY + LEASE * 7 / 10, "{gap:?}");
    for (host, began) in [(strict, strict_began), (resting, rest_began)] {
        // The second one rested at the node that gave it away.
        let rest = rest_at(&c, host).unwrap();
        assert!(is_right(rest, began), "{host}: {rest}");
        let asked = origin.count(host);
        origin.ask_in_vain(&c, host);
        assert_eq!(origin.count(host), asked);
    }
}

#[test]
fn a_host_keeps_its_delay_and_its_robots_txt_over_a_restart_of_the_only_node() {
    let Some(postgres) = Postgres::start() else {
        return;
    };
    let url = postgres.url("crawlgate", PASSWORD);
    let config = configure("a", &url, POLICY);
    let (code, text) = config.run("fleet found");
    assert_eq!(code, 0, "{text}");
    let origin = RestingOrigin::start();
    let mut a = NodeProcess::start(&config);
    wait_for("a owns all", TAKEOVER, || a.own() == PARTITIONS);
    // No node has owned the hosts before, so that nothing waits.
    let is_fetched = |a: &NodeProcess, host: &str| {
        let stream = origin.send(a, host, "/", Duration::from_secs(90));
        wait_for("robots.txt is fetched", DELAY / 2, || {
            origin.count(host) == 1
        });
        stream
    };
    let mut first = String::new();
    let mut stream = is_fetched(&a, "h0.test");
    stream.read_to_string(&mut first).unwrap();
    assert!(first.starts_with("HTTP/1.1 200"), "{first}");
    assert_eq!(origin.count("h0.test"), 2);
    std::thread::sleep(LEASE);
    a.signal("TERM");
    a.wait();
    let a = NodeProcess::start(&config);
    let answer = origin.get(&a, "h0.test", "/");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let gap = origin.last_gap("h0.test");
    println!("a restart: {gap:?} between two requests");
    assert!(gap >= DELAY - Duration::from_millis(5), "{gap:?}");
    assert!(gap < DELAY + LEASE, "{gap:?}");
    // The robots.txt is known.
    let answer = origin.get(&a, "h0.test", "/private");
    assert!(answer.contains("robots_txt"), "{answer}");
    assert_eq!(origin.count("h0.test"), 3);
    // A host that was not asked need not wait.
    drop(is_fetched(&a, "h1.test"));
}

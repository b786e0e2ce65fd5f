//! Responses are broken off before another node may own their host: after the store was lost, and after a pause of the process.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::node::{LEASE, NodeConfig, NodeProcess, PARTITIONS, wait_for};
use crate::server::{PASSWORD, Postgres};

const HOSTS: [&str; 8] = [
    "h0.test", "h1.test", "h2.test", "h3.test", "h4.test", "h5.test", "h6.test", "h7.test",
];

/// Starts an origin that sends the beginning of each response, and never its end. Returns its port.
fn stalling_origin() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = socket.unwrap();
            thread::spawn(move || {
                let _ = socket.read(&mut [0; 4096]);
                let _ = socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\npart");
                let _ = socket.read(&mut [0; 1]);
            });
        }
    });
    port
}

fn config(name: &str, url: &str) -> NodeConfig {
    let hosts = HOSTS.map(|host| format!("{host}: 127.0.0.1")).join(", ");
    let store = format!("store: {{ kind: postgres, path: state, url: \"{url}\", timeout: 1s }}");
    let fleet = format!(
        "fleet: {{ node: {name}, listen: 127.0.0.1:0, lease: 5s }}
policy: {{ path: policy.yaml, watch: false }}
egress: {{ ports: [1-65535], allow_loopback: true, hosts: {{ {hosts} }} }}"
    );
    let config = NodeConfig::with_sections(&store, &fleet);
    let policy = "policy: 1
name: lapse
options: { disposition: allow, robots: { obey: false }, politeness: { delay: 0s, concurrency: 10 } }
";
    std::fs::write(config.path().join("policy.yaml"), policy).unwrap();
    config
}

/// Begins a response of the first host that node `a` owns.
fn begin_response(a: &NodeConfig, node: &NodeProcess, port: u16) -> TcpStream {
    let owned = |host: &&str| a.run(&format!("fleet owner {host}")).1.contains(": a");
    let host = HOSTS.into_iter().find(owned).expect("a host of node a");
    let mut client = TcpStream::connect(&node.proxy).unwrap();
    let limit = Some(4 * LEASE);
    client.set_read_timeout(limit).unwrap();
    write!(
        client,
        "GET http://{host}:{port}/ HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n"
    )
    .unwrap();
    let mut text = Vec::new();
    let mut byte = [0];
    while !text.ends_with(b"part") {
        let read = client.read(&mut byte).unwrap();
        assert_eq!(read, 1, "{}", String::from_utf8_lossy(&text));
        text.push(byte[0]);
    }
    assert!(text.starts_with(b"HTTP/1.1 200 "));
    client
}

/// Waits until a response is broken off. Returns the time that it took.
fn wait_broken(client: &mut TcpStream) -> Duration {
    let began = Instant::now();
    let end = client.read(&mut [0]).map_err(|error| error.kind());
    assert_eq!(end, Err(ErrorKind::ConnectionReset));
    began.elapsed()
}

#[test]
fn responses_are_broken_off_before_another_node_may_send() {
    let Some(mut postgres) = Postgres::start() else {
        return;
    };
    let url = postgres.url("crawlgate", PASSWORD);
    let port = stalling_origin();
    let (a, b) = (config("a", &url), config("b", &url));
    let (code, text) = a.run("fleet found");
    assert_eq!(code, 0, "{text}");
    let [node_a, node_b] = [&a, &b].map(NodeProcess::start);
    let is_shared = || {
        let own = [node_a.own(), node_b.own()];
        own.iter().sum::<u64>() == PARTITIONS && own.iter().all(|own| *own > PARTITIONS / 4)
    };
    wait_for("two share", 12 * LEASE, is_shared);

    // The process stands still until the other node owns all.
    let mut client = begin_response(&a, &node_a, port);
    node_a.signal("STOP");
    wait_for("the other owns all", 4 * LEASE, || {
        node_b.own() == PARTITIONS
    });
    node_a.signal("CONT");
    let time = wait_broken(&mut client);
    println!("broken off {time:?} after a pause");
    assert!(time < LEASE / 5, "{time:?}");
    wait_for("two share again", 12 * LEASE, is_shared);

    // The lease ends 0.8 after the last renewal, which was sent up to a fifth of one before.
    let mut client = begin_response(&a, &node_a, port);
    postgres.kill();
    let time = wait_broken(&mut client);
    println!("broken off {time:?} after the store was lost");
    assert!(time > LEASE * 7 / 10, "too early: {time:?}");
    assert!(time < LEASE + LEASE / 10, "too late: {time:?}");
    assert_eq!(node_a.own(), 0);
}

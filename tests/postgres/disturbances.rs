//! Poolers, old servers, full disks, clocks that differ, and shared addresses: each is refused, reported, or harmless.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use crate::node::{
    LEASE, NodeConfig, NodeProcess, PARTITIONS, TAKEOVER, wait_for, wait_until_shared,
};
use crate::pooler::Pooler;
use crate::server::{PASSWORD, Postgres};

#[test]
fn a_pooler_must_not_share_server_connections() {
    let Some(postgres) = Postgres::start() else {
        return;
    };
    let (Some(by_transaction), Some(by_session)) = (
        Pooler::start(&postgres, "transaction"),
        Pooler::start(&postgres, "session"),
    ) else {
        return;
    };
    let (code, text) =
        NodeConfig::new("a", &postgres.url("crawlgate", PASSWORD)).run("fleet found");
    assert_eq!(code, 0, "{text}");
    let (code, text) = NodeConfig::new("a", &by_transaction.url()).run("run");
    assert_eq!(code, 3, "{text}");
    assert!(text.contains("pool_mode = session"), "{text}");

    let config = NodeConfig::new("b", &by_session.url());
    let node = NodeProcess::start(&config);
    wait_for("the node owns all", TAKEOVER, || node.own() == PARTITIONS);
}

/// Reads a message of a client; the first one has no type.
fn read_message(stream: &mut TcpStream, has_type: bool) -> Option<(u8, Vec<u8>)> {
    let mut kind = [0];
    if has_type {
        stream.read_exact(&mut kind).ok()?;
    }
    let mut length = [0; 4];
    stream.read_exact(&mut length).ok()?;
    let mut body = vec![0; u32::from_be_bytes(length) as usize - 4];
    stream.read_exact(&mut body).ok()?;
    Some((kind[0], body))
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap();
    [&[kind], &length.to_be_bytes()[..], body].concat()
}

/// A server of an earlier release that accepts writes: it answers the question for that, and nothing else.
fn serve_old(listener: &TcpListener) {
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        if read_message(&mut stream, false).is_none() {
            continue;
        }
        let greeting = [
            message(b'R', &0_u32.to_be_bytes()),
            message(b'S', b"server_version\x0012.22\0"),
            message(b'K', &[0; 8]),
            message(b'Z', b"I"),
        ];
        stream.write_all(&greeting.concat()).unwrap();
        while let Some((kind, _)) = read_message(&mut stream, true) {
            let mut column = b"transaction_read_only\0".to_vec();
            column.extend([
                0, 0, 0, 0, 0, 0, 0, 0, 0, 25, 255, 255, 255, 255, 255, 255, 0, 0,
            ]);
            let answer = [
                message(b'T', &[&[0, 1], &column[..]].concat()),
                message(b'D', b"\0\x01\0\0\0\x03off"),
                message(b'C', b"SHOW\0"),
                message(b'Z', b"I"),
            ];
            if kind != b'Q' || stream.write_all(&answer.concat()).is_err() {
                break;
            }
        }
    }
}

#[test]
fn an_old_server_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || serve_old(&listener));
    let url = format!("postgresql://crawlgate:{PASSWORD}@127.0.0.1:{port}/fleet");
    for command in ["run", "fleet found"] {
        let (code, text) = NodeConfig::new("a", &url).run(command);
        assert_eq!(code, 3, "{text}");
        assert!(
            text.contains("PostgreSQL 12.22; 13 is the oldest"),
            "{text}"
        );
    }
}

/// The error of a server whose disk is full when it must write a page.
const FULL: &str = "create function full_disk() returns trigger language plpgsql as $$ begin
    raise exception using errcode = '53100', message = 'could not extend file: No space left on device';
    end $$";

#[test]
fn a_full_disk_of_the_store_is_named_and_all_goes_on_after_it() {
    let Some(postgres) = Postgres::start() else {
        return;
    };
    let config = NodeConfig::new("a", &postgres.url("crawlgate", PASSWORD));
    let (code, text) = config.run("fleet found");
    assert_eq!(code, 0, "{text}");
    let node = NodeProcess::start(&config);
    wait_for("the node owns all", TAKEOVER, || node.own() == PARTITIONS);

    postgres.sql(FULL);
    postgres.sql(
        "create trigger full_disk before insert or update on crawlgate_member
         for each row execute function full_disk()",
    );
    let ready = || node.get("/readyz").unwrap();
    wait_for("the lease ends", LEASE * 3, || node.own() == 0);
    let (status, text) = ready();
    assert_eq!(status, 503, "{text}");
    assert!(text.contains("the disk of the store is full"), "{text}");
    assert!(text.contains("No space left on device"), "{text}");
    let metrics = node.get("/metrics").unwrap().1;
    let failed = "crawlgate_store_requests_total{op=\"renew\",result=\"error\"} 0";
    assert!(!metrics.contains(failed), "{metrics}");
    // One that starts meanwhile joins when it can.
    let later = NodeConfig::new("b", &postgres.url("crawlgate", PASSWORD));
    let later = NodeProcess::start(&later);
    assert_eq!(later.get("/readyz").unwrap().0, 503);

    postgres.sql("drop trigger full_disk on crawlgate_member");
    let total = || node.own() + later.own();
    wait_for("all goes on", TAKEOVER * 2, || {
        total() == PARTITIONS && later.own() > 0 && ready().0 == 200
    });
}

#[test]
fn clocks_an_hour_apart_make_no_difference() {
    let Some(postgres) = Postgres::start() else {
        return;
    };
    let Some(library) = find_faketime() else {
        return;
    };
    let url = postgres.url("crawlgate", PASSWORD);
    let [a, b] = ["a", "b"].map(|name| NodeConfig::new(name, &url));
    let (code, text) = a.run("fleet found");
    assert_eq!(code, 0, "{text}");
    let a = NodeProcess::start(&a);
    let b = NodeProcess::start_with(
        &b,
        &[
            ("LD_PRELOAD", library.as_str()),
            ("FAKETIME", "+3600s"),
            ("DONT_FAKE_MONOTONIC", "1"),
        ],
    );
    let started_at = |node: &NodeProcess| {
        let status = node.get("/api/v1/status").unwrap().1;
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        status["started_at"].as_str().unwrap().to_owned()
    };
    assert_ne!(
        started_at(&a).split(':').next(),
        started_at(&b).split(':').next(),
        "the clock of b is another"
    );
    wait_until_shared(&a, &b);
    let shares = || [a.own(), b.own()];
    let before = shares();
    let body = r#"{"what": "a.test", "reason": "ticket 7", "for": "30m"}"#;
    let (status, text) = a.request("POST", "/api/v1/stops", body).unwrap();
    assert_eq!(status, 201, "{text}");
    let stopped = |node: &NodeProcess| node.get("/api/v1/stops").unwrap().1.contains("a.test");
    wait_for("the other stops it", LEASE, || stopped(&b));
    std::thread::sleep(LEASE * 2);
    assert_eq!(shares(), before, "nobody's lease has ended");
    assert!(stopped(&a) && stopped(&b));
    for node in [a, b] {
        let ready = node.get("/readyz").unwrap();
        assert_eq!(ready.0, 200, "{}", ready.1);
    }
}

fn find_faketime() -> Option<String> {
    let mut folders = std::fs::read_dir("/usr/lib").unwrap();
    let library = folders.find_map(|folder| {
        let path = folder.unwrap().path().join("faketime/libfaketimeMT.so.1");
        path.exists().then_some(path)
    });
    if library.is_none() {
        assert!(
            std::env::var_os("CI").is_none(),
            "libfaketime is not installed (Debian: faketime)"
        );
        eprintln!("SKIPPED: libfaketime is not installed (Debian: faketime)");
    }
    Some(library?.to_str().unwrap().to_owned())
}

#[test]
fn two_nodes_with_one_address_are_reported() {
    let Some(postgres) = Postgres::start() else {
        return;
    };
    let url = postgres.url("crawlgate", PASSWORD);
    let store = format!("store: {{ kind: postgres, path: state, url: \"{url}\", timeout: 1s }}");
    let [a, b] = ["a", "b"].map(|name| {
        let fleet = format!(
            "fleet: {{ node: {name}, listen: 127.0.0.1:0, advertise: 127.0.0.1:9, lease: 5s }}"
        );
        NodeConfig::with_sections(&store, &fleet)
    });
    let (code, text) = a.run("fleet found");
    assert_eq!(code, 0, "{text}");
    let [a, b] = [&a, &b].map(NodeProcess::start);
    let reports = |node: &NodeProcess, other: &str| {
        let line = format!("warn fleet: {other} has the address of this node, 127.0.0.1:9");
        node.get("/readyz").unwrap().1.contains(&line)
    };
    wait_for("both report it", TAKEOVER, || {
        reports(&a, "b") && reports(&b, "a")
    });
}

//! Nodes share the partitions, and get over the death of a node and of the store.

use serde_json::Value as Json;

use crate::node::{LEASE, NodeConfig, NodeProcess, PARTITIONS, TAKEOVER, wait_for};
use crate::server::{PASSWORD, Postgres};

fn total(nodes: &[&NodeProcess]) -> u64 {
    nodes.iter().map(|node| node.own()).sum()
}

fn is_shared(nodes: &[&NodeProcess]) -> bool {
    let fair = PARTITIONS / nodes.len() as u64 / 2;
    total(nodes) == PARTITIONS && nodes.iter().all(|node| node.own() > fair)
}

#[test]
fn nodes_share_the_partitions_die_come_back_leave_and_are_forgotten() {
    let Some(postgres) = Postgres::start() else {
        return;
    };
    let url = postgres.url("crawlgate", PASSWORD);
    let directories = ["a", "b", "c"].map(|name| NodeConfig::new(name, &url));
    let [a, b, c] = &directories;
    let (code, text) = a.run("fleet found");
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("the fleet `main` is founded"), "{text}");
    let (code, text) = a.run("fleet found");
    assert!(code == 0 && text.contains("already"), "{text}");
    let (code, text) = a.run("fleet owner example.com");
    assert!(code == 1 && text.contains("no owner"), "{text}");

    let node_a = NodeProcess::start(a);
    wait_for("one node owns all", TAKEOVER, || node_a.own() == PARTITIONS);
    let node_b = NodeProcess::start(b);
    wait_for("two share", TAKEOVER * 2, || is_shared(&[&node_a, &node_b]));
    let mut node_c = NodeProcess::start(c);
    wait_for("three share", TAKEOVER * 2, || {
        is_shared(&[&node_a, &node_b, &node_c])
    });
    let (status, ready) = node_a.get("/readyz").unwrap();
    assert!(status == 200 && ready.contains("ok fleet"), "{ready}");
    for line in [
        "crawlgate_fleet_members{state=\"active\"} 3",
        "crawlgate_fleet_partitions{state=\"unowned\"} 0",
    ] {
        // A node reads the table once in a fifth of a lease.
        wait_for(line, LEASE, || {
            node_a.get("/metrics").unwrap().1.contains(line)
        });
    }
    let (code, text) = a.run("fleet owner Example.COM.");
    assert!(code == 0 && text.starts_with("example.com: "), "{text}");
    let (code, text) = a.run("fleet status");
    assert!(code == 0 && text.contains("0 partitions without"), "{text}");
    assert_eq!(text.matches("active").count(), 3, "{text}");
    let (code, text) = a.run("fleet forget b");
    assert!(code == 1 && text.contains("renews its lease"), "{text}");
    let (code, text) = a.run("fleet forget nobody");
    assert!(code == 1 && text.contains("no member"), "{text}");

    any_node_names_the_owners_of_hosts(&[&node_a, &node_b, &node_c]);

    // A node dies.
    node_b.kill();
    let time = wait_for("two own all", TAKEOVER, || {
        total(&[&node_a, &node_c]) == PARTITIONS
    });
    println!("the partitions of a killed node had owners after {time:?}");
    // It may have renewed its lease a fifth of a lease before.
    assert!(time > LEASE * 7 / 10, "too early: {time:?}");
    let node_b = NodeProcess::start(b);
    wait_for("three share again", TAKEOVER * 2, || {
        is_shared(&[&node_a, &node_b, &node_c])
    });

    // One leaves; nobody waits for its lease.
    node_c.signal("TERM");
    node_c.wait();
    let time = wait_for("two own all at once", TAKEOVER, || {
        total(&[&node_a, &node_b]) == PARTITIONS
    });
    println!("the partitions of a node that left had owners after {time:?}");
    assert!(time < LEASE, "{time:?}");

    // One dies and its directory is lost.
    node_b.kill();
    let other = NodeConfig::new("b", &url);
    let (code, text) = other.run("run");
    assert!(code == 3 && text.contains("fleet forget b"), "{text}");
    let (code, text) = a.run("fleet forget b");
    assert!(code == 0 && text.contains("is forgotten"), "{text}");
    let node_b = NodeProcess::start(&other);
    wait_for("two share", TAKEOVER * 2, || is_shared(&[&node_a, &node_b]));
}

/// Checks that each node tells which hosts it shows, and who has the others.
fn any_node_names_the_owners_of_hosts(nodes: &[&NodeProcess]) {
    let ask = |node: &NodeProcess, path: &str| {
        let (status, text) = node.get(path).unwrap();
        (status, serde_json::from_str::<Json>(&text).unwrap())
    };
    let names: Vec<Json> = nodes
        .iter()
        .map(|node| node.fleet()["node"].clone())
        .collect();
    let url = |at: usize| format!("http://{}", nodes[at].admin);
    for (at, node) in nodes.iter().enumerate() {
        let (_, list) = ask(node, "/api/v1/hosts");
        let fleet = &list["fleet"];
        assert_eq!(fleet["node"], names[at], "{list}");
        let mut partitions = fleet["partitions"]["own"].as_u64().unwrap();
        for other in fleet["others"].as_array().unwrap() {
            let index = names
                .iter()
                .position(|name| *name == other["node"])
                .unwrap();
            assert_ne!(index, at, "{list}");
            assert_eq!(other["admin"], url(index), "{list}");
            partitions += other["partitions"].as_u64().unwrap();
        }
        assert_eq!(partitions, PARTITIONS, "{list}");
    }
    // An owner knows that it has no request for the host; the others know who would.
    for host in ["a.test", "b.test", "c.test"] {
        let path = format!("/api/v1/hosts/{host}");
        let answers: Vec<(u16, Json)> = nodes.iter().map(|node| ask(node, &path)).collect();
        let owner = answers
            .iter()
            .position(|(status, _)| *status == 404)
            .unwrap();
        for (at, (status, answer)) in answers.iter().enumerate() {
            if at != owner {
                assert_eq!(*status, 421, "{answer}");
                let found = &answer["owner"];
                assert_eq!(found["node"], names[owner], "{answer}");
                assert_eq!(found["here"], false, "{answer}");
                assert_eq!(found["admin"], url(owner), "{answer}");
                let detail = answer["detail"].as_str().unwrap();
                assert!(detail.contains(&url(owner)), "{detail}");
            }
        }
    }
}

#[test]
fn a_store_that_dies_is_not_noticed_for_a_while_and_its_return_is() {
    let Some(mut postgres) = Postgres::start() else {
        return;
    };
    let url = postgres.url("crawlgate", PASSWORD);
    let directories = ["a", "b"].map(|name| NodeConfig::new(name, &url));
    let (code, text) = directories[0].run("fleet found");
    assert_eq!(code, 0, "{text}");
    let [a, b] = directories.each_ref().map(NodeProcess::start);
    wait_for("two share", TAKEOVER * 2, || is_shared(&[&a, &b]));
    let before = [a.own(), b.own()];

    postgres.kill();
    postgres.launch();
    std::thread::sleep(LEASE / 5);
    assert_eq!([a.own(), b.own()], before, "a short absence");

    postgres.kill();
    wait_for("the leases end", LEASE * 2, || total(&[&a, &b]) == 0);
    let (status, ready) = a.get("/readyz").unwrap();
    assert!(
        status == 503 && ready.contains("fail fleet: no lease"),
        "{ready}"
    );
    std::thread::sleep(LEASE);
    assert_eq!(total(&[&a, &b]), 0);
    postgres.launch();
    wait_for("all goes on by itself", TAKEOVER, || {
        total(&[&a, &b]) == PARTITIONS
    });

    // A restored database: nobody takes anything for two and a half leases.
    let (code, text) = directories[0].run("fleet found --restored");
    assert!(
        code == 0 && text.contains("ends every earlier lease"),
        "{text}"
    );
    wait_for("the leases end", LEASE * 2, || total(&[&a, &b]) == 0);
    let time = wait_for("it goes on", LEASE * 6, || total(&[&a, &b]) == PARTITIONS);
    assert!(time > LEASE, "{time:?}");
}

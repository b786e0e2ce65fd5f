//! Nodes of several releases in one fleet: neighbouring protocols work together, others are refused.

use std::time::Duration;

use crate::node::{LEASE, NodeConfig, NodeProcess, wait_for};
use crate::server::{PASSWORD, Postgres};

const SOON: Duration = Duration::from_secs(20);

/// Adds a member as a release adds it that reports no protocol.
const EARLIER_MEMBER: &str = "insert into crawlgate_member
    (incarnation, node, home, counter, state, address, version, policy)
    values (7, 'z', 'elsewhere', 0, 'active', '127.0.0.1:9', '9.8.7', '')";

fn is_member(node: &NodeProcess) -> bool {
    node.fleet()["member"] == true
}

fn set_protocol(postgres: &Postgres, protocol: u32) {
    postgres.sql(&format!(
        "update crawlgate_member set protocol = {protocol} where node = 'z'"
    ));
}

/// Runs a command that must fail with these parts in its message.
#[track_caller]
fn assert_refused(node: &NodeConfig, command: &str, parts: &[&str]) {
    let (code, text) = node.run(command);
    assert_eq!(code, 3, "{command}: {text}");
    for part in parts {
        assert!(text.contains(part), "{command}: no {part:?} in\n{text}");
    }
}

#[test]
fn neighbouring_protocols_work_together_and_others_are_refused() {
    let Some(postgres) = Postgres::start() else {
        return;
    };
    let url = postgres.url("crawlgate", PASSWORD);
    let [a, b, c] = ["a", "b", "c"].map(|name| NodeConfig::new(name, &url));
    let (code, text) = a.run("fleet found");
    assert_eq!(code, 0, "{text}");
    postgres.sql(EARLIER_MEMBER);

    // The protocol of a release that reports none is that of this one.
    let node_a = NodeProcess::start(&a);
    wait_for("a joins", SOON, || is_member(&node_a));
    wait_for("a sees both", SOON, || {
        let fleet = node_a.fleet();
        let members = fleet["members"].as_array().unwrap();
        members.len() == 2 && members.iter().all(|member| member["protocol"] == 1)
    });
    let (code, text) = a.run("fleet status");
    assert!(code == 0 && text.contains("9.8.7 (protocol 1)"), "{text}");

    // The next release speaks this one's protocol.
    set_protocol(&postgres, 2);
    let node_b = NodeProcess::start(&b);
    wait_for("b joins", SOON, || is_member(&node_b));

    // The one after that does not.
    set_protocol(&postgres, 3);
    let refusal = [
        "z is a member with the protocol 3 of the fleet (release 9.8.7), this release has 1",
        "run a release with the protocol 2 or 3 here",
    ];
    assert_refused(&c, "run", &refusal);
    assert!(
        is_member(&node_a) && is_member(&node_b),
        "who is a member stays one"
    );

    // A node that must join again is refused, says why, and joins when it may.
    postgres.sql("update crawlgate_member set state = 'forgotten' where node = 'a'");
    wait_for("a says why", LEASE * 2, || {
        let (status, ready) = node_a.get("/readyz").unwrap();
        status == 503 && refusal.iter().all(|part| ready.contains(part))
    });
    assert!(!is_member(&node_a));
    postgres.sql("update crawlgate_member set state = 'left' where node = 'z'");
    wait_for("a joins again", SOON, || is_member(&node_a));
    drop(NodeProcess::start(&c));
}

#[test]
fn tables_are_migrated_while_older_releases_use_them() {
    let Some(postgres) = Postgres::start() else {
        return;
    };
    let url = postgres.url("crawlgate", PASSWORD);
    let [a, b] = ["a", "b"].map(|name| NodeConfig::new(name, &url));
    let (code, text) = a.run("fleet found");
    assert_eq!(code, 0, "{text}");

    // As a release without protocols has left them, with a member that runs.
    let version = postgres.sql("select max(version) from crawlgate_schema");
    postgres.sql("delete from crawlgate_schema where version > 3");
    postgres.sql("alter table crawlgate_schema drop column oldest_protocol");
    postgres.sql("alter table crawlgate_member drop column protocol, drop column admin");
    postgres.sql(EARLIER_MEMBER);
    assert_refused(&a, "run", &["crawlgate fleet migrate"]);
    let (code, text) = a.run("fleet migrate");
    let expected = format!("the tables have version {version}, before 3");
    assert!(code == 0 && text.contains(&expected), "{text}");
    let row = "select protocol, admin is null from crawlgate_member where node = 'z'";
    assert_eq!(postgres.sql(row), "1|t");

    // Not while a member would misread them.
    set_protocol(&postgres, 3);
    postgres.sql("delete from crawlgate_schema where version > 3");
    for command in ["fleet migrate", "fleet found"] {
        assert_refused(&a, command, &["z is a member with the protocol 3", "has 1"]);
    }
    set_protocol(&postgres, 1);
    let (code, text) = a.run("fleet migrate");
    assert_eq!(code, 0, "{text}");

    // Tables of the next release, which speaks this one's protocol.
    postgres.sql("insert into crawlgate_schema (version, oldest_protocol) values (1000, 1)");
    let node = NodeProcess::start(&a);
    wait_for("a joins", SOON, || is_member(&node));
    let (code, text) = b.run("fleet migrate");
    assert!(code == 0 && text.contains("version 1000 already"), "{text}");

    // Tables of a release that does not.
    postgres.sql("update crawlgate_schema set oldest_protocol = 2 where version = 1000");
    for command in ["run", "fleet migrate", "fleet status"] {
        assert_refused(
            &b,
            command,
            &[
                "version 1000, for nodes with the protocol 2 of the fleet or a newer one",
                "this release speaks 1: upgrade this node",
            ],
        );
    }
}

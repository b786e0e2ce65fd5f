//! A store that cannot be used: each cause has its message, and the exit code 3; wrong settings have 2.

use crate::node::{NodeConfig, NodeProcess};
use crate::server::{PASSWORD, Postgres};

#[track_caller]
fn assert_refused(directory: &NodeConfig, code: i32, expected: &str) {
    let (found, text) = directory.run("run");
    assert_eq!(found, code, "{text}");
    assert!(text.contains(expected), "{expected}:\n{text}");
    assert!(!text.contains(PASSWORD), "{text}");
}

#[test]
fn settings_that_do_not_fit_are_refused() {
    let url = "url: \"postgresql://u:geheim@127.0.0.1:1/d\"";
    let fleet = "fleet: { node: a, listen: 127.0.0.1:0, lease: 5s }";
    for (store, fleet, expected) in [
        ("store: {}".to_owned(), fleet, "set store.kind to postgres"),
        (
            format!("store: {{ kind: postgres, {url} }}"),
            "",
            "this proxy is in no fleet",
        ),
        (
            "store: { kind: postgres }".to_owned(),
            fleet,
            "store.url is missing",
        ),
        (format!("store: {{ {url} }}"), "", "store.url has no effect"),
        (
            format!("store: {{ kind: postgres, timeout: 3s, {url} }}"),
            fleet,
            "two fifths of fleet.lease",
        ),
        (
            "store: { kind: postgres, url: \"mysql://u:geheim@h/d\" }".to_owned(),
            fleet,
            "postgresql://",
        ),
    ] {
        assert_refused(&NodeConfig::with_sections(&store, fleet), 2, expected);
    }
}

#[test]
fn each_cause_is_named_with_what_to_do() {
    let Some(postgres) = Postgres::start() else {
        return;
    };
    let url = postgres.url("crawlgate", PASSWORD);
    let node = NodeConfig::new("a", &url);
    assert_refused(&node, 3, "crawlgate fleet found");
    assert_refused(
        &NodeConfig::new("a", &postgres.url("crawlgate", "wrong")),
        3,
        "refuses the user or the password",
    );
    let closed = url.replace(&postgres.port.to_string(), "1");
    assert_refused(&NodeConfig::new("a", &closed), 3, "cannot be reached");
    let tls = format!("{url}?sslmode=verify-full");
    assert_refused(&NodeConfig::new("a", &tls), 3, "does not offer TLS");
    let absent = url.replace("/fleet", "/absent");
    assert_refused(&NodeConfig::new("a", &absent), 3, "does not exist");

    let (code, text) = node.run("fleet found");
    assert_eq!(code, 0, "{text}");
    postgres.sql("create role guest login password 'geheim'");
    assert_refused(
        &NodeConfig::new("a", &postgres.url("guest", PASSWORD)),
        3,
        "GRANT SELECT, INSERT, UPDATE, DELETE ON crawlgate_schema",
    );
    let store = format!("store: {{ kind: postgres, path: state, url: \"{url}\", timeout: 1s }}");
    let other = NodeConfig::with_sections(
        &store,
        "fleet: { name: other, node: a, listen: 127.0.0.1:0, lease: 5s }",
    );
    assert_refused(&other, 3, "belongs to the fleet `main`, not to `other`");
    other.write(&store, "fleet: { node: a, listen: 127.0.0.1:0, lease: 6s }");
    assert_refused(
        &other,
        3,
        "fleet.lease of a is 6s, but that of the fleet is 5s",
    );

    let (code, text) = node.run("fleet migrate");
    assert!(code == 0 && text.contains("already"), "{text}");
    postgres.sql("delete from crawlgate_schema where version > 0");
    assert_refused(&node, 3, "crawlgate fleet migrate");
    let (code, text) = node.run("fleet migrate");
    assert!(code == 0 && text.contains("before 0"), "{text}");

    postgres.sql("alter database fleet set default_transaction_read_only = on");
    assert_refused(&node, 3, "read-only replica");
    postgres.sql("alter database fleet reset default_transaction_read_only");

    let running = NodeProcess::start(&node);
    assert_refused(&node, 3, "another crawlgate uses");
    assert_refused(
        &NodeConfig::new("a", &url),
        3,
        "a node named a (fleet.node) is a member already",
    );
    drop(running);

    postgres.set_access("hostssl all all 127.0.0.1/32 scram-sha-256\n");
    assert_refused(&node, 3, "accepts only connections with TLS");
}

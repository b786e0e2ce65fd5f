//! A stop at one node is in force at all.

use std::time::Duration;

use serde_json::Value as Json;

use crate::node::{NodeConfig, NodeProcess, wait_for};
use crate::server::{PASSWORD, Postgres};

/// The time in which a change must be in force everywhere.
const EVERYWHERE: Duration = Duration::from_secs(1);
/// The time in which nodes notice that the store is back, on a busy machine.
const NOTICED: Duration = Duration::from_secs(10);

fn stop(node: &NodeProcess, what: &str, duration: Option<&str>) -> Json {
    let body = serde_json::json!({ "what": what, "reason": "ticket 7", "for": duration });
    let (status, answer) = node
        .request("POST", "/api/v1/stops", &body.to_string())
        .unwrap();
    assert_eq!(status, 201, "{answer}");
    serde_json::from_str(&answer).unwrap()
}

fn lift(node: &NodeProcess, stop: &Json) -> Json {
    let path = format!("/api/v1/stops/{}", stop["id"].as_str().unwrap());
    let (status, answer) = node.request("DELETE", &path, "").unwrap();
    assert_eq!(status, 200, "{answer}");
    serde_json::from_str(&answer).unwrap()
}

fn stopped(node: &NodeProcess) -> Vec<String> {
    let (status, text) = node.get("/api/v1/stops").unwrap();
    assert_eq!(status, 200, "{text}");
    let document: Json = serde_json::from_str(&text).unwrap();
    let stops = document["stops"].as_array().unwrap();
    stops
        .iter()
        .map(|stop| stop["what"].as_str().unwrap().to_owned())
        .collect()
}

fn warnings(change: &Json) -> String {
    change["warnings"].to_string()
}

#[test]
fn a_stop_at_one_node_is_in_force_at_all_whatever_happens_to_the_store() {
    let Some(mut postgres) = Postgres::start() else {
        return;
    };
    let url = postgres.url("crawlgate", PASSWORD);
    let directories = ["a", "b", "c"].map(|name| NodeConfig::new(name, &url));
    let (code, text) = directories[0].run("fleet found");
    assert_eq!(code, 0, "{text}");
    let mut a = NodeProcess::start(&directories[0]);
    let b = NodeProcess::start(&directories[1]);

    let first = stop(&a, "a.test", None);
    assert_eq!(
        (warnings(&first), &first["persisted"]),
        ("[]".to_owned(), &Json::Bool(true))
    );
    let time = wait_for("b stops a.test", EVERYWHERE, || {
        stopped(&b) == ["host:a.test"]
    });
    println!("a stop was at another node after {time:?}");
    // A node that starts later knows it before it answers anything.
    let c = NodeProcess::start(&directories[2]);
    assert_eq!(stopped(&c), ["host:a.test"]);

    // The store is away: what is known stays, and what is new waits for it.
    postgres.kill();
    wait_for("a line of readyz", NOTICED, || {
        a.get("/readyz")
            .unwrap()
            .1
            .contains("warn sharing: stops of other nodes may be missing")
    });
    let second = stop(&a, "crawler:news", Some("1h"));
    assert!(
        warnings(&second).contains("only this node stops it"),
        "{second}"
    );
    let lifted = lift(&b, &first);
    assert!(
        warnings(&lifted).contains("the other nodes still stop it"),
        "{lifted}"
    );
    assert_eq!(stopped(&a), ["host:a.test", "crawler:news"]);
    assert_eq!(
        (stopped(&b).len(), stopped(&c)),
        (0, vec!["host:a.test".to_owned()])
    );
    // Also over the end of a process, once the periodic write has happened.
    postgres.launch();
    for node in [&a, &b, &c] {
        wait_for("the union holds", NOTICED, || {
            stopped(node) == ["crawler:news"]
        });
    }
    let row = "select what, until_ms - since_ms between 3590000 and 3605000 from crawlgate_stop order by id";
    let rows = postgres.sql(row);
    assert!(rows.ends_with("crawler:news|t"), "{rows}");
    assert_eq!(
        postgres.sql("select version from crawlgate_stop_version"),
        "3"
    );
    wait_for("no problem is left", NOTICED, || {
        !a.get("/readyz").unwrap().1.contains("sharing")
    });

    // The file of a node does not bring back a stop that was lifted while the node was away.
    a.signal("TERM");
    a.wait();
    lift(&c, &second);
    let third = stop(&c, "*.b.test", None);
    let a = NodeProcess::start(&directories[0]);
    wait_for("a knows what was lifted", EVERYWHERE, || {
        stopped(&a) == ["domain:b.test"]
    });
    wait_for("b stops b.test", EVERYWHERE, || {
        stopped(&b) == ["domain:b.test"]
    });

    // A database that was restored from a copy gets the stops of the nodes.
    postgres.sql("delete from crawlgate_stop");
    postgres.sql("update crawlgate_stop_version set version = 0");
    let has_stop = || postgres.sql("select what from crawlgate_stop") == "domain:b.test";
    wait_for("the store has the stop again", NOTICED, has_stop);
    let (code, text) = directories[0].run("fleet found --restored");
    assert_eq!(code, 0, "{text}");
    postgres.sql("delete from crawlgate_stop");
    wait_for("another generation has it, too", NOTICED, has_stop);
    assert_eq!(stopped(&b), ["domain:b.test"]);
    lift(&a, &third);
    wait_for("nothing is stopped", EVERYWHERE, || {
        stopped(&b).is_empty() && stopped(&c).is_empty()
    });
    let operations = a.get("/metrics").unwrap().1;
    assert!(operations.contains("crawlgate_store_requests_total{op=\"stops\",result=\"ok\"}"));

    // A stop that this release does not understand is not overlooked.
    postgres.sql("insert into crawlgate_stop values (7, 'planet:mars', 'x', 0, null)");
    postgres.sql("update crawlgate_stop_version set version = version + 1");
    wait_for("a line of readyz", NOTICED, || {
        a.get("/readyz")
            .unwrap()
            .1
            .contains("the stop 7 (crawlgate_stop)")
    });
}

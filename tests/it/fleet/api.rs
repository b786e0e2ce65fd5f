//! The admin API of a node: it names the owner of what another node knows.

use serde_json::{Value as Json, json};

use crate::support::client::RawClient;
use crate::support::origin::ScriptedOrigin;

use super::bench::FleetBench;

/// Obeys robots.txt, and delays nothing.
const OBEDIENT: &str = "policy: 1
name: fleet
options: { disposition: allow, politeness: { delay: 0s, concurrency: 100, adaptive: null } }
";

fn ask(fleet: &FleetBench, at: usize, head: &str, body: &str) -> (u16, Json) {
    let admin = fleet.nodes[at].admin;
    let length = body.len();
    let answer = RawClient::connect(admin).request(format!(
        "{head} HTTP/1.1\r\nHost: {admin}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    ));
    (answer.status, serde_json::from_str(&answer.body).unwrap())
}

#[test]
fn any_node_names_the_owner_of_a_host() {
    let fleet = FleetBench::start(2, OBEDIENT);
    fleet.set_owner("a.test", 1, 7);
    let host = |at| ask(&fleet, at, "GET /api/v1/hosts/a.test", "");
    // The owner says that nothing was requested from the host.
    let (status, answer) = host(1);
    assert_eq!(status, 404, "{answer}");
    let owner = json!({ "node": "b", "here": false, "admin": null });
    let (status, answer) = host(0);
    assert_eq!(status, 421, "{answer}");
    assert_eq!(answer["owner"], owner);
    assert_eq!(
        answer["detail"],
        "the node b of the fleet owns this host: ask it"
    );

    let origin = ScriptedOrigin::ok();
    fleet.get(0, &origin.url("a.test", "/")).check(200, &["ok"]);
    let (status, answer) = host(1);
    assert_eq!(status, 200, "{answer}");
    let here = json!({ "node": "b", "here": true, "admin": null });
    assert_eq!(answer["owner"], here);
    assert_eq!(host(0).0, 421);

    // An owner that has given the host away still has its state, and says that it is not the owner's.
    fleet.set_owner("a.test", 0, 8);
    let (status, answer) = host(1);
    assert_eq!(status, 200, "{answer}");
    let other = json!({ "node": "a", "here": false, "admin": null });
    assert_eq!(answer["owner"], other);
    // Without an owner, a node shows what it knows.
    fleet.set_owner_at(0, "a.test", None);
    let (status, answer) = host(0);
    assert_eq!(status, 404, "{answer}");
    // An address that is paced in addition to its hosts has no owner.
    assert_eq!(ask(&fleet, 0, "GET /api/v1/hosts/@192.0.2.1", "").0, 404);
}

#[test]
fn a_list_of_hosts_says_whose_they_are() {
    let fleet = FleetBench::start(2, OBEDIENT);
    fleet.set_owner("a.test", 0, 7);
    fleet.set_owner("b.test", 1, 7);
    for (at, node, other) in [(0, "a", "b"), (1, "b", "a")] {
        let (status, answer) = ask(&fleet, at, "GET /api/v1/hosts", "");
        assert_eq!(status, 200, "{answer}");
        let expected = json!({
            "node": node,
            "partitions": { "own": 1, "of_others": 1, "unowned": 1_022 },
            "others": [{ "node": other, "partitions": 1, "admin": null }],
        });
        assert_eq!(answer["fleet"], expected);
    }
}

#[test]
fn an_explanation_names_the_owner_and_only_the_owner_fetches() {
    let fleet = FleetBench::start(2, OBEDIENT);
    let origin = ScriptedOrigin::ok();
    fleet.set_owner("a.test", 1, 7);
    let question = json!({ "url": origin.url("a.test", "/x"), "fetch": true }).to_string();
    let explain = |at| ask(&fleet, at, "POST /api/v1/explain", &question).1;
    let owner = json!({ "node": "b", "here": false, "admin": null });
    assert_eq!(explain(0)["wire"]["owner"], owner);
    fleet.set_owner_at(0, "a.test", None);
    assert_eq!(explain(0)["wire"]["owner"], Json::Null);
    assert!(origin.heads().is_empty());
    let wire = explain(1)["wire"].take();
    assert_eq!(wire["owner"]["here"], true, "{wire}");
    assert_eq!(origin.paths(), ["/robots.txt"]);
}

/// A node may have records of the time when it owned the host, which an explanation must not use.
#[test]
fn an_explanation_reads_the_ledger_at_the_owner_only() {
    let fleet = FleetBench::start(
        2,
        &format!("{OBEDIENT}spaces: [{{ name: all, rules: [] }}]\n"),
    );
    fleet.set_owner("a.test", 1, 7);
    let explain = |at, facts: Json| {
        let (status, answer) = ask(&fleet, at, "POST /api/v1/explain", &facts.to_string());
        assert_eq!(status, 200, "{answer}");
        let wire = answer["wire"].clone();
        let not_asked = wire["not_asked"].as_array().unwrap();
        let reads = !not_asked.iter().any(|one| one["subject"] == "ledger");
        (wire["ledger"].clone(), reads)
    };
    let url = "http://a.test/x";
    let (ledger, reads) = explain(0, json!({ "url": url }));
    assert_eq!((&ledger, reads), (&Json::Null, false));
    // A given value makes the look-up in the ledger unnecessary.
    let (ledger, reads) = explain(0, json!({ "url": url, "known": true }));
    assert_eq!((&ledger["source"], reads), (&json!("given"), true));
    assert!(explain(1, json!({ "url": url })).1);
}

//! The crawler is the same at the owner: its name, its rights, its profile, and nothing that it claims itself.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::client::RawClient;
use crate::support::http2::{Http2Client, tls_over};
use crate::support::origin::ScriptedOrigin;

use super::bench::{BenchSettings, FleetBench};

const POLICY: &str = "policy: 1
name: fleet
options:
  disposition: allow
  robots: { obey: false }
  politeness: { delay: 0s, concurrency: 100, adaptive: null }
rules:
  - { id: not-news, forbid: { crawler: news, under: /private } }
";

/// `news` and `shop` by their passwords.
const CRAWLERS: &str = "anonymous: deny
crawlers:
  - { name: news, profile: nutch, auth: { user: news, password_hash: PASSWORD } }
  - { name: shop, may: [depth] , auth: { user: shop, password_hash: PASSWORD } }
";

fn crawlers() -> String {
    // bcrypt of `x`, with the lowest cost.
    let hash = bcrypt::hash("x", 4).unwrap();
    CRAWLERS.replace("PASSWORD", &format!("'{hash}'"))
}

#[test]
fn the_owner_knows_the_crawler_and_not_its_password() {
    let config = crawlers();
    let settings = BenchSettings {
        config: &config,
        ..BenchSettings::default()
    };
    let fleet = FleetBench::start_with(2, POLICY, &settings);
    fleet.set_owner("a.test", 0, 1);
    let origin = ScriptedOrigin::ok();
    let basic = |user: &str| {
        use base64::Engine as _;
        let text = base64::engine::general_purpose::STANDARD.encode(format!("{user}:x"));
        format!("Proxy-Authorization: Basic {text}\r\n")
    };
    for (user, path) in [("news", "/private"), ("shop", "/private"), ("news", "/")] {
        let url = origin.url("a.test", path);
        let [own, forwarded] = [0, 1].map(|at| fleet.client(at).get_with(&url, &basic(user)));
        assert_eq!(own.status, forwarded.status, "{user} {path}: {forwarded}");
        let is_refused = user == "news" && path == "/private";
        assert_eq!(own.status != 200, is_refused, "{user} {path}: {own}");
    }
    // Without a password the entry refuses, and the owner is not asked.
    fleet
        .get(1, &origin.url("a.test", "/"))
        .check(407, &["unauthorized"]);
    assert!(
        !origin
            .heads()
            .concat()
            .to_ascii_lowercase()
            .contains("proxy-auth")
    );
    let lines = fleet.lines(0, 6);
    let mut crawlers: Vec<_> = lines
        .iter()
        .map(|line| line["crawler"].as_str().unwrap())
        .collect();
    // A line is written at the end of its response, which the client does not wait for.
    crawlers.sort_unstable();
    assert_eq!(crawlers, ["news", "news", "news", "news", "shop", "shop"]);
    assert_eq!(fleet.lines(1, 1)[0]["reason"], "unauthorized");
}

#[test]
fn a_crawler_that_the_owner_does_not_know_is_refused_with_the_reason() {
    let only_b = "crawlers: [{ name: guest, sources: 127.0.0.0/8 }]\n";
    let settings = BenchSettings {
        only: Some((1, only_b)),
        ..BenchSettings::default()
    };
    let fleet = FleetBench::start_with(2, super::bench::POLICY, &settings);
    fleet.set_owner("a.test", 0, 1);
    let origin = ScriptedOrigin::ok();
    let answer = fleet.get(1, &origin.url("a.test", "/"));
    answer.check(
        403,
        &["crawl-reason: unauthorized", "no crawler of this name"],
    );
    assert!(origin.heads().is_empty());
    assert_eq!(fleet.lines(0, 1)[0]["entry"], "b");
}

#[test]
fn a_crawler_cannot_act_as_a_node() {
    let settings = BenchSettings {
        without_tls: true,
        ..BenchSettings::default()
    };
    let fleet = FleetBench::start_with(2, super::bench::POLICY, &settings);
    fleet.set_owner("a.test", 0, 1);
    let origin = ScriptedOrigin::ok();
    let claim =
        "Crawl-Fleet: node=b; crawler=nobody; client=10.0.0.1; id=1; version=1.1; hop=1\r\n";
    // The field means nothing to a listener for crawlers.
    for at in [0, 1] {
        let answer = fleet.client(at).get_with(&origin.url("a.test", "/"), claim);
        assert_eq!(answer.status, 200, "{answer}");
        assert_eq!(answer.field("crawl-fleet"), None);
    }
    assert!(!origin.heads().concat().contains("crawl-fleet"));
    // The listener for nodes accepts nothing without it.
    let mut link = RawClient::connect(fleet.nodes[0].links);
    link.get(&origin.url("a.test", "/"))
        .check(403, &["needs one Crawl-Fleet"]);
    let twice = [claim, claim].concat();
    link.get_with(&origin.url("a.test", "/"), &twice)
        .check(403, &[]);
    let hop = claim.replace("hop=1", "hop=2");
    link.get_with(&origin.url("a.test", "/"), &hop)
        .check(403, &["hop"]);
    // An entry with a protocol that this node does not speak looks for another owner, and its crawler gets a 503.
    let later = claim.replace("node=b", "protocol=3; node=b");
    link.get_with(&origin.url("a.test", "/"), &later)
        .check(421, &["crawl-fleet-owner: unknown"]);
    assert_eq!(origin.heads().len(), 2);
}

#[test]
fn a_crawler_cannot_act_as_a_node_inside_a_tunnel() {
    let settings = BenchSettings {
        config: "h2: { prior_knowledge: true }
crawlers: [{ name: news, sources: 10.0.0.0/8 }]
tls: { intercept: true, verify_upstream: false, ca: { cert: ca.pem, key: ca.key }, bundle: bundle.pem }
",
        ..BenchSettings::default()
    };
    let fleet = FleetBench::start_with(2, super::bench::POLICY, &settings);
    fleet.set_owner("a.test", 0, 1);
    let origin = ScriptedOrigin::ok();
    let claim = "node=b; crawler=news; client=10.0.0.1; id=1; version=1.1; hop=1";
    let authority = format!("a.test:{}", origin.port);
    // At the owner, at the entry, and on a link itself, as far as a crawler reaches one: in a tunnel of a stream, and in TLS in
    // such a tunnel.
    for at in [0, 1] {
        let proxy = fleet.nodes[at].proxy;
        let tls = super::tunnels::trusting(&fleet, at);
        fleet.runtime.block_on(async {
            let client = Http2Client::connect(proxy).await;
            let mut plain = client.connect_to(&authority).await.unwrap();
            let request = format!(
                "GET / HTTP/1.1\r\nHost: {authority}\r\nCrawl-Fleet: {claim}\r\nConnection: close\r\n\r\n"
            );
            plain.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            plain.read_to_string(&mut answer).await.unwrap();
            assert!(answer.starts_with("HTTP/1.1 200 "), "{at}: {answer}");
            let tunnel = client.connect_to(&authority).await.unwrap();
            let inside = tls_over(tunnel, &tls, "a.test", &[b"h2"]).await;
            let inside = Http2Client::over(inside).await;
            let url = format!("https://{authority}/private");
            let refused = inside.get(&url, &[("crawl-fleet", claim)]).await;
            assert_eq!(refused.status, 451, "{at}");
            assert_eq!(refused.fields.get("crawl-fleet"), None);
        });
    }
    assert!(!origin.heads().concat().to_lowercase().contains("crawl-"));
    let lines = fleet.lines(0, 4);
    for line in &lines {
        assert_eq!(line["crawler"], "anonymous", "{line}");
    }
    // Those that `b` has forwarded, as its certificate says.
    let forwarded = lines.iter().filter(|line| line["entry"] == "b");
    assert_eq!(forwarded.count(), 2);
}

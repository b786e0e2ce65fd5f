//! Shadow rules and a shadow policy, over sockets: they are counted, logged and reported, and have no effect.

use serde_json::{Value, json};

use crate::support::client::RawClient;
use crate::support::client::get_with;
use crate::support::origin::OK;
use crate::support::proxy::TestProxy;

use crate::effects::Site;
use crate::support::policy::allow_all;
use crate::support::proxy::CONFIG;

const RULES: &str = "  - { id: closed, when: { under: /closed }, then: disallow-log }
  - { id: try, mode: shadow, forbid: { under: /try } }
  - { id: reopen, mode: shadow, when: { under: /closed/open }, then: allow }
  - { id: films, mode: shadow, when: { host: a.test }, rules: [{ id: mp4, forbid: { content_type: video/mp4 } }] }
  - { id: nearby, mode: shadow, forbid: { address: 127.0.0.1, path: { prefix: /near } } }
  - { id: same, mode: shadow, when: { under: /fine }, then: allow }";

const TRACING: &str = "crawlers: [{ name: lab, sources: [127.0.0.0/8], may: [trace] }]\n";

fn film(path: &str) -> Option<String> {
    path.ends_with("film")
        .then(|| "HTTP/1.1 200 OK\r\nContent-Type: video/mp4\r\nContent-Length: 0\r\n\r\n".into())
}

fn site() -> Site {
    Site::with_config(&format!("{CONFIG}{TRACING}"), &allow_all("", RULES), film)
}

/// The path, the status, and the value of `Crawl-Shadow`.
const CASES: [(&str, u16, &str); 8] = [
    ("/x", 200, ""),
    ("/fine", 200, ""),
    ("/try/x", 200, "reject; rule=try"),
    ("/closed/x", 451, ""),
    ("/closed/open", 451, "allow; rule=reopen"),
    ("/film", 200, "reject; rule=mp4"),
    ("/try/film", 200, "reject; rule=try, reject; rule=mp4"),
    ("/near", 200, "reject; rule=nearby"),
];

#[test]
fn shadow_rules_are_reported_to_permitted_crawlers_on_request() {
    let site = site();
    for (path, status, shadow) in CASES {
        let answer = site.get_with(path, "Crawl-Trace: 1\r\n");
        assert_eq!(answer.status, status, "{path}");
        assert_eq!(answer.value("crawl-shadow"), shadow, "{path}");
        for fields in ["", "Crawl-Trace: 0\r\n"] {
            assert_eq!(
                site.get_with(path, fields).values("crawl-shadow"),
                Vec::<&str>::new(),
                "{path} {fields}"
            );
        }
    }
    // Crawlers without the permission get no field.
    let other = TestProxy::start(CONFIG, &allow_all("", RULES));
    let url = format!("http://a.test:{}/try", site.origin.port);
    assert_eq!(
        get_with(other.proxy, &url, "Crawl-Trace: 1\r\n").value("crawl-shadow"),
        ""
    );
    assert!(
        site.origin
            .heads()
            .iter()
            .all(|head| !head.to_lowercase().contains("crawl-"))
    );
}

#[test]
fn rules_in_shadow_are_counted_and_logged() {
    let site = site();
    for (path, ..) in CASES {
        site.get(path);
    }
    let lines = site.decisions(CASES.len());
    fn output(lines: &[serde_json::Value], at: usize, keys: &[&str]) -> Vec<Value> {
        keys.iter().map(|key| lines[at][*key].clone()).collect()
    }
    let keys = ["verdict", "mode", "rule", "stage", "reason"];
    assert_eq!(
        output(&lines, 0, &keys),
        [
            json!("allow"),
            json!("enforce"),
            Value::Null,
            json!("response"),
            json!("default")
        ]
    );
    assert_eq!(
        output(&lines, 2, &keys),
        ["shadow_reject", "shadow", "try", "request", "rule"].map(|word| json!(word))
    );
    assert_eq!(
        output(&lines, 4, &keys),
        ["reject", "enforce", "closed", "request", "rule"].map(|word| json!(word))
    );
    assert_eq!(
        output(&lines, 5, &keys),
        ["shadow_reject", "shadow", "mp4", "response", "rule"].map(|word| json!(word))
    );
    assert_eq!(
        output(&lines, 7, &keys),
        ["shadow_reject", "shadow", "nearby", "destination", "rule"].map(|word| json!(word))
    );
    fn shadow(rule: &str, verdict: &str, stage: &str) -> serde_json::Value {
        json!({ "rule": rule, "policy": null, "verdict": verdict, "stage": stage, "reason": "rule" })
    }
    assert_eq!(lines[0].get("shadow"), None);
    assert_eq!(
        lines[4]["shadow"],
        json!([shadow("reopen", "allow", "request")])
    );
    assert_eq!(
        lines[6]["shadow"],
        json!([
            shadow("try", "reject", "request"),
            shadow("mp4", "reject", "response")
        ])
    );
    fn count(site: &Site, series: &str) -> u64 {
        site.gate.counter(series)
    }
    let decided = |rule: &str, verdict: &str| {
        count(
            &site,
            &format!(
                "crawlgate_rule_decided_total{{mode=\"shadow\",rule=\"{rule}\",verdict=\"{verdict}\"}}"
            ),
        )
    };
    for (rule, matched, refused) in [
        ("try", 2, 2),
        ("reopen", 1, 0),
        ("films", 8, 0),
        ("mp4", 2, 2),
        ("nearby", 1, 1),
        ("same", 1, 0),
    ] {
        let series = format!("crawlgate_rule_matched_total{{mode=\"shadow\",rule=\"{rule}\"}}");
        assert_eq!(count(&site, &series), matched, "{rule}");
        assert_eq!(decided(rule, "reject"), refused, "{rule}");
    }
    assert_eq!(
        ["reopen", "same", "films"].map(|rule| decided(rule, "allow")),
        [1, 1, 0]
    );
    for (stage, shadows) in [("request", 2), ("destination", 1), ("response", 1)] {
        let series = format!(
            "crawlgate_decisions_total{{crawler=\"lab\",reason=\"rule\",stage=\"{stage}\",verdict=\"shadow_reject\"}}"
        );
        assert_eq!(count(&site, &series), shadows, "{stage}");
    }
}

/// In a tunnel without interception, a rule on paths leaves the verdict open.
#[test]
fn shadow_rules_evaluate_tunnels() {
    let config = CONFIG.replace(
        "  ports: [1-65535]",
        "  ports: [1-65535]\n  connect_ports: [1-65535]\n  tls_ports: [1-65535]",
    );
    let rules = "  - { id: try, mode: shadow, forbid: { under: /try } }
  - { id: other, mode: shadow, forbid: { host: other.test } }";
    let site = Site::with_config(&config, &allow_all("", rules), |_| Some(OK.into()));
    let mut client = RawClient::connect(site.gate.proxy);
    client.send(format!(
        "CONNECT a.test:{0} HTTP/1.1\r\nHost: a.test:{0}\r\n\r\n",
        site.origin.port
    ));
    let granted = client.read_until("\r\n\r\n");
    assert!(granted.starts_with("HTTP/1.1 200"), "{granted}");
    drop(client);
    let line = site.decisions(1).remove(0);
    assert_eq!(line["verdict"], "shadow_reject", "{line}");
    assert_eq!(line["reason"], "undecided", "{line}");
    assert_eq!(line["rule"], "try", "{line}");
}

/// A response without the values that differ between processes and policies.
fn settled(answer: &str) -> String {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let volatile = [
        "crawl-decision",
        "crawl-policy",
        "via",
        "date",
        "content-length",
    ];
    let head = head
        .lines()
        .filter(|line| !volatile.contains(&line.split(':').next().unwrap()));
    let mut body: Value = serde_json::from_str(body).unwrap_or_else(|_| json!({ "body": body }));
    for key in ["instance", "revision"] {
        body.as_object_mut().unwrap().remove(key);
    }
    format!("{}\n\n{body}", head.collect::<Vec<_>>().join("\n"))
}

#[test]
fn answers_are_the_same_without_rules_in_shadow() {
    let with = site();
    let live: String = RULES
        .lines()
        .filter(|rule| !rule.contains("mode: shadow"))
        .collect::<Vec<_>>()
        .join("\n");
    let without = TestProxy::start(&format!("{CONFIG}{TRACING}"), &allow_all("", &live));
    for (path, ..) in CASES {
        let url = format!("http://a.test:{}{path}", with.origin.port);
        let answers = [with.gate.proxy, without.proxy]
            .map(|proxy| settled(&get_with(proxy, &url, "").to_string()));
        assert_eq!(answers[0], answers[1], "{path}");
    }
}

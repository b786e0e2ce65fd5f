//! URLs that lax servers read as URLs that the policy rejects (docs/policy/reference.md, "Readings by lax servers").

use crawlgate::policy::cases::CaseFacts;
use crawlgate::policy::shadow::ShadowDecisions;
use serde_json::{Value as Json, json};

use crate::effects::Site;
use crate::support::policy::{allow_all, compile_policy};

const RULES: &str = "
  - { id: cgi, forbid: { under: /cgi-bin }, reject: gone }
  - { id: search, forbid: { param.q: spam } }
  - { id: short, forbid: { path: { prefix: /short, length: '[:8]' } } }
  - { id: parts, forbid: { path: { prefix: /parts, segments: '[3:]' } } }
  - { id: loops, forbid: { path: { prefix: /loops, repeats: '[2:]' } } }
  - { id: intranet, forbid: { under: /inside, address: 10.0.0.0/8 } }
  - { id: films, forbid: { under: /films, content_type: video/* } }
  - { id: spam, forbid: { under: /texts, title: { contains: spam } } }
";

/// Returns the stage, the reason, the rule and the reading of a decision.
fn decide(facts: &Json) -> String {
    let policy = compile_policy(allow_all("", RULES)).policy;
    let facts = CaseFacts::from_json(facts.as_object().unwrap()).unwrap();
    let (_, decision) = facts.with_facts(|facts| policy.decide(facts));
    let rule = match decision.cause {
        crawlgate::policy::decide::Cause::Rule(rule) => policy.rule_id(rule).unwrap(),
        crawlgate::policy::decide::Cause::Default => "-",
    };
    let reading = decision.reading.map_or("-", |reading| reading.as_str());
    let (stage, reason) = (decision.stage.as_str(), decision.reason().as_str());
    format!("{stage} {reason} {rule} {reading}")
}

#[test]
fn a_reading_is_rejected_at_the_stage_of_its_rule() {
    for (path, facts, expected) in [
        ("/x", json!({}), "request default - -"),
        (
            "//cgi-bin/x",
            json!({}),
            "request ambiguous_url cgi decoded",
        ),
        (
            "/cgi-bin;a/x",
            json!({}),
            "request ambiguous_url cgi without_parameters",
        ),
        (
            "/%2563gi-bin/x",
            json!({}),
            "request ambiguous_url cgi decoded_twice",
        ),
        ("/?%71=spam", json!({}), "request rule search -"),
        (
            "/?%2571=spam",
            json!({}),
            "request ambiguous_url search decoded_twice",
        ),
        // A rejection of the URL itself stands, whatever its readings are.
        ("/cgi-bin//x", json!({}), "request rule cgi -"),
        // Characters, segments and repetitions are counted as written.
        ("/short/a", json!({}), "request rule short -"),
        ("/short/a;b", json!({}), "request default - -"),
        ("/parts/a/b", json!({}), "request rule parts -"),
        ("/parts/a%2Fb", json!({}), "request default - -"),
        ("/loops/a/a", json!({}), "request rule loops -"),
        ("/loops/a/%61", json!({}), "request default - -"),
        ("//inside/x", json!({}), "request default - -"),
        (
            "//inside/x",
            json!({ "address": "10.1.2.3" }),
            "destination ambiguous_url intranet decoded",
        ),
        (
            "//films/x",
            json!({ "status": 200, "content_type": "video/mp4" }),
            "response ambiguous_url films decoded",
        ),
        (
            "//films/x",
            json!({ "status": 200, "content_type": "text/html" }),
            "response default - -",
        ),
        (
            "/texts;a",
            json!({ "status": 200, "content_type": "text/html", "title": "more spam" }),
            "document ambiguous_url spam without_parameters",
        ),
    ] {
        let mut facts = facts;
        facts["url"] = format!("http://h.test{path}").into();
        assert_eq!(decide(&facts), expected, "{facts}");
    }
}

#[test]
fn a_shadow_rule_reports_the_reading() {
    let rules = "[{ id: s, mode: shadow, forbid: { under: /films, content_type: video/* } }]";
    let text = format!("policy: 1\nname: t\noptions: {{ disposition: allow }}\nrules: {rules}\n");
    let policy = compile_policy(text).policy;
    let json =
        json!({ "url": "http://h.test//films/x", "status": 200, "content_type": "video/mp4" });
    let facts = CaseFacts::from_json(json.as_object().unwrap()).unwrap();
    facts.with_facts(|facts| {
        let (trail, _) = policy.decide_request(facts);
        let mut shadows = ShadowDecisions::for_request(&policy, facts);
        let stage = crawlgate::policy::rule::PolicyStage::Response;
        shadows.decide_stage(&policy, stage, facts, &trail);
        let rejections: Vec<_> = shadows
            .iter()
            .map(|shadow| shadow.decision.reason().as_str())
            .collect();
        assert_eq!(rejections, ["ambiguous_url"]);
    });
}

#[test]
fn a_refusal_names_the_reading_and_the_rule() {
    let site = Site::new(
        &allow_all(
            "",
            "  - { id: cgi, about: programs, forbid: { under: /cgi-bin } }",
        ),
        |_| None,
    );
    let answer = site.get("/a/..;/cgi-bin/x");
    assert_eq!(answer.status, 403);
    assert_eq!(answer.value("crawl-reason"), "ambiguous_url");
    assert_eq!(answer.value("crawl-rule"), "cgi");
    let detail =
        "rule cgi rejects it as servers that remove path parameters (`;…`) read it: programs";
    assert_eq!(
        answer.json()["detail"]
            .as_str()
            .map(|text| text.contains(detail)),
        Some(true),
        "{}",
        answer.body
    );
    assert!(site.origin.paths().is_empty());
}

/// The document is read for a rule that holds for a reading only.
#[test]
fn a_document_is_judged_by_the_readings_of_its_url() {
    let page = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 24\r\n\r\n<title>more spam</title>";
    let site = Site::new(
        &allow_all(
            "",
            "  - { id: spam, forbid: { under: /texts, title: { contains: spam } } }",
        ),
        move |_| Some(page.into()),
    );
    let answer = site.get("//texts/x");
    assert_eq!(
        (answer.status, answer.value("crawl-reason")),
        (403, "ambiguous_url")
    );
    assert_eq!(site.get("//other/x").status, 200);
}

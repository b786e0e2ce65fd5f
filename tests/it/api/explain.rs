//! `POST /api/v1/explain`.

use std::collections::BTreeSet;

use crawlgate::model::profile::Profile;
use crawlgate::policy::cases::FACT_KEYS;
use serde_json::{Value as Json, json};

use super::ApiBench;

const POLICY: &str = "policy: 1
name: acme
options: { disposition: allow }
rules:
  - { id: cgi, about: no scripts, forbid: { under: /cgi-bin } }
  - { id: soon, when: { under: /s }, set: { priority: higher } }
  - { id: films, forbid: { content_type: video/mp4 } }
";

async fn explain(bench: &ApiBench, body: &Json) -> (u16, Json) {
    bench
        .ask("POST /api/v1/explain", body.to_string().as_bytes())
        .await
}

#[tokio::test]
async fn explain_matches_the_command_and_lists_the_profiles() {
    let bench = ApiBench::new(POLICY).await;
    let (status, output) = explain(&bench, &json!({ "url": "http://A.example/cgi-bin/x" })).await;
    assert_eq!(status, 200, "{output}");
    assert_eq!(output["url"], "http://a.example/cgi-bin/x");
    assert_eq!(
        (&output["rules"][0]["rule"], &output["rules"][0]["status"]),
        (&"cgi".into(), &"matched".into())
    );
    assert_eq!(output["decision"]["verdict"], "reject");
    assert_eq!(output["decision"]["rule"], "cgi");
    assert_eq!(output["decision"]["status"], 451);
    assert_eq!(output["answer"]["profile"], "generic");
    let answers = output["answers"].as_array().unwrap();
    assert_eq!(answers.len(), Profile::ALL.len());
    assert!(answers.contains(&output["answer"]));
    let of = |profile: &str| {
        answers
            .iter()
            .find(|answer| answer["profile"] == profile)
            .unwrap()
    };
    assert_eq!(of("nutch")["status_line"], "HTTP/1.1 410 Gone");
    assert_eq!(of("heritrix")["kind"], "refused");
    let case = "- url: \"http://A.example/cgi-bin/x\"\n  \
                expect: { verdict: reject, stage: request, reason: rule, rule: \"cgi\", intent: deny }\n";
    assert_eq!(output["case"], case);
}

#[tokio::test]
async fn the_profile_is_the_requested_one_or_the_crawlers() {
    let bench = ApiBench::new(POLICY).await;
    for (facts, profile) in [
        (json!({}), "generic"),
        (json!({ "crawler": "news" }), "scrapy"),
        (json!({ "crawler": "other" }), "generic"),
        (json!({ "crawler": "news", "profile": "nutch" }), "nutch"),
        (json!({ "crawler": "news", "profile": null }), "scrapy"),
    ] {
        let mut body = facts;
        body["url"] = "http://a.example/cgi-bin/x".into();
        let (status, output) = explain(&bench, &body).await;
        assert_eq!(status, 200, "{body}");
        assert_eq!(output["answer"]["profile"], profile, "{body}");
        let named = output["case"]
            .as_str()
            .unwrap()
            .contains(&format!("\n  profile: {profile}\n"));
        assert_eq!(named, body["profile"].is_string(), "{output}");
    }
}

#[tokio::test]
async fn stages_run_as_far_as_the_facts_reach() {
    let bench = ApiBench::new(POLICY).await;
    for (facts, verdict, stage) in [
        (json!({ "url": "http://a.example/s" }), "allow", "request"),
        (
            json!({ "url": "http://a.example/s", "content_type": "video/mp4" }),
            "reject",
            "response",
        ),
        (
            json!({ "url": "http://a.example/s", "tunnel": true }),
            "undecided",
            "connect",
        ),
    ] {
        let (_, output) = explain(&bench, &facts).await;
        assert_eq!(output["decision"]["verdict"], verdict, "{facts}");
        assert_eq!(output["decision"]["stage"], stage, "{facts}");
    }
}

#[tokio::test]
async fn facts_that_cannot_be_read_are_a_problem() {
    let bench = ApiBench::new(POLICY).await;
    for (body, output) in [
        ("", "not a JSON object"),
        ("[]", "not a JSON object"),
        ("{}", "`url` is missing"),
        (r#"{"url": 1}"#, "`url` must be text"),
        (r#"{"url": "http://a.example:99999/"}"#, "port"),
        (
            r#"{"url": "http://a.example/", "crawlr": "x"}"#,
            "did you mean `crawler`",
        ),
        (
            r#"{"url": "http://a.example/", "profile": "scrappy"}"#,
            "did you mean `scrapy`",
        ),
        (
            r#"{"url": "http://a.example/", "profile": 1}"#,
            "`profile` must be one of generic",
        ),
        (
            r#"{"url": "http://a.example/", "depth": -1}"#,
            "`depth` must be a whole number",
        ),
    ] {
        let (status, problem) = bench.ask("POST /api/v1/explain", body.as_bytes()).await;
        assert_eq!((status, &problem["status"]), (400, &400.into()), "{body}");
        assert!(
            problem["detail"].as_str().unwrap().contains(output),
            "{body}: {problem}"
        );
    }
    let long = json!({ "url": "http://a.example/", "referer": "x".repeat(64 << 10) });
    let (status, problem) = explain(&bench, &long).await;
    assert_eq!(
        (status, &problem["detail"]),
        (413, &"the body is longer than 64 KiB".into())
    );
    let words = json!({ "url": "http://a.example/", "x".repeat(10_000): 1 });
    let (_, problem) = explain(&bench, &words).await;
    assert!(problem["detail"].as_str().unwrap().len() < 300, "{problem}");
}

/// Of many rules, those that matched, those that the URL does not rule out, and the groups around
/// them are explained.
#[tokio::test]
async fn of_a_big_policy_the_rules_that_matter_are_explained() {
    let hosts: String = (0..300)
        .map(|n| format!("  - {{ id: h{n}, forbid: {{ host: h{n}.example }} }}\n"))
        .collect();
    let group = "  - id: group\n    when: { method: GET }\n    rules:\n      \
                 - { id: inner, forbid: { url: { contains: /x/ } } }\n      \
                 - { id: param, forbid: { param.q: y } }\n";
    let text =
        format!("policy: 1\nname: big\noptions: {{ disposition: allow }}\nrules:\n{hosts}{group}");
    let bench = ApiBench::new(&text).await;
    let rules = |output: &Json| -> Vec<String> {
        let rules = output["rules"].as_array().unwrap().iter();
        rules
            .map(|rule| rule["rule"].as_str().unwrap().to_owned())
            .collect()
    };
    let url = "http://h7.example/";
    let (status, output) = explain(&bench, &json!({ "url": url })).await;
    assert_eq!(status, 200, "{output}");
    assert_eq!(rules(&output), ["h7", "group", "inner", "param"]);
    assert_eq!(output["rules_left_out"], 299);
    assert_eq!(output["decision"]["rule"], "h7");
    let (_, all) = explain(&bench, &json!({ "url": url, "all_rules": true })).await;
    assert_eq!(
        (rules(&all).len(), &all["rules_left_out"]),
        (303, &json!(0))
    );
    assert_eq!(all["decision"], output["decision"]);
    let (status, output) = explain(&bench, &json!({ "url": url, "all_rules": "yes" })).await;
    assert_eq!(status, 400, "{output}");
}

#[tokio::test]
async fn the_schema_of_a_question_has_every_fact() {
    let bench = ApiBench::new(POLICY).await;
    let (_, document) = bench.ask("GET /api/v1/openapi.json", b"").await;
    let question = &document["components"]["schemas"]["Question"];
    let described: BTreeSet<&str> = question["properties"]
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    let others = ["profile", "all_rules", "user_agent", "fetch"];
    assert_eq!(described, FACT_KEYS.into_iter().chain(others).collect());
}

//! A policy and facts derived from the bytes: they are evaluated, explained, evaluated in shadow and as a case, and an early
//! decision is final.

use crawlgate::model::reason::Reason;
use crawlgate::policy::Policy;
use crawlgate::policy::cases::{CaseFacts, CaseRefusal};
use crawlgate::policy::compile::{self, CompiledPolicy};
use crawlgate::policy::coverage::Coverage;
use crawlgate::policy::decide::{Cause, Decision, Verdict};
use crawlgate::policy::fact::{EvaluationTarget, Fact, Facts};
use crawlgate::policy::rule::PolicyStage;
use crawlgate::policy::shadow::ShadowDecisions;
use crawlgate::policy::source::MemoryFileSystem;
use crawlgate::policy::trail::Trail;
use serde_json::{Value as Json, json};

/// The most rules of one policy.
const RULES: usize = 24;
/// The greatest depth of groups.
const DEEP: usize = 6;

const TEXTS: [&str; 16] = [
    "",
    "/",
    "a",
    "b",
    "/old",
    "a.test",
    "b.test",
    "x=1",
    "gif",
    "/a/b",
    "text/html",
    "noindex",
    "image/png",
    "/a/a/a",
    "http://a.test/",
    "%2e",
];
const TEXT_FIELDS: [&str; 21] = [
    "url",
    "scheme",
    "host",
    "authority",
    "path",
    "path_and_query",
    "rel_path",
    "query",
    "authority_path_query",
    "param.x",
    "method",
    "crawler",
    "referer",
    "dest",
    "content_type",
    "header.x-a",
    "license",
    "title",
    "body_prefix",
    "meta_robots",
    "canonical",
];
const KINDS: [&str; 6] = ["exact", "prefix", "suffix", "contains", "glob", "regex"];
const RANGES: [&str; 5] = ["0", "1", "[1:]", "[:2]", "[2:5]"];
const ACTIONS: [&str; 12] = [
    "allow",
    "disallow",
    "disallow-log",
    "download",
    "exclude",
    "ignore",
    "exclude-but-scan",
    "follow-only",
    "index-only",
    "index",
    "no-index",
    "no-follow",
];

/// Evaluates the policy and the facts in every way.
pub(crate) fn run(input: &[u8]) {
    let mut bytes = Bytes {
        rest: input,
        rules: 0,
    };
    let facts = bytes.facts();
    let document = bytes.document(&facts);
    let files = MemoryFileSystem::new().with_file("policy.yaml", document.to_string());
    if let Ok(mut compiled) = compile::load(&files, "policy.yaml") {
        compiled.policy = compiled.policy.with_lists_indexed_from(1);
        judge_all(&compiled, &facts);
    }
}

fn judge_all(compiled: &CompiledPolicy, facts: &Json) {
    let policy = &compiled.policy;
    let Ok(full) = CaseFacts::from_json(facts.as_object().unwrap()) else {
        return;
    };
    let (trail, decision) = policy.decide_every_rule(&full.facts());
    index(policy, &full.facts(), &trail, &decision);
    explain(policy, &full.facts(), &trail, &decision);
    shadows(policy, &full.facts());
    for case in &compiled.cases {
        let (trail, decision) = policy.decide(&case.facts.facts());
        let _ = case.mismatches(policy, &trail, &decision, &CaseRefusal::default());
    }
    let share = Coverage::from_cases(policy, &compiled.cases).rule_ratio(policy);
    assert!(share.reached <= share.total);
    if let EvaluationTarget::Url(_) = full.facts().target {
        early(policy, &full.facts(), &decision);
        tunnel(policy, facts, &decision);
    }
}

/// The index rules out only what has no effect.
fn index(policy: &Policy, facts: &Facts<'_>, trail: &Trail, decision: &Decision) {
    let (indexed, by_index) = policy.decide(facts);
    assert_eq!(by_index, *decision);
    assert_eq!(indexed.matched_rules(), trail.matched_rules());
    assert_eq!(policy.options_json(&indexed), policy.options_json(trail));
}

/// Every part of an explanation can be rendered, and agrees with the decision.
fn explain(policy: &Policy, facts: &Facts<'_>, trail: &Trail, decision: &Decision) {
    assert_eq!(
        policy.decide(facts).1,
        *decision,
        "the same facts, another decision"
    );
    for line in policy.explain_rules(trail) {
        let grounds = policy.decisive_tests(&line, facts);
        grounds
            .iter()
            .for_each(|ground| assert!(!ground.to_string().is_empty()));
        let _ = (policy.describe_condition(line.rule), line.pending_stage());
    }
    assert!(policy.options_json(trail).is_object());
    let refusing = policy.refusal(trail, decision);
    match decision.cause {
        Cause::Rule(rule) => assert_eq!(refusing.rule, policy.rule_id(rule)),
        Cause::Default => assert_eq!(refusing.rule, None),
    }
    assert!(
        trail
            .matched_rules()
            .iter()
            .all(|rule| policy.rule(*rule).is_some())
    );
}

/// The shadow evaluation of each stage after the live one, as for a request, has no effect.
fn shadows(policy: &Policy, facts: &Facts<'_>) {
    if let EvaluationTarget::Tunnel(_) = facts.target {
        let shadows = ShadowDecisions::for_tunnel(policy, facts);
        return shadows.iter().for_each(|shadow| {
            assert!(shadow.matched_rules(policy).count() <= policy.rules().len())
        });
    }
    let answered = Facts {
        document: Fact::Unknown,
        ..*facts
    };
    let connected = Facts {
        response: Fact::Unknown,
        ..answered
    };
    let asked = Facts {
        address: Fact::Unknown,
        ..connected
    };
    let mut shadows = ShadowDecisions::for_request(policy, &asked);
    let (mut trail, mut decision) = policy.decide_request(&asked);
    let later = [
        (
            PolicyStage::Destination,
            facts.address != Fact::Unknown,
            connected,
        ),
        (
            PolicyStage::Response,
            matches!(facts.response, Fact::Known(_)),
            answered,
        ),
    ];
    for (stage, known, facts) in later {
        if known && !decision.rejects() {
            let before = trail.clone();
            decision = policy.decide_stage(&mut trail, stage, &facts);
            shadows.decide_stage(policy, stage, &facts, &before);
        }
    }
    for shadow in shadows.iter() {
        assert!(policy.shadow_rules().contains(&shadow.root));
        assert!(policy.rule(shadow.reported_rule(policy)).is_some());
    }
    assert_eq!(
        policy.decide(&answered).1,
        decision,
        "stage by stage, another decision"
    );
}

/// A rejection by some facts stays the same if more are known.
fn early(policy: &Policy, full: &Facts<'_>, decision: &Decision) {
    let answered = Facts {
        document: Fact::Unknown,
        ..*full
    };
    let connected = Facts {
        response: Fact::Unknown,
        ..answered
    };
    let asked = Facts {
        address: Fact::Unknown,
        ..connected
    };
    for known in [asked, connected, answered] {
        let (_, early) = policy.decide(&known);
        if early.rejects() {
            assert_eq!(early, *decision, "more facts, another rejection");
        }
    }
}

/// A decision about a tunnel to the host holds for this URL.
fn tunnel(policy: &Policy, facts: &Json, decision: &Decision) {
    let mut shown = json!({ "url": facts["url"], "tunnel": true, "crawler": facts["crawler"] });
    if let Some(address) = facts.get("address") {
        shown["address"] = address.clone();
    }
    let Ok(tunnel) = CaseFacts::from_json(shown.as_object().unwrap()) else {
        return;
    };
    let (trail, output) = policy.decide(&tunnel.facts());
    explain(policy, &tunnel.facts(), &trail, &output);
    shadows(policy, &tunnel.facts());
    // A tunnel has no depth, and `max_depth` has no effect without one.
    let too_deep = decision.reason() == Reason::TooDeep;
    match output.verdict {
        Verdict::Admit if !too_deep => {
            assert!(!decision.rejects(), "admitted as a tunnel: {decision:?}")
        }
        // A tunnel runs every stage; facts may end before the stage that rejects, or lack the address.
        Verdict::Reject(_) if facts.get("title").is_some() && facts.get("address").is_some() => {
            assert!(decision.rejects(), "rejected as a tunnel")
        }
        Verdict::Admit | Verdict::Reject(_) | Verdict::Undecided => {}
    }
}

/// The bytes as choices; at their end every choice is the first.
struct Bytes<'i> {
    rest: &'i [u8],
    rules: usize,
}

impl Bytes<'_> {
    fn byte(&mut self) -> usize {
        let Some((first, rest)) = self.rest.split_first() else {
            return 0;
        };
        self.rest = rest;
        usize::from(*first)
    }

    fn of<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.byte() % from.len()]
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.byte() % n == n - 1
    }

    fn facts(&mut self) -> Json {
        let host = self.of(&["a.test", "b.test", "x.b.test", "a.test:8080", "10.0.0.1"]);
        let path = self.of(&[
            "/",
            "/old",
            "/old/x",
            "/a/a/a",
            "/x.gif",
            "/%2e%2e/old",
            "/a%2Fb",
            "/%63",
        ]);
        let query = self.of(&["", "?x=1", "?x=a&x=2", "?sid=%41"]);
        let scheme = self.of(&["http", "https"]);
        let mut facts = json!({ "url": format!("{scheme}://{host}{path}{query}") });
        facts["crawler"] = json!(self.of(&["anonymous", "news-bot"]));
        facts["method"] = json!(self.of(&["GET", "HEAD", "POST"]));
        self.maybe(&mut facts, "referer", &["", "http://a.test/"]);
        self.maybe(&mut facts, "dest", &["navigation", "embed"]);
        self.maybe(
            &mut facts,
            "address",
            &["10.0.0.1", "192.0.2.7", "::1", "::ffff:10.0.0.1"],
        );
        if self.one_in(2) {
            facts["depth"] = json!(self.byte() % 8);
        }
        if self.one_in(8) {
            facts["tunnel"] = json!(true);
        }
        if self.one_in(2) {
            self.answer(&mut facts);
        }
        facts
    }

    fn answer(&mut self, facts: &mut Json) {
        facts["status"] = json!(self.of(&[200, 200, 206, 204, 301, 404, 503]));
        self.maybe(
            facts,
            "content_type",
            &["text/html", "text/html; charset=x", "image/png", ""],
        );
        if self.one_in(2) {
            facts["size"] = json!(self.byte());
        }
        let mut headers = json!({});
        self.maybe(&mut headers, "x-a", &["a", "b"]);
        self.maybe(
            &mut headers,
            "x-robots-tag",
            &["noindex", "", "bot: none", "noai"],
        );
        self.maybe(
            &mut headers,
            "link",
            &["<http://a.test/>; rel=canonical", "<;"],
        );
        self.maybe(
            &mut headers,
            "content-usage",
            &["train-ai=n", "search=y, train-ai"],
        );
        self.maybe(&mut headers, "tdm-reservation", &["0", "1"]);
        facts["headers"] = headers;
        self.maybe(facts, "license", &["http://a.test/l", ""]);
        if self.one_in(2) {
            facts["title"] = json!(self.of(&["", "a", "not found"]));
            self.maybe(facts, "body_prefix", &["<html>", "a"]);
            self.maybe(facts, "meta_robots", &["noindex", "nofollow"]);
            self.maybe(facts, "canonical", &["http://a.test/", "/old"]);
        }
    }

    fn maybe(&mut self, into: &mut Json, key: &str, values: &[&str]) {
        if self.one_in(2) {
            into[key] = json!(self.of(values));
        }
    }

    fn document(&mut self, facts: &Json) -> Json {
        let disposition = self.of(&["allow", "allow", "disallow", "disallow-log"]);
        let mut case = facts.clone();
        case["expect"] = json!(self.of(&["allow", "reject", "undecided"]));
        let rules = self.rules(0);
        json!({
            "policy": 1,
            "name": "made",
            "on_invalid_rule": self.of(&["refuse", "disable"]),
            "options": { "disposition": disposition },
            "lists": {
                "mine": { "kind": "domains", "items": ["a.test"] },
                "nets": { "kind": "addresses", "items": ["10.0.0.0/8"] },
            },
            "rules": rules,
            "cases": [case],
        })
    }

    fn rules(&mut self, depth: usize) -> Vec<Json> {
        let count = 1 + self.byte() % 4;
        let mut rules = Vec::new();
        for _ in 0..count {
            if self.rules < RULES {
                rules.push(self.rule(depth));
            }
        }
        rules
    }

    fn rule(&mut self, depth: usize) -> Json {
        self.rules += 1;
        let mut rule = json!({ "id": format!("r{}", self.rules) });
        let key = self.of(&["forbid", "when", "require", "unless", "rules"]);
        if key != "rules" {
            rule[key] = self.condition(0);
        }
        match key {
            "forbid" | "require" => self.filter(&mut rule),
            _ => self.group(&mut rule, depth),
        }
        match self.byte() % 16 {
            0 => rule["mode"] = json!("shadow"),
            1 => rule["enabled"] = json!(false),
            2 => rule["stage"] = json!(self.of(&["destination", "response", "document"])),
            _ => {}
        }
        rule
    }

    fn filter(&mut self, rule: &mut Json) {
        match self.byte() % 4 {
            0 => rule["log"] = json!(true),
            1 => rule["reject"] = json!(self.of(&["deny", "gone", "keep", "later"])),
            2 => rule["reject_status"] = json!(self.of(&[403, 404, 451, 503])),
            _ => {}
        }
    }

    fn group(&mut self, rule: &mut Json, depth: usize) {
        match self.byte() % 8 {
            0..=2 => rule["then"] = json!(self.of(&ACTIONS)),
            3 => rule["set"] = json!({ "html_only": true }),
            4 => {
                rule["set"] = json!({ "max_depth": self.byte() % 4, "priority": self.of(&["high", "lower", "lowest"]) })
            }
            5 => rule["set"] = json!({ "max_body": "100 B", "meta": { "k": self.of(&TEXTS) } }),
            6 => {
                rule["set"] =
                    json!({ "robots": { "obey": false }, "politeness": { "delay": "2s" } })
            }
            _ => {}
        }
        if self.one_in(4) {
            rule["stop"] = json!(true);
        }
        if depth < DEEP && self.one_in(2) {
            rule["rules"] = json!(self.rules(depth + 1));
            if self.one_in(3) {
                rule["match"] = json!("first");
            }
        }
    }

    fn condition(&mut self, depth: usize) -> Json {
        match self.byte() % 8 {
            0 if depth < 3 => {
                json!({ "all": [self.condition(depth + 1), self.condition(depth + 1)] })
            }
            1 if depth < 3 => {
                json!({ "any": [self.condition(depth + 1), self.condition(depth + 1)] })
            }
            2 if depth < 3 => json!({ "not": self.condition(depth + 1) }),
            3 => self.shortcut(),
            4 => self.number(),
            5 => {
                json!({ "path": { self.of(&["length", "segments", "repeats"]): self.of(&RANGES) } })
            }
            _ => self.text(),
        }
    }

    fn text(&mut self) -> Json {
        let field = self.of(&TEXT_FIELDS);
        let mut test = json!({ self.of(&KINDS): self.of(&TEXTS) });
        if self.one_in(6) {
            test["case"] = json!("ignore");
        }
        if self.one_in(6) {
            test["norm"] = json!(true);
        }
        json!({ field: test })
    }

    fn number(&mut self) -> Json {
        match self.byte() % 6 {
            0 => json!({ "port": self.of(&[80, 443, 8080]) }),
            1 => json!({ "depth": self.of(&RANGES) }),
            2 => json!({ "size": self.of(&RANGES) }),
            3 => json!({ "status": self.of(&["404", "2xx", "[500:599]"]) }),
            4 => json!({ "address": self.of(&["10.0.0.0/8", "::/0", "192.0.2.7"]) }),
            _ => json!({ "usage.train-ai": self.of(&["allow", "deny", "unset"]) }),
        }
    }

    fn shortcut(&mut self) -> Json {
        match self.byte() % 9 {
            0 => json!({ "always": true }),
            1 => json!({ "domain": self.of(&["a.test", "b.test"]) }),
            2 => json!({ "ext": self.of(&["gif", "tar.gz"]) }),
            3 => json!({ "under": self.of(&["/old", "/a"]) }),
            4 => json!({ "url_prefix": self.of(&["http://a.test/", "https://b.test"]) }),
            5 => json!({ "in_query": self.of(&["x=", "sid"]) }),
            6 => json!({ "site": self.of(&["http://a.test", "http://b.test/old"]) }),
            7 => json!({ "surt": self.of(&["test,a,", "test,b,)/old"]) }),
            _ => json!({ "in": self.of(&["mine", "nets"]) }),
        }
    }
}

//! Generated policies with elements that the oracle does not implement: shadow rules, disabled
//! rules, deeply nested groups, and more rules on documents; and facts for them.

use crawlgate_policy::internal::policy::Policy;
use fastrand::Rng;
use serde_json::{Value as Json, json};

use super::outcome::compiled;
use crate::generate::{Generator, HOSTS};

/// The facts of each stage after the request.
const LATER: [&[&str]; 3] = [
    &["address"],
    &[
        "status",
        "content_type",
        "size",
        "headers",
        "usage",
        "license",
    ],
    &["title", "body_prefix", "meta_robots", "canonical"],
];

/// The maximum depth of added groups.
const DEEP: usize = 8;

/// A generator of policies and facts.
pub(super) struct EnrichedGenerator {
    generator: Generator,
}

impl EnrichedGenerator {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            generator: Generator::whole(seed),
        }
    }

    pub(super) fn random(&mut self) -> &mut Rng {
        &mut self.generator.rng
    }

    pub(super) fn coin(&mut self) -> bool {
        self.random().bool()
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.random().u32(0..n) == 0
    }

    fn choice<T: Clone>(&mut self, from: &[T]) -> T {
        self.random().choice(from).unwrap().clone()
    }

    /// Generates a policy with its text.
    pub(super) fn policy(&mut self) -> (Json, Policy) {
        self.valid_policy(None)
    }

    /// Generates a policy in which many rules have this key.
    pub(super) fn policy_with(&mut self, key: &str, value: &Json) -> (Json, Policy) {
        self.valid_policy(Some((key, value)))
    }

    /// Generates documents until one has no errors: shadow mode is not allowed for every rule.
    fn valid_policy(&mut self, frequent_key: Option<(&str, &Json)>) -> (Json, Policy) {
        let mut last_problems = String::new();
        for _ in 0..100 {
            let document = self.document(frequent_key);
            match compiled(&document) {
                Ok(policy) => return (document, policy),
                Err(problems) => last_problems = problems.to_string(),
            }
        }
        panic!("a hundred invalid policies: {last_problems}")
    }

    fn document(&mut self, frequent_key: Option<(&str, &Json)>) -> Json {
        let mut document = self.generator.generate_policy().to_json();
        let rules = document["rules"].take();
        document["rules"] = Json::Array(self.list(rules, 0, frequent_key));
        document
    }

    /// Extends a list that is not `match: first`, which may contain any rule.
    fn list(
        &mut self,
        rules: Json,
        depth: usize,
        frequent_key: Option<(&str, &Json)>,
    ) -> Vec<Json> {
        let mut list = Vec::new();
        for rule in into_rules(rules) {
            let rule = self.rule(rule, depth, frequent_key);
            let rule = if depth < 2 && self.one_in(8) {
                self.nested(rule)
            } else {
                rule
            };
            list.push(rule);
            if self.one_in(5) {
                let rule = self.document_rule();
                list.push(self.with_random_modes(rule, frequent_key));
            }
        }
        list
    }

    fn rule(&mut self, mut rule: Json, depth: usize, frequent_key: Option<(&str, &Json)>) -> Json {
        let inner = rule["rules"].take();
        let first = rule.get("match").is_some();
        if inner.is_array() {
            let inner = if first {
                into_rules(inner)
                    .into_iter()
                    .map(|rule| self.rule(rule, depth + 1, frequent_key))
                    .collect()
            } else {
                self.list(inner, depth + 1, frequent_key)
            };
            rule["rules"] = Json::Array(inner);
        } else {
            rule.as_object_mut().unwrap().remove("rules");
        }
        self.with_random_modes(rule, frequent_key)
    }

    /// Sets shadow mode, `enabled: false` and the key `frequent_key` on random rules.
    fn with_random_modes(&mut self, mut rule: Json, frequent_key: Option<(&str, &Json)>) -> Json {
        if self.one_in(16) {
            rule["mode"] = json!("shadow");
        }
        if self.one_in(16) {
            rule["enabled"] = json!(false);
        }
        if let Some((key, value)) = frequent_key
            && self.one_in(4)
        {
            rule[key] = value.clone();
        }
        rule
    }

    /// Nests a rule deeply in groups that nearly always apply.
    fn nested(&mut self, mut rule: Json) -> Json {
        for _ in 0..self.random().usize(1..=DEEP) {
            let mut group = json!({ "id": self.generator.id(), "rules": [rule] });
            match self.random().u32(0..4) {
                0 => group["when"] = json!({ "always": true }),
                1 => group["unless"] = json!({ "host": self.host() }),
                2 => group["when"] = json!({ "path": "/" }),
                _ => {}
            }
            if self.one_in(6) {
                group["stop"] = json!(true);
            }
            rule = group;
        }
        rule
    }

    /// Generates a rule on the document, possibly combined with earlier facts.
    fn document_rule(&mut self) -> Json {
        let atom = match self.random().u32(0..5) {
            0 => json!({ "title": self.choice(&["not found", "news"]) }),
            1 => json!({ "body_prefix": { "regex": self.choice(&["^<html", "login"]) } }),
            2 => json!({ "meta_robots": { "contains": self.choice(&["noindex", "none"]) } }),
            3 => json!({ "canonical": { "prefix": "http://a.test/" } }),
            _ => json!({ "not": { "title": "news" } }),
        };
        let host = json!({ "host": self.host() });
        let condition = match self.random().u32(0..4) {
            0 => json!({ "any": [host, atom] }),
            1 => json!({ "all": [host, atom] }),
            _ => atom,
        };
        let key = self.choice(&["forbid", "forbid", "require", "when", "when", "unless"]);
        let mut rule = json!({ "id": self.generator.id(), key: condition });
        if matches!(key, "when" | "unless") {
            rule["then"] = json!(self.choice(&[
                "allow",
                "disallow",
                "disallow-log",
                "exclude-but-scan",
                "no-index"
            ]));
            rule["stop"] = json!(self.one_in(4));
        } else {
            rule["log"] = json!(self.coin());
        }
        rule
    }

    /// Generates rules that would revoke a rejection if that were possible.
    pub(super) fn allowing_rules(&mut self) -> Vec<Json> {
        let mut rules = vec![json!({ "id": self.generator.id(), "then": "allow" })];
        if self.coin() {
            let mut rule = self.generator.rule(0, 0, 2).to_json();
            without_stages(&mut rule);
            rules.push(rule);
        }
        if self.coin() {
            rules.push(json!({ "id": self.generator.id(), "then": "download", "stop": true }));
        }
        if self.coin() {
            rules.push(json!({ "id": self.generator.id(), "stage": "document", "then": "allow" }));
        }
        self.random().shuffle(&mut rules);
        rules
    }

    pub(super) fn host(&mut self) -> &'static str {
        self.choice(&HOSTS)
    }

    /// Generates facts of a URL up to a random stage.
    pub(super) fn facts(&mut self) -> Json {
        let world = self.generator.world().to_json();
        let whole = self.with_document(world);
        let known = self.choice(&[0, 1, 2, 3, 3, 3]);
        up_to(known, &whole)
    }

    /// Generates facts of a URL, or sometimes of a tunnel.
    pub(super) fn facts_or_tunnel(&mut self) -> Json {
        if !self.one_in(6) {
            return self.facts();
        }
        let host = self.host();
        let facts = self.facts_on(host);
        tunnel(&facts, &["crawler", "address"])
    }

    /// Generates all facts of an HTTPS URL on a host.
    pub(super) fn facts_on(&mut self, host: &str) -> Json {
        let world = self.generator.world_on("https", host, 443).to_json();
        self.with_document(world)
    }

    /// Generates facts up to the document stage: a GET answered with a page.
    pub(super) fn facts_of_a_page(&mut self) -> Json {
        let mut world = self.generator.world();
        world.method = "GET".into();
        let response = world.response.as_mut().unwrap();
        response.status = 200;
        response.content_type = "text/html".into();
        let mut facts = world.to_json();
        facts["title"] = json!("news");
        self.with_document(facts)
    }

    fn with_document(&mut self, mut facts: Json) -> Json {
        for (fact, values) in [
            ("title", ["not found", "good news"]),
            ("body_prefix", ["<html><body>", "please login"]),
            ("meta_robots", ["noindex", "all"]),
            ("canonical", ["http://a.test/x", "/x"]),
        ] {
            if self.coin() {
                facts[fact] = json!(self.choice(&values));
            }
        }
        if self.one_in(4) {
            facts["usage"] = json!({ "train-ai": self.choice(&["allow", "deny", "unset"]) });
        }
        facts
    }
}

/// Removes explicit stages, since the first stage may differ at the new position.
fn without_stages(rule: &mut Json) {
    rule.as_object_mut().unwrap().remove("stage");
    let inner = rule.get_mut("rules").and_then(Json::as_array_mut);
    inner.into_iter().flatten().for_each(without_stages);
}

fn into_rules(rules: Json) -> Vec<Json> {
    if let Json::Array(rules) = rules {
        rules
    } else {
        vec![]
    }
}

/// Returns the facts that are known at a stage, where 0 is the request.
pub(super) fn up_to(stage: usize, facts: &Json) -> Json {
    let mut known = facts.clone();
    let object = known.as_object_mut().unwrap();
    for fact in LATER[stage..].iter().copied().flatten() {
        object.remove(*fact);
    }
    known
}

/// Returns the facts of a tunnel to the host of a URL.
pub(super) fn tunnel(facts: &Json, known: &[&str]) -> Json {
    let url = facts["url"].as_str().unwrap();
    let root = url.splitn(4, '/').take(3).collect::<Vec<_>>().join("/") + "/";
    let mut tunnel = json!({ "url": root, "tunnel": true });
    for fact in known {
        tunnel[*fact] = facts[*fact].clone();
    }
    tunnel
}

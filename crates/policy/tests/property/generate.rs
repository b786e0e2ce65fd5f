//! Random policies and facts from small pools, so that conditions hold about as often as not.

use std::collections::BTreeMap;
use std::net::IpAddr;

use fastrand::Rng;
use serde_json::{Value as Json, json};

use super::model::{
    GeneratedCondition, GeneratedDocument, GeneratedFacts, GeneratedKind, GeneratedPolicy,
    GeneratedResponse, GeneratedRule, GeneratedSpace, GeneratedTest, LISTS,
};

/// The number of times that each element was generated. The tests print it and require a minimum.
pub(crate) type Spread = BTreeMap<String, u64>;

pub(super) const HOSTS: [&str; 5] = ["a.test", "www.a.test", "b.test", "x.b.test", "nota.test"];
const PATHS: [&str; 9] = [
    "/",
    "/x",
    "/old",
    "/old/a",
    "/older",
    "/cgi-bin/x.gif",
    "/a/a/b.tar.gz",
    "/p.html",
    "/a/b/a/c/a",
];
const QUERIES: [&str; 6] = ["", "x=1", "x=1&y=2", "y=2&x=", "sid=abc", "x=2&x=1"];
const TYPES: [&str; 5] = ["text/html", "image/png", "video/mp4", "application/pdf", ""];
const STATUSES: [u16; 7] = [200, 200, 200, 204, 206, 404, 503];
const ADDRESSES: [&str; 4] = ["10.0.0.1", "10.9.0.1", "192.0.2.7", "2001:db8::1"];

/// The response headers with their values.
const HEADERS: [(&str, &[&str]); 5] = [
    ("x-a", &["one", "two"]),
    ("content-usage", &["train-ai=y", "train-ai=n"]),
    ("tdm-reservation", &["0", "1"]),
    ("x-robots-tag", &["noindex", "noindex, nofollow", "noai"]),
    ("link", &["<http://a.test/x>; rel=canonical"]),
];

/// The number of the last stage.
const LAST: usize = 3;

/// Each field with the kinds of tests that are generated for it.
const FIELD_TESTS: [(&str, &[&str]); 28] = [
    (
        "url",
        &[
            "exact", "prefix", "suffix", "contains", "regex", "glob", "length",
        ],
    ),
    ("scheme", &["exact"]),
    (
        "host",
        &["exact", "prefix", "suffix", "contains", "regex", "glob"],
    ),
    ("port", &["range"]),
    ("authority", &["exact", "prefix", "suffix"]),
    (
        "path",
        &[
            "exact", "prefix", "suffix", "contains", "regex", "glob", "length", "segments",
            "repeats",
        ],
    ),
    ("path_and_query", &["exact", "prefix", "contains", "regex"]),
    ("rel_path", &["exact", "prefix"]),
    ("rel_path_and_query", &["exact", "contains"]),
    ("query", &["exact", "prefix", "contains", "params"]),
    ("authority_path_query", &["exact", "prefix"]),
    ("param.x", &["exact", "length"]),
    ("method", &["exact", "suffix", "contains"]),
    (
        "crawler",
        &["exact", "prefix", "suffix", "contains", "length"],
    ),
    ("referer", &["exact", "contains"]),
    ("dest", &["exact"]),
    ("depth", &["range"]),
    ("address", &["cidr"]),
    (
        "content_type",
        &["exact", "prefix", "contains", "suffix", "length"],
    ),
    ("status", &["range"]),
    ("size", &["range"]),
    ("header.x-a", &["exact", "prefix", "contains"]),
    ("usage.train-ai", &["exact"]),
    ("license", &["exact", "prefix"]),
    ("title", &["exact", "contains", "length"]),
    ("body_prefix", &["prefix", "contains"]),
    ("meta_robots", &["exact", "contains"]),
    ("canonical", &["exact", "prefix"]),
];
/// The tests whose kinds few fields have, which are generated more often.
const RARE_TESTS: [(&str, &str); 8] = [
    ("path", "segments"),
    ("path", "repeats"),
    ("query", "params"),
    ("url", "glob"),
    ("host", "glob"),
    ("path", "regex"),
    ("host", "regex"),
    ("path", "length"),
];
const SHORTCUTS: [&str; 7] = [
    "domain",
    "ext",
    "under",
    "url_prefix",
    "in_query",
    "surt",
    "site",
];

/// The fields that are compared with lists of other fields and of values.
const LIST_FIELDS: [&str; 10] = [
    "url",
    "host",
    "path",
    "path",
    "query",
    "param.x",
    "crawler",
    "content_type",
    "header.x-a",
    "title",
];

/// A random generator that counts what it generates.
pub(crate) struct Generator {
    pub(crate) rng: Rng,
    pub(crate) spread: Spread,
    next_id: u32,
    /// The last stage whose fields are used.
    last: usize,
}

impl Generator {
    /// Creates a generator of policies on requests and responses, without spaces.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            rng: Rng::with_seed(seed),
            spread: Spread::new(),
            next_id: 0,
            last: LAST - 1,
        }
    }

    /// Creates a generator of policies on requests alone.
    pub(crate) fn requests(seed: u64) -> Self {
        Self {
            last: 0,
            ..Self::new(seed)
        }
    }

    /// Creates a generator of policies that also have spaces and rules on documents.
    pub(crate) fn whole(seed: u64) -> Self {
        Self {
            last: LAST,
            ..Self::new(seed)
        }
    }

    fn count(&mut self, element: impl Into<String>) {
        *self.spread.entry(element.into()).or_insert(0) += 1;
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        self.rng.choice(from).unwrap()
    }

    /// Returns one of the values half of the time.
    fn maybe(&mut self, values: &[&str]) -> Option<String> {
        self.rng.bool().then(|| (*self.pick(values)).to_owned())
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.rng.u32(0..n) == 0
    }

    pub(crate) fn world(&mut self) -> GeneratedFacts {
        let host = *self.pick(&HOSTS);
        let port = *self.pick(&[80, 80, 8080]);
        self.world_on("http", host, port)
    }

    /// Generates facts for a host with all values known.
    pub(crate) fn world_on(&mut self, scheme: &str, host: &str, port: u16) -> GeneratedFacts {
        GeneratedFacts {
            scheme: scheme.into(),
            host: host.into(),
            port,
            path: (*self.pick(&PATHS)).into(),
            query: (*self.pick(&QUERIES)).into(),
            method: (*self.pick(&["GET", "GET", "HEAD", "POST"])).into(),
            crawler: (*self.pick(&["anonymous", "news-bot", "b"])).into(),
            referer: (*self.pick(&["", "http://a.test/"])).into(),
            dest: self
                .pick(&[None, Some("navigation"), Some("embed")])
                .map(str::to_owned),
            depth: *self.pick(&[None, Some(0), Some(2), Some(9)]),
            address: Some(self.pick(&ADDRESSES).parse::<IpAddr>().unwrap()),
            response: Some(self.response()),
            document: (self.last == LAST).then(|| self.document()),
        }
    }

    fn document(&mut self) -> GeneratedDocument {
        GeneratedDocument {
            title: (*self.pick(&["", "Home", "Not found"])).into(),
            body_prefix: (*self.pick(&["", "<html>", "error 404"])).into(),
            meta_robots: self.maybe(&["noindex", "index, follow"]),
            canonical: self.maybe(&["http://a.test/x", "/x"]),
        }
    }

    fn response(&mut self) -> GeneratedResponse {
        let mut headers = BTreeMap::new();
        for (name, values) in HEADERS {
            if let Some(value) = self.maybe(values) {
                headers.insert(name.to_owned(), value);
            }
        }
        GeneratedResponse {
            status: *self.pick(&STATUSES),
            content_type: (*self.pick(&TYPES)).into(),
            size: *self.pick(&[None, Some(0), Some(500), Some(5000)]),
            license: self.maybe(&["http://a.test/l"]),
            headers,
        }
    }

    /// Generates a policy: its document, its rules for the oracle, and its options.
    pub(crate) fn policy(&mut self) -> (Json, Vec<GeneratedRule>, BTreeMap<String, Json>) {
        let generated = self.generate_policy();
        (generated.to_json(), generated.rules, generated.base)
    }

    /// Generates a policy, with spaces and rules on documents if enabled.
    pub(crate) fn generate_policy(&mut self) -> GeneratedPolicy {
        let rules = self.rules(2);
        let mut spaces = Vec::new();
        let whole = self.last == LAST;
        if whole && self.one_in(3) {
            self.count("space");
            spaces.push(self.space(Some("news-bot")));
        }
        if whole && self.one_in(5) {
            self.count("space of all others");
            spaces.push(self.space(None));
        }
        GeneratedPolicy {
            rules,
            base: self.base(),
            spaces,
        }
    }

    fn base(&mut self) -> BTreeMap<String, Json> {
        let disposition = *self.pick(&["allow", "allow", "allow", "disallow", "disallow-log"]);
        BTreeMap::from([("disposition".to_owned(), json!(disposition))])
    }

    fn space(&mut self, crawler: Option<&'static str>) -> GeneratedSpace {
        let options = if self.one_in(3) {
            self.base()
        } else {
            BTreeMap::new()
        };
        GeneratedSpace {
            crawler,
            options,
            rules: self.rules(0),
        }
    }

    fn rules(&mut self, min: usize) -> Vec<GeneratedRule> {
        let count = self.rng.usize(min..min + 6);
        (0..count).map(|_| self.rule(0, 0, self.last)).collect()
    }

    pub(super) fn id(&mut self) -> String {
        self.next_id += 1;
        format!("r{}", self.next_id)
    }

    /// Generates a rule whose facts are known no earlier than `above` and no later than `latest`.
    pub(super) fn rule(&mut self, nesting: usize, above: usize, latest: usize) -> GeneratedRule {
        if nesting < 3 && self.rng.bool() {
            return self.group(nesting, above, latest);
        }
        let cond = if self.rng.bool() {
            self.mixed()
        } else {
            self.cond(latest, 2)
        };
        self.filter(cond, above)
    }

    /// Generates a condition on facts of the request and on later facts, which the facts of the
    /// request may decide.
    fn mixed(&mut self) -> GeneratedCondition {
        let later = self.rng.usize(self.last.min(1)..=self.last);
        let parts = vec![
            GeneratedCondition::Test(self.test_at(0)),
            GeneratedCondition::Test(self.test_at(later)),
        ];
        if self.one_in(4) {
            GeneratedCondition::All(parts)
        } else {
            GeneratedCondition::Any(parts)
        }
    }

    fn filter(&mut self, cond: GeneratedCondition, above: usize) -> GeneratedRule {
        let require = self.one_in(6);
        self.count(if require {
            "rule require"
        } else {
            "rule forbid"
        });
        let stage = self.explicit_stage(cond.stage().unwrap_or(0).max(above));
        let log = self.rng.bool();
        GeneratedRule {
            id: self.id(),
            enabled: true,
            stage,
            kind: GeneratedKind::Filter { require, cond, log },
        }
    }

    /// Generates an explicit stage for some rules, at or after the stage of their facts.
    fn explicit_stage(&mut self, earliest: usize) -> Option<usize> {
        if !self.one_in(8) {
            return None;
        }
        let stage = self.rng.usize(earliest..=self.last);
        self.count(format!("stage {}", super::model::STAGES[stage]));
        Some(stage)
    }

    fn group(&mut self, nesting: usize, above: usize, latest: usize) -> GeneratedRule {
        let when = (!self.one_in(6)).then(|| self.cond(latest, 2));
        let own = when
            .as_ref()
            .and_then(GeneratedCondition::stage)
            .unwrap_or(0)
            .max(above);
        let stage = self.explicit_stage(own);
        let effective_stage = stage.unwrap_or(own);
        let unless = when.is_some() && self.one_in(4);
        let first = self.one_in(3);
        let stop = self.one_in(4);
        self.count(if unless { "rule unless" } else { "rule when" });
        if stop {
            self.count("stop");
        }
        let count = self.rng.usize(0..4);
        let rules = if first && count > 0 {
            self.count("match: first");
            self.first_list(nesting, effective_stage, count)
        } else {
            (0..count)
                .map(|_| self.rule(nesting + 1, effective_stage, self.last))
                .collect()
        };
        let then = self.assignments();
        let enabled = !self.one_in(20);
        let first = first && !rules.is_empty();
        GeneratedRule {
            id: self.id(),
            enabled,
            stage,
            kind: GeneratedKind::Group {
                when,
                unless,
                then,
                stop,
                first,
                rules,
            },
        }
    }

    /// Generates children that all run at one stage: each names a fact of that stage, or none.
    fn first_list(&mut self, nesting: usize, above: usize, count: usize) -> Vec<GeneratedRule> {
        let stage = self.rng.usize(above..=self.last);
        let mut rules: Vec<GeneratedRule> = (0..count)
            .map(|_| self.first_child(nesting, stage))
            .collect();
        if self.one_in(3) {
            rules.push(self.plain_group(Some(GeneratedCondition::Always)));
        }
        rules
    }

    fn first_child(&mut self, nesting: usize, stage: usize) -> GeneratedRule {
        let at_stage = GeneratedCondition::Test(self.test_at(stage));
        let cond = match self.rng.u32(0..3) {
            0 => GeneratedCondition::All(vec![at_stage, self.cond(stage, 1)]),
            1 => GeneratedCondition::Any(vec![at_stage, self.cond(stage, 1)]),
            _ => at_stage,
        };
        if self.rng.bool() {
            let mut filter = self.filter(cond, stage);
            filter.stage = None;
            return filter;
        }
        let mut group = self.plain_group(Some(cond));
        if nesting < 2
            && let GeneratedKind::Group { rules, .. } = &mut group.kind
        {
            *rules = (0..self.rng.usize(0..3))
                .map(|_| self.rule(nesting + 2, stage, self.last))
                .collect();
        }
        group
    }

    fn plain_group(&mut self, when: Option<GeneratedCondition>) -> GeneratedRule {
        let stop = self.one_in(6);
        if stop {
            self.count("stop");
        }
        let kind = GeneratedKind::Group {
            when,
            unless: false,
            then: self.assignments(),
            stop,
            first: false,
            rules: vec![],
        };
        GeneratedRule {
            id: self.id(),
            enabled: true,
            stage: None,
            kind,
        }
    }

    fn assignments(&mut self) -> Vec<(&'static str, Json)> {
        let mut then = vec![];
        if self.one_in(3) {
            then.push((
                "disposition",
                json!(*self.pick(&["allow", "allow", "disallow", "disallow-log"])),
            ));
        }
        if self.one_in(8) {
            then.push(("html_only", json!(self.rng.bool())));
        }
        if self.one_in(8) {
            then.push(("max_depth", json!(self.rng.u32(0..5))));
        }
        then
    }

    fn cond(&mut self, latest: usize, nesting: usize) -> GeneratedCondition {
        if nesting == 0 || self.rng.u32(0..10) < 6 {
            let stage = self.rng.usize(0..=latest);
            return GeneratedCondition::Test(self.test_at(stage));
        }
        match self.rng.u32(0..8) {
            0..3 => GeneratedCondition::All(self.conds(latest, nesting - 1)),
            3..6 if self.one_in(8) => self.many_alternatives(latest),
            3..6 => GeneratedCondition::Any(self.conds(latest, nesting - 1)),
            6 => GeneratedCondition::Not(Box::new(self.cond(latest, nesting - 1))),
            _ => GeneratedCondition::Always,
        }
    }

    fn conds(&mut self, latest: usize, nesting: usize) -> Vec<GeneratedCondition> {
        (0..self.rng.usize(1..4))
            .map(|_| self.cond(latest, nesting))
            .collect()
    }

    /// Generates a test of a field that becomes known exactly at this stage.
    fn test_at(&mut self, stage: usize) -> GeneratedTest {
        loop {
            let test = if self.one_in(10) {
                self.list_test()
            } else if stage == 0 && self.one_in(3) {
                self.shortcut()
            } else {
                self.test()
            };
            if test.stage() == stage {
                self.count(format!("stage {}", super::model::STAGES[stage]));
                let field = if test.field.is_empty() {
                    "shortcut"
                } else {
                    test.field
                };
                self.count(format!("field {field}"));
                self.count(format!("kind {}", test.kind));
                if let Some(list) = LISTS.iter().find(|list| list.name == test.values[0]) {
                    self.count(format!("list of {}", list.kind));
                }
                return test;
            }
        }
    }

    fn shortcut(&mut self) -> GeneratedTest {
        let kind = *self.pick(&SHORTCUTS);
        let value = match kind {
            "domain" => *self.pick(&["a.test", "b.test"]),
            "ext" => *self.pick(&["gif", "tar.gz", "html"]),
            "under" => *self.pick(&["/old", "/a"]),
            "url_prefix" => *self.pick(&["http://a.test/", "http://b.test/old"]),
            "in_query" => *self.pick(&["sid=", "x="]),
            "surt" => *self.pick(&["test,a,", "test,b,)/old"]),
            _ => *self.pick(&["http://a.test", "http://b.test/old"]),
        };
        GeneratedTest {
            field: "",
            kind,
            values: vec![value.into()],
            ignore_case: false,
        }
    }

    /// Generates a comparison with a list: of the field of its kind, or of any field.
    fn list_test(&mut self) -> GeneratedTest {
        let list = self.pick(&LISTS);
        let field = if list.kind == "addresses" {
            "address"
        } else if list.kind == "values" || self.rng.bool() {
            *self.pick(&LIST_FIELDS)
        } else {
            ""
        };
        GeneratedTest {
            field,
            kind: "in",
            values: vec![list.name.into()],
            ignore_case: list.has_patterns() && !field.is_empty() && self.one_in(4),
        }
    }

    /// Generates so many alternatives on one field that they are joined.
    fn many_alternatives(&mut self, latest: usize) -> GeneratedCondition {
        let first = loop {
            let test = self.test();
            if test.stage() <= latest && !test.values[0].starts_with('[') {
                break test;
            }
        };
        self.count("any of many");
        let others = (0..self.rng.usize(8..12)).map(|_| GeneratedTest {
            values: vec![self.value(first.field, first.kind)],
            ..first.clone()
        });
        let others: Vec<GeneratedTest> = others.collect();
        let all = std::iter::once(first).chain(others);
        GeneratedCondition::Any(all.map(GeneratedCondition::Test).collect())
    }

    fn test(&mut self) -> GeneratedTest {
        let (field, kind) = if self.one_in(3) {
            *self.pick(&RARE_TESTS)
        } else {
            let (field, kinds) = *self.pick(&FIELD_TESTS);
            (field, *self.pick(kinds))
        };
        let count = if kind == "length" || kind == "range" {
            1
        } else {
            self.rng.usize(1..3)
        };
        let values = (0..count).map(|_| self.value(field, kind)).collect();
        let folds =
            ["exact", "prefix", "suffix", "contains"].contains(&kind) && field != "content_type";
        GeneratedTest {
            field,
            kind,
            values,
            ignore_case: folds && self.one_in(8),
        }
    }

    fn value(&mut self, field: &str, kind: &str) -> String {
        match (field, kind) {
            (_, "length" | "segments" | "repeats" | "params") => {
                (*self.pick(&["0", "1", "2", "[2:]", "[:3]", "[5:20]"])).into()
            }
            ("port", _) => (*self.pick(&["80", "8080"])).into(),
            ("depth", _) => (*self.pick(&["0", "[1:]", "[:2]"])).into(),
            ("status", _) => (*self.pick(&["200", "404", "2xx", "5xx"])).into(),
            ("size", _) => (*self.pick(&["0", "[100:]", "[:1000]"])).into(),
            ("address", _) => {
                (*self.pick(&["10.0.0.0/8", "10.9.0.0/16", "192.0.2.0/24", "2001:db8::/32"])).into()
            }
            ("content_type", "exact") => {
                (*self.pick(&["text/html", "image/png", "video/*", "image/*"])).into()
            }
            (_, "regex") => {
                (*self.pick(&["/old(/|$)", "a\\.test", "[0-9]", "^http://b", "\\.gif$"])).into()
            }
            (_, "glob") => {
                (*self.pick(&["*", "*.test", "*/old*", "/a*a", "http://*.test/*", "/x"])).into()
            }
            _ => self.text(field, kind),
        }
    }

    /// Generates a part of a text that the field can have, so that tests of every kind sometimes
    /// hold.
    fn text(&mut self, field: &str, kind: &str) -> String {
        let world = self.world();
        let response = world.response.clone().unwrap();
        let whole = match field {
            "url" => world.url(),
            "scheme" => world.scheme,
            "host" => world.host,
            "authority" => world.authority(),
            "path" => world.path,
            "path_and_query" => world.path_and_query(),
            "rel_path" => world.path[1..].into(),
            "rel_path_and_query" => world.path_and_query()[1..].into(),
            "query" => world.query,
            "authority_path_query" => format!("{}{}", world.authority(), world.path_and_query()),
            "param.x" => (*self.pick(&["1", "2", ""])).into(),
            "method" => world.method,
            "crawler" => world.crawler,
            "referer" => world.referer,
            "dest" => (*self.pick(&["navigation", "embed"])).into(),
            "content_type" => response.content_type,
            "header.x-a" => (*self.pick(&["one", "two", ""])).into(),
            "license" => (*self.pick(&["http://a.test/l", ""])).into(),
            "usage.train-ai" => (*self.pick(&["allow", "deny", "unset"])).into(),
            "title" => (*self.pick(&["Home", "Not found", ""])).into(),
            "body_prefix" => (*self.pick(&["<html>", "error 404", ""])).into(),
            "meta_robots" => (*self.pick(&["noindex", "noindex, nofollow"])).into(),
            _ => (*self.pick(&["http://a.test/x", ""])).into(),
        };
        let cut = self.rng.usize(0..=whole.len());
        match kind {
            "prefix" => whole[..cut].into(),
            "suffix" => whole[cut..].into(),
            "contains" => whole[cut / 2..cut].into(),
            _ => whole,
        }
    }
}

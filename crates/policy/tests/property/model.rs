//! Policies and facts as plain data, evaluated by code that follows docs/policy/reference.md as
//! directly as possible.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::{Value as Json, json};

/// The value of a condition, which is unknown if it depends on unknown facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThreeValued {
    Yes,
    No,
    Unknown,
}

impl ThreeValued {
    pub(crate) fn not(self) -> Self {
        match self {
            Self::Yes => Self::No,
            Self::No => Self::Yes,
            Self::Unknown => Self::Unknown,
        }
    }

    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::No, _) | (_, Self::No) => Self::No,
            (Self::Yes, Self::Yes) => Self::Yes,
            _ => Self::Unknown,
        }
    }

    fn or(self, other: Self) -> Self {
        self.not().and(other.not()).not()
    }
}

/// The response.
#[derive(Clone, Debug)]
pub(crate) struct GeneratedResponse {
    pub(crate) status: u16,
    pub(crate) content_type: String,
    pub(crate) size: Option<u64>,
    pub(crate) license: Option<String>,
    pub(crate) headers: BTreeMap<String, String>,
}

/// The document.
#[derive(Clone, Debug)]
pub(crate) struct GeneratedDocument {
    pub(crate) title: String,
    pub(crate) body_prefix: String,
    pub(crate) meta_robots: Option<String>,
    pub(crate) canonical: Option<String>,
}

/// The facts of a request, as far as they are known.
#[derive(Clone, Debug)]
pub(crate) struct GeneratedFacts {
    pub(crate) scheme: String,
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) method: String,
    pub(crate) crawler: String,
    pub(crate) referer: String,
    pub(crate) dest: Option<String>,
    pub(crate) depth: Option<u64>,
    pub(crate) address: Option<IpAddr>,
    pub(crate) response: Option<GeneratedResponse>,
    pub(crate) document: Option<GeneratedDocument>,
}

impl GeneratedFacts {
    /// Returns a non-empty header.
    fn header(&self, name: &str) -> Option<&str> {
        self.response
            .as_ref()?
            .headers
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    pub(crate) fn authority(&self) -> String {
        let default = if self.scheme == "http" { 80 } else { 443 };
        if self.port == default {
            self.host.clone()
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    pub(crate) fn path_and_query(&self) -> String {
        if self.query.is_empty() {
            self.path.clone()
        } else {
            format!("{}?{}", self.path, self.query)
        }
    }

    pub(crate) fn url(&self) -> String {
        format!(
            "{}://{}{}",
            self.scheme,
            self.authority(),
            self.path_and_query()
        )
    }

    /// Returns the facts in the format of `crawlgate decide`.
    pub(crate) fn to_json(&self) -> Json {
        let mut facts =
            json!({ "url": self.url(), "method": self.method, "crawler": self.crawler });
        let object = facts.as_object_mut().unwrap();
        if !self.referer.is_empty() {
            object.insert("referer".into(), json!(self.referer));
        }
        if let Some(dest) = &self.dest {
            object.insert("dest".into(), json!(dest));
        }
        if let Some(depth) = self.depth {
            object.insert("depth".into(), json!(depth));
        }
        if let Some(address) = self.address {
            object.insert("address".into(), json!(address.to_string()));
        }
        if let Some(response) = &self.response {
            object.insert("status".into(), json!(response.status));
            object.insert("content_type".into(), json!(response.content_type));
            object.insert("headers".into(), json!(response.headers));
            object.insert("license".into(), json!(response.license));
            if let Some(size) = response.size {
                object.insert("size".into(), json!(size));
            }
        }
        if let Some(document) = &self.document {
            object.insert("title".into(), json!(document.title));
            object.insert("body_prefix".into(), json!(document.body_prefix));
            object.insert("meta_robots".into(), json!(document.meta_robots));
            object.insert("canonical".into(), json!(document.canonical));
        }
        facts
    }
}

/// A test of a field.
#[derive(Clone, Debug)]
pub(crate) struct GeneratedTest {
    pub(crate) field: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) values: Vec<String>,
    pub(crate) ignore_case: bool,
}

/// A condition.
#[derive(Clone, Debug)]
pub(crate) enum GeneratedCondition {
    Always,
    All(Vec<GeneratedCondition>),
    Any(Vec<GeneratedCondition>),
    Not(Box<GeneratedCondition>),
    Test(GeneratedTest),
}

/// A rule.
#[derive(Clone, Debug)]
pub(crate) struct GeneratedRule {
    pub(crate) id: String,
    pub(crate) enabled: bool,
    pub(crate) stage: Option<usize>,
    pub(crate) kind: GeneratedKind,
}

/// The kinds of rules.
#[derive(Clone, Debug)]
pub(crate) enum GeneratedKind {
    Group {
        when: Option<GeneratedCondition>,
        unless: bool,
        then: Vec<(&'static str, Json)>,
        stop: bool,
        first: bool,
        rules: Vec<GeneratedRule>,
    },
    Filter {
        require: bool,
        cond: GeneratedCondition,
        log: bool,
    },
}

/// A list of the policies.
pub(crate) struct GeneratedList {
    pub(crate) name: &'static str,
    pub(crate) kind: &'static str,
    items: &'static [&'static str],
}

const fn list(
    name: &'static str,
    kind: &'static str,
    items: &'static [&'static str],
) -> GeneratedList {
    GeneratedList { name, kind, items }
}

/// Lists of each kind; of patterns, also one with so many that they are looked up.
pub(crate) const LISTS: [GeneratedList; 13] = [
    list("mine", "domains", &["a.test"]),
    list("hosts", "hosts", &["www.a.test", "b.test"]),
    list(
        "pages",
        "urls",
        &[
            "http://a.test/x",
            "http://b.test/old/a",
            "http://nota.test/?x=1",
        ],
    ),
    list(
        "starts",
        "url_prefixes",
        &[
            "http://a.test/old",
            "http://x.b.test/",
            "http://b.test:8080/",
        ],
    ),
    list("trees", "surts", &["test,a,", "test,b,)/old"]),
    list("words", "substrings", &["/old/", "sid=", "wee", "Home"]),
    list(
        "many-words",
        "substrings",
        &[
            "/old/a", "tar", "x=2&", "p.h", "nota", "8080/p", "/b/a", "=abc", "news-", "y=", "zzz",
        ],
    ),
    list(
        "shapes",
        "globs",
        &["*.gif", "http://*.test/old*", "*x=1", "/old*", "b.*"],
    ),
    list(
        "many-shapes",
        "globs",
        &[
            "*.html", "*sid=*", "x.*", "news*", "*/a/a/*", "y=2*", "one", "text/*", "*:8080",
            "*404",
        ],
    ),
    list(
        "expressions",
        "regexes",
        &["/old(/|$)", "[0-9]{4}", "^http://b", "\\.gif$"],
    ),
    list(
        "many-expressions",
        "regexes",
        &[
            "older",
            "^/x$",
            "x=[12]&",
            "\\.(tar|zip)",
            "^n",
            "^x\\.b",
            "sid=[a-c]+",
            "/a/[b-z]",
            "^$",
            "png|mp4",
        ],
    ),
    list("nets", "addresses", &["10.0.0.0/8", "2001:db8::/32"]),
    list(
        "values",
        "values",
        &[
            "/old",
            "/x",
            "b.test",
            "1",
            "news-bot",
            "text/html",
            "Home",
            "x=1",
            "http",
        ],
    ),
];

impl GeneratedList {
    /// Returns `true` if the items are compared with any field in their own way.
    pub(crate) fn has_patterns(&self) -> bool {
        ["substrings", "globs", "regexes"].contains(&self.kind)
    }

    fn to_json(&self) -> Json {
        json!({ "kind": self.kind, "items": self.items })
    }
}

/// The stages, by number.
pub(crate) const STAGES: [&str; 4] = ["request", "destination", "response", "document"];

impl GeneratedTest {
    /// Returns the number of the stage at which the field becomes known.
    pub(crate) fn stage(&self) -> usize {
        match self.field {
            "address" => 1,
            "content_type" | "status" | "size" | "header.x-a" | "usage.train-ai" | "license" => 2,
            "title" | "body_prefix" | "meta_robots" | "canonical" => 3,
            _ => 0,
        }
    }

    /// Returns the stage for given facts, in which headers may provide fields of the document.
    pub(crate) fn stage_in(&self, world: &GeneratedFacts) -> usize {
        let header = match self.field {
            "meta_robots" => world.header("x-robots-tag"),
            "canonical" => world.header("link"),
            _ => None,
        };
        if header.is_some() { 2 } else { self.stage() }
    }

    pub(crate) fn to_json(&self) -> Json {
        let values = if self.values.len() == 1 {
            json!(self.values[0])
        } else {
            json!(self.values)
        };
        match (self.kind, self.field) {
            (
                "domain" | "ext" | "under" | "url_prefix" | "in_query" | "surt" | "site" | "in",
                "",
            ) => {
                json!({ self.kind: values })
            }
            ("in", "address") => json!({ "address": { "in": values } }),
            (kind, field) if self.ignore_case => {
                json!({ field: { kind: values, "case": "ignore" } })
            }
            ("range", field) | ("exact", field @ "content_type") => json!({ field: values }),
            (kind, field) => json!({ field: { kind: values } }),
        }
    }

    /// Returns the texts of the field; `None` if they are unknown, as most are in a tunnel.
    fn texts(&self, world: &GeneratedFacts) -> Option<Vec<String>> {
        let response = world.response.as_ref();
        let header =
            |name: &str| response.map(|r| vec![r.headers.get(name).cloned().unwrap_or_default()]);
        match self.field {
            "url" => one(&world.url()),
            "scheme" => one(&world.scheme),
            "host" => one(&world.host),
            "authority" => one(&world.authority()),
            "path" => one(&world.path),
            "path_and_query" => one(&world.path_and_query()),
            "rel_path" => one(&world.path[1..]),
            "rel_path_and_query" => one(&world.path_and_query()[1..]),
            "query" => one(&world.query),
            "authority_path_query" => {
                one(&format!("{}{}", world.authority(), world.path_and_query()))
            }
            "param.x" => Some(params(&world.query, "x")),
            "method" => one(&world.method),
            "crawler" => one(&world.crawler),
            "referer" => one(&world.referer),
            "dest" => one(world.dest.as_deref().unwrap_or("")),
            "content_type" => response.map(|r| vec![r.content_type.clone()]),
            "header.x-a" => header("x-a"),
            "title" => world.document.as_ref().map(|d| vec![d.title.clone()]),
            "body_prefix" => world.document.as_ref().map(|d| vec![d.body_prefix.clone()]),
            "meta_robots" => match world.header("x-robots-tag") {
                Some(tag) => one(tag),
                None => world
                    .document
                    .as_ref()
                    .map(|d| vec![d.meta_robots.clone().unwrap_or_default()]),
            },
            "canonical" => match world.header("link") {
                Some(link) => one(link.trim_start_matches('<').split('>').next().unwrap_or("")),
                None => world
                    .document
                    .as_ref()
                    .map(|d| vec![d.canonical.clone().unwrap_or_default()]),
            },
            "license" => response.map(|r| vec![r.license.clone().unwrap_or_default()]),
            "usage.train-ai" => response.map(|_| {
                let is = |name, value| world.header(name) == Some(value);
                let denied = is("content-usage", "train-ai=n")
                    || is("tdm-reservation", "1")
                    || is("x-robots-tag", "noai");
                let allowed = is("content-usage", "train-ai=y") || is("tdm-reservation", "0");
                let word = match (denied, allowed) {
                    (true, _) => "deny",
                    (false, true) => "allow",
                    (false, false) => "unset",
                };
                vec![word.to_owned()]
            }),
            other => panic!("no text field {other}"),
        }
    }

    pub(crate) fn eval(&self, world: &GeneratedFacts) -> ThreeValued {
        let known = match (self.kind, self.field) {
            ("domain", _) => {
                Some(self.any_value(|v| world.host == v || world.host.ends_with(&format!(".{v}"))))
            }
            ("ext", _) => {
                Some(self.any_value(|v| world.path.to_lowercase().ends_with(&format!(".{v}"))))
            }
            ("under", _) => Some(
                self.any_value(|v| world.path == v || world.path.starts_with(&format!("{v}/"))),
            ),
            ("url_prefix", _) => Some(self.any_value(|v| world.url().starts_with(v))),
            ("in_query", _) => Some(self.any_value(|v| world.query.contains(v))),
            ("surt", _) => Some(self.any_value(|v| surt(world).starts_with(v))),
            ("site", _) => Some(self.any_value(|v| on_site(world, v))),
            ("in", _) => self.list_test(world),
            ("range", "port") => Some(self.any_value(|v| world.port.to_string() == v)),
            ("range", "depth") => Some(
                world
                    .depth
                    .is_some_and(|d| self.any_value(|v| in_range(d, v))),
            ),
            ("range", "status") => world
                .response
                .as_ref()
                .map(|r| self.any_value(|v| is_status(r.status, v))),
            ("range", "size") => world
                .response
                .as_ref()
                .map(|r| r.size.is_some_and(|s| self.any_value(|v| in_range(s, v)))),
            ("cidr", _) => world
                .address
                .map(|a| self.any_value(|v| v.parse::<ipnet::IpNet>().unwrap().contains(&a))),
            ("segments", _) => Some(self.any_value(|v| in_range(segments(world).len() as u64, v))),
            ("repeats", _) => Some(self.any_value(|v| in_range(repeats(world), v))),
            ("params", _) => {
                let count = world.query.split('&').filter(|p| !p.is_empty()).count();
                Some(self.any_value(|v| in_range(count as u64, v)))
            }
            (kind, _) => self.texts(world).map(|texts| {
                texts
                    .iter()
                    .any(|text| self.any_value(|value| self.text_test(kind, text, value)))
            }),
        };
        match known {
            Some(true) => ThreeValued::Yes,
            Some(false) => ThreeValued::No,
            None => ThreeValued::Unknown,
        }
    }

    /// Compares a field with a list; `None` if the field is unknown.
    fn list_test(&self, world: &GeneratedFacts) -> Option<bool> {
        let list = LISTS
            .iter()
            .find(|list| list.name == self.values[0])
            .unwrap();
        let field = match (self.field, list.kind) {
            ("", "domains" | "hosts") => "host",
            ("", _) => "url",
            (field, _) => field,
        };
        let kind = match (list.kind, field) {
            ("addresses", _) => "cidr",
            ("domains", "host") => "domain",
            ("url_prefixes", "url") => "url_prefix",
            ("surts", "url") => "surt",
            ("substrings", _) => "contains",
            ("globs", _) => "glob",
            ("regexes", _) => "regex",
            _ => "exact",
        };
        let test = Self {
            field,
            kind,
            values: list.items.iter().map(|item| (*item).to_owned()).collect(),
            ignore_case: self.ignore_case,
        };
        match test.eval(world) {
            ThreeValued::Yes => Some(true),
            ThreeValued::No => Some(false),
            ThreeValued::Unknown => None,
        }
    }

    fn any_value(&self, test: impl Fn(&str) -> bool) -> bool {
        self.values.iter().any(|v| test(v))
    }

    fn text_test(&self, kind: &str, text: &str, value: &str) -> bool {
        let folds = self.ignore_case
            || ["scheme", "host", "authority", "content_type"].contains(&self.field);
        let text = &fold_case(text, folds);
        let value = &fold_case(value, folds);
        match kind {
            "exact" => match value.strip_suffix("/*") {
                Some(family) if self.field == "content_type" => {
                    text.starts_with(&format!("{family}/"))
                }
                _ => text == value,
            },
            "prefix" => text.starts_with(value),
            "suffix" => text.ends_with(value),
            "contains" => text.contains(value),
            "regex" => regex::Regex::new(value).unwrap().is_match(text),
            "glob" => glob(value, text),
            "length" => in_range(text.chars().count() as u64, value),
            other => panic!("no kind {other}"),
        }
    }
}

impl GeneratedCondition {
    pub(crate) fn to_json(&self) -> Json {
        match self {
            Self::Always => json!({ "always": true }),
            Self::All(conds) => json!({ "all": Self::list_to_json(conds) }),
            Self::Any(conds) => json!({ "any": Self::list_to_json(conds) }),
            Self::Not(cond) => json!({ "not": cond.to_json() }),
            Self::Test(test) => test.to_json(),
        }
    }

    fn list_to_json(conds: &[Self]) -> Json {
        Json::Array(conds.iter().map(Self::to_json).collect())
    }

    pub(crate) fn eval(&self, world: &GeneratedFacts) -> ThreeValued {
        match self {
            Self::Always => ThreeValued::Yes,
            Self::All(conds) => conds
                .iter()
                .fold(ThreeValued::Yes, |t, c| t.and(c.eval(world))),
            Self::Any(conds) => conds
                .iter()
                .fold(ThreeValued::No, |t, c| t.or(c.eval(world))),
            Self::Not(cond) => cond.eval(world).not(),
            Self::Test(test) => test.eval(world),
        }
    }

    pub(crate) fn for_each_test<'a>(&'a self, visit: &mut dyn FnMut(&'a GeneratedTest)) {
        match self {
            Self::Always => {}
            Self::All(conds) | Self::Any(conds) => {
                conds.iter().for_each(|c| c.for_each_test(visit))
            }
            Self::Not(cond) => cond.for_each_test(visit),
            Self::Test(test) => visit(test),
        }
    }

    /// Returns the stage at which all facts of the condition are known; `None` if it has no facts.
    pub(crate) fn stage(&self) -> Option<usize> {
        let mut stage = None;
        self.for_each_test(&mut |test| stage = stage.max(Some(test.stage())));
        stage
    }

    pub(crate) fn stage_in(&self, world: &GeneratedFacts) -> Option<usize> {
        let mut stage = None;
        self.for_each_test(&mut |test| stage = stage.max(Some(test.stage_in(world))));
        stage
    }
}

/// A policy: the rules for all crawlers, and the spaces.
#[derive(Clone, Debug)]
pub(crate) struct GeneratedPolicy {
    pub(crate) rules: Vec<GeneratedRule>,
    pub(crate) base: BTreeMap<String, Json>,
    pub(crate) spaces: Vec<GeneratedSpace>,
}

/// A space of one crawler, or of all others.
#[derive(Clone, Debug)]
pub(crate) struct GeneratedSpace {
    pub(crate) crawler: Option<&'static str>,
    pub(crate) options: BTreeMap<String, Json>,
    pub(crate) rules: Vec<GeneratedRule>,
}

impl GeneratedSpace {
    fn to_json(&self, number: usize) -> Json {
        json!({
            "name": format!("s{number}"),
            "crawlers": self.crawler.map_or(json!([]), |name| json!([name])),
            "options": self.options,
            "rules": rules_to_json(&self.rules),
        })
    }
}

fn rules_to_json(rules: &[GeneratedRule]) -> Json {
    Json::Array(rules.iter().map(GeneratedRule::to_json).collect())
}

impl GeneratedPolicy {
    pub(crate) fn to_json(&self) -> Json {
        let spaces = self.spaces.iter().enumerate();
        with_lists(json!({
            "policy": 1,
            "name": "random",
            "options": self.base,
            "rules": rules_to_json(&self.rules),
            "spaces": spaces.map(|(at, space)| space.to_json(at)).collect::<Vec<_>>(),
        }))
    }

    pub(crate) fn space_of(&self, crawler: &str) -> Option<&GeneratedSpace> {
        let own = self
            .spaces
            .iter()
            .find(|space| space.crawler == Some(crawler));
        own.or_else(|| self.spaces.iter().find(|space| space.crawler.is_none()))
    }

    /// Returns the rules of the document and of all spaces.
    pub(crate) fn all(&self) -> Vec<GeneratedRule> {
        self.rules
            .iter()
            .chain(self.spaces.iter().flat_map(|space| &space.rules))
            .cloned()
            .collect()
    }

    /// Returns the policy without its disabled rules.
    pub(crate) fn without_disabled(&self) -> Self {
        let mut pruned = self.clone();
        prune(&mut pruned.rules);
        pruned
            .spaces
            .iter_mut()
            .for_each(|space| prune(&mut space.rules));
        pruned
    }
}

/// Adds the lists that the conditions of a policy name.
pub(crate) fn with_lists(mut document: Json) -> Json {
    let mut names = BTreeSet::new();
    collect_list_names(&document, &mut names);
    let used = LISTS.iter().filter(|list| names.contains(list.name));
    document["lists"] = used
        .map(|list| (list.name.to_owned(), list.to_json()))
        .collect();
    document
}

fn collect_list_names(value: &Json, names: &mut BTreeSet<String>) {
    if let Some(entries) = value.as_object() {
        let list = entries.get("in").and_then(Json::as_str);
        names.extend(list.map(str::to_owned));
        for value in entries.values() {
            collect_list_names(value, names);
        }
    }
    for item in value.as_array().into_iter().flatten() {
        collect_list_names(item, names);
    }
}

fn prune(rules: &mut Vec<GeneratedRule>) {
    rules.retain(|rule| rule.enabled);
    for rule in rules {
        if let GeneratedKind::Group { rules, .. } = &mut rule.kind {
            prune(rules);
        }
    }
}

impl GeneratedRule {
    pub(crate) fn cond(&self) -> Option<&GeneratedCondition> {
        match &self.kind {
            GeneratedKind::Group { when, .. } => when.as_ref(),
            GeneratedKind::Filter { cond, .. } => Some(cond),
        }
    }

    pub(crate) fn children(&self) -> &[GeneratedRule] {
        match &self.kind {
            GeneratedKind::Group { rules, .. } => rules,
            GeneratedKind::Filter { .. } => &[],
        }
    }

    pub(crate) fn to_json(&self) -> Json {
        let mut rule = json!({ "id": self.id });
        let object = rule.as_object_mut().unwrap();
        if !self.enabled {
            object.insert("enabled".into(), json!(false));
        }
        if let Some(stage) = self.stage {
            object.insert("stage".into(), json!(STAGES[stage]));
        }
        match &self.kind {
            GeneratedKind::Filter { require, cond, log } => {
                object.insert(
                    if *require { "require" } else { "forbid" }.into(),
                    cond.to_json(),
                );
                object.insert("log".into(), json!(log));
            }
            GeneratedKind::Group {
                when,
                unless,
                then,
                stop,
                first,
                rules,
            } => {
                if let Some(cond) = when {
                    object.insert(
                        if *unless { "unless" } else { "when" }.into(),
                        cond.to_json(),
                    );
                }
                for (option, value) in then {
                    if *option == "disposition" {
                        object.insert("then".into(), value.clone());
                    } else {
                        let set = object.entry("set").or_insert_with(|| json!({}));
                        set.as_object_mut()
                            .unwrap()
                            .insert((*option).into(), value.clone());
                    }
                }
                object.insert("stop".into(), json!(stop));
                if *first {
                    object.insert("match".into(), json!("first"));
                }
                object.insert("rules".into(), rules_to_json(rules));
            }
        }
        rule
    }
}

fn fold_case(text: &str, folds: bool) -> String {
    if folds {
        text.to_lowercase()
    } else {
        text.to_owned()
    }
}

/// Returns a single text as the texts of a field.
fn one(text: &str) -> Option<Vec<String>> {
    Some(vec![text.to_owned()])
}

fn params(query: &str, name: &str) -> Vec<String> {
    let pairs = query.split('&').filter_map(|p| p.split_once('='));
    let values: Vec<String> = pairs
        .filter(|(n, _)| *n == name)
        .map(|(_, v)| v.into())
        .collect();
    if values.is_empty() {
        vec![String::new()]
    } else {
        values
    }
}

fn segments(world: &GeneratedFacts) -> Vec<&str> {
    world.path.split('/').filter(|s| !s.is_empty()).collect()
}

fn repeats(world: &GeneratedFacts) -> u64 {
    let all = segments(world);
    all.iter()
        .map(|s| all.iter().filter(|o| *o == s).count() as u64)
        .max()
        .unwrap_or(0)
}

fn surt(world: &GeneratedFacts) -> String {
    let labels: Vec<&str> = world.host.rsplit('.').collect();
    let port = world
        .authority()
        .split_once(':')
        .map_or(String::new(), |(_, p)| format!(":{p}"));
    format!("{},{port}){}", labels.join(","), world.path_and_query())
}

fn on_site(world: &GeneratedFacts, site: &str) -> bool {
    let url = world.url();
    let has_path = site.trim_start_matches("http://").contains('/');
    if has_path {
        return url.starts_with(site);
    }
    let host = site.trim_start_matches("http://");
    [format!("http://{host}/"), format!("http://www.{host}/")]
        .iter()
        .any(|root| url.starts_with(root))
}

fn is_status(status: u16, value: &str) -> bool {
    match value.strip_suffix("xx") {
        Some(class) => status / 100 == class.parse::<u16>().unwrap(),
        None => status.to_string() == value,
    }
}

/// Returns `true` if a number is in a range: `7`, or `[2:5]` with inclusive, optional ends.
fn in_range(number: u64, range: &str) -> bool {
    match range.trim_matches(['[', ']']).split_once(':') {
        None => number.to_string() == range,
        Some((from, to)) => {
            from.parse().map_or(true, |from: u64| number >= from)
                && to.parse().map_or(true, |to: u64| number <= to)
        }
    }
}

/// Matches a pattern in which `*` matches any text.
fn glob(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((head, rest)) => match text.strip_prefix(head) {
            None => false,
            Some(after) => {
                (0..=after.len()).any(|i| after.is_char_boundary(i) && glob(rest, &after[i..]))
            }
        },
    }
}

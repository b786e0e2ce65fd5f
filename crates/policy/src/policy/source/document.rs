//! The reader of a document: the top-level keys of a policy file.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use crate::diagnostics::problem::{Problem, SourceLocation};
use crate::diagnostics::problems::Problems;
use crate::model::disposition::Disposition;
use crate::model::rule_id::Slug;
use crate::policy::cases::{Case, CaseAssertion};
use crate::policy::list::ListKind;
use crate::policy::options::schema;
use crate::yaml::read::{self, MapReader, wrong_type};
use crate::yaml::{MappingEntry, Node, YamlValue};

use super::case::read_cases;
use super::host_pace::read_host_paces;
use super::json_schema::{SLUG_PATTERN, described, reference};
use super::key::{Key, properties};
use super::option::read_options;
use super::policy_reader::PolicyFileReader;
use super::read_text;
use super::rule::read_rules;
use super::rule_texts::SourceRuleTexts;
use super::space::{read_global_space, read_spaces};
use super::tree::{
    Located, LocatedText, OnInvalidRule, SourceGlobalSpace, SourceHostPace, SourceList,
    SourceListItems, SourceOption, SourceRule, SourceSpace,
};

/// The supported version of the policy language.
const VERSION: i64 = 1;

const POLICY: Key = Key::schema(
    "policy",
    version_schema,
    "The version of the policy language; in a case file the path of its policy, relative to the file.",
);
const NAME: Key = Key::schema(
    "name",
    name_schema,
    "The policy's name, shown in headers, logs and metrics.",
);
const ON_INVALID_RULE: Key = Key::words(
    "on_invalid_rule",
    &["refuse", "disable"],
    Some("refuse"),
    "The handling of a rule whose own condition cannot be compiled: the whole policy is refused, or the rule and \
     all rules in it are disabled.",
);
const OPTIONS: Key = Key::definition(
    "options",
    "options",
    "Options of every URL, before the first rule.",
);
const LISTS: Key = Key::schema("lists", lists_schema, "Named lists for large data.");
/// The key of the rules that apply to every crawler.
pub(super) const RULES_KEY: &str = "rules";
const RULES: Key = Key::definition(RULES_KEY, "rules", "Rules that apply to every crawler.");
const SPACES: Key = Key::list(
    "spaces",
    "space",
    "Crawl spaces: options and rules of some crawlers.",
);
const HOSTS: Key = Key::list(
    "hosts",
    "host_pace",
    "The pace of hosts, which spaces and rules do not change; the most specific entry applies.",
);
const GLOBAL_SPACE: Key = Key::schema(
    "global_space",
    global_space_schema,
    "Decides if a URL that a space refuses belongs to another crawler: rules on hosts, nothing, or union.",
);
const CASES: Key = Key::list("cases", "case", "Tests that are part of the policy.");

/// The keys that only one file of a directory may have.
const HEADER_KEYS: [&str; 5] = [
    POLICY.name,
    NAME.name,
    OPTIONS.name,
    ON_INVALID_RULE.name,
    GLOBAL_SPACE.name,
];

const LIST_KIND: Key = Key::schema(
    "kind",
    list_kind_schema,
    "The way in which items are compared.",
);
const LIST_FILE: Key = Key::schema(
    "file",
    file_schema,
    "A file with one item per line, relative to the policy; # begins a comment; gzip is allowed.",
);
const LIST_ITEMS: Key = Key::list("items", "text", "The items themselves.");

/// The keys of a document.
const KEYS: [Key; 10] = [
    POLICY,
    NAME,
    ON_INVALID_RULE,
    OPTIONS,
    LISTS,
    RULES,
    SPACES,
    HOSTS,
    GLOBAL_SPACE,
    CASES,
];

/// Returns the JSON Schema of a document.
pub(super) fn json_schema(definitions: &Json) -> Json {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "crawlgate policy",
        "description": "The URLs that may be crawled, with their options, and tests.",
        "type": "object",
        "additionalProperties": false,
        "properties": properties(&KEYS),
        "patternProperties": { "^x-": true },
        // The keys of the header are in one file of a directory.
        "dependentRequired": {
            "name": ["policy", "options"],
            "options": ["policy", "name"],
            "on_invalid_rule": ["policy", "name", "options"],
            "global_space": ["policy", "name", "options"],
        },
        "if": { "required": ["policy"], "properties": { "policy": { "type": "string" } } },
        "then": { "required": ["cases"], "propertyNames": { "enum": ["policy", "cases"] } },
        "else": {
            "if": { "required": ["policy"] },
            "then": { "required": ["name", "options"], "properties": { "options": { "required": ["disposition"] } } },
        },
        "$defs": definitions,
    })
}

pub(super) fn list_json_schema() -> Json {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": [LIST_KIND.name],
        "properties": properties(&[LIST_KIND, LIST_FILE, LIST_ITEMS]),
        "oneOf": [{ "required": [LIST_FILE.name] }, { "required": [LIST_ITEMS.name] }],
    })
}

fn version_schema() -> Json {
    json!({ "anyOf": [{ "const": VERSION }, { "type": "string" }] })
}

fn name_schema() -> Json {
    json!({ "type": "string", "pattern": SLUG_PATTERN })
}

fn lists_schema() -> Json {
    json!({ "type": "object", "additionalProperties": reference("list") })
}

fn global_space_schema() -> Json {
    let rules = described(
        "Rules on hosts, of which the first that applies decides.",
        &reference("rules"),
    );
    json!({ "anyOf": [
        { "type": "null" },
        { "const": "union" },
        { "type": "object", "additionalProperties": false, "properties": { "rules": rules } },
    ] })
}

fn list_kind_schema() -> Json {
    let kinds = ListKind::ALL.map(|kind| {
        let description = match kind {
            ListKind::Domains => "The host is an item or a subdomain of one.",
            ListKind::Hosts => "The host is an item.",
            ListKind::Urls => "The URL is an item.",
            ListKind::UrlPrefixes => "The URL begins with an item.",
            ListKind::Surts => "The SURT form of the URL begins with an item.",
            ListKind::Substrings => "The URL contains an item.",
            ListKind::Globs => "The URL matches an item, in which * matches any run of characters.",
            ListKind::Regexes => "The URL matches an item, which is a regular expression.",
            ListKind::Addresses => "The address is in an item, which is a network.",
            ListKind::Values => "Any text equals an item.",
        };
        json!({ "const": kind.as_str(), "description": description })
    });
    json!({ "anyOf": kinds })
}

fn file_schema() -> Json {
    json!({ "type": "string" })
}

/// The header of a policy: the values of [`HEADER_KEYS`].
#[derive(Debug)]
pub(super) struct PolicyHeader {
    pub(super) name: Option<Slug>,
    pub(super) on_invalid_rule: OnInvalidRule,
    pub(super) options_place: SourceLocation,
    pub(super) options: Vec<SourceOption>,
    pub(super) global: Option<Located<SourceGlobalSpace>>,
}

impl PolicyHeader {
    /// Returns a header for a policy that has none.
    pub(super) fn missing(file: &Arc<str>) -> Self {
        Self {
            name: None,
            on_invalid_rule: OnInvalidRule::default(),
            options_place: SourceLocation::for_file(file),
            options: Vec::new(),
            global: None,
        }
    }
}

/// The parts of a policy, collected from its files.
#[derive(Debug, Default)]
pub(super) struct PolicyParts {
    pub(super) header: Option<PolicyHeader>,
    pub(super) lists: Vec<SourceList>,
    pub(super) rules: Vec<SourceRule>,
    pub(super) rule_texts: Vec<SourceRuleTexts>,
    pub(super) spaces: Vec<SourceSpace>,
    pub(super) hosts: Vec<SourceHostPace>,
    pub(super) cases: Vec<Case>,
    pub(super) assertions: Vec<CaseAssertion>,
}

/// The key with which other systems add files to one.
const INCLUDE: &str = "include";

impl PolicyParts {
    /// Adds the document of one file. `rules` are its rules, if they have been read.
    pub(super) fn add_document(
        &mut self,
        node: &Node,
        rules: Option<Vec<SourceRule>>,
        reader: &mut PolicyFileReader<'_>,
        problems: &mut Problems,
    ) {
        if let Some(problem) = configuration_problem(node) {
            problems.push(problem);
            return;
        }
        let Some(mut map) = MapReader::open_document(node, "a policy", problems) else {
            return;
        };
        if HEADER_KEYS.iter().any(|key| node.get(key).is_some()) {
            self.read_header(&mut map, problems);
        }
        for key in HEADER_KEYS {
            map.take(key);
        }
        if let Some(lists) = map.take(LISTS.name) {
            self.read_lists(lists, reader, problems);
        }
        if let Some(node) = map.take(RULES.name) {
            let first = self.rules.len() + 1;
            let mut read = rules.unwrap_or_else(|| read_rules(node, RULES_KEY, first, problems));
            // Not copied: a large policy is one file.
            if self.rules.is_empty() {
                self.rules = read;
            } else {
                self.rules.append(&mut read);
            }
        }
        if let Some(all) = map.take(CASES.name) {
            let (cases, assertions) = read_cases(all, problems);
            self.cases.extend(cases);
            self.assertions.extend(assertions);
        }
        if let Some(spaces) = map.take(SPACES.name) {
            let first = self.spaces.len() + 1;
            self.spaces
                .extend(read_spaces(spaces, first, reader, problems));
        }
        if let Some(hosts) = map.take(HOSTS.name) {
            self.hosts.extend(read_host_paces(hosts, problems));
        }
        report_misplaced_keys(node, &mut map, problems);
        map.finish(problems);
    }

    fn read_header(&mut self, map: &mut MapReader<'_>, problems: &mut Problems) {
        if self.header.is_some() {
            let present = HEADER_KEYS.into_iter().find_map(|key| map.take_entry(key));
            if let Some(entry) = present {
                let message =
                    "only one file of a policy may have this key, and another file has it already";
                problems
                    .push(Problem::error(&entry.key.place, message).with_found(&*entry.key.text));
            }
            return;
        }
        if let Some(version) = map.require(POLICY.name, problems) {
            check_version(version, problems);
        }
        let name = map
            .require(NAME.name, problems)
            .and_then(|node| read_name(node, problems));
        let on_invalid_rule = match ON_INVALID_RULE.read_word(map, problems) {
            Some("disable") => OnInvalidRule::Disable,
            Some(_) | None => OnInvalidRule::Refuse,
        };
        let options = map.take_entry(OPTIONS.name);
        let options_place = options
            .map_or(map.place(), |entry| &entry.key.place)
            .clone();
        if options.is_none_or(|entry| entry.value.get("disposition").is_none()) {
            problems.push(missing_disposition(&options_place));
        }
        self.header = Some(PolicyHeader {
            name,
            on_invalid_rule,
            options_place,
            options: options
                .map(|entry| read_options(&entry.value, problems))
                .unwrap_or_default(),
            global: map
                .take_entry(GLOBAL_SPACE.name)
                .map(|entry| read_global_space(entry, problems)),
        });
    }

    fn read_lists(
        &mut self,
        node: &Node,
        reader: &mut PolicyFileReader<'_>,
        problems: &mut Problems,
    ) {
        for entry in read::entries(node, "`lists`", problems) {
            let name = Located {
                place: entry.key.place.clone(),
                value: (&*entry.key.text).into(),
            };
            if self.lists.iter().any(|list| list.name.value == name.value) {
                problems.push(
                    Problem::error(&name.place, "a list with this name already exists")
                        .with_found(&*name.value),
                );
            }
            let (kind, items) = read_list(&entry.value, reader, problems);
            // A list that cannot be read keeps its name, so that no further errors are reported for
            // the rules that use it.
            self.lists.push(SourceList {
                name,
                kind,
                items: items.unwrap_or(SourceListItems::Inline(Vec::new())),
            });
        }
    }
}

/// Returns the problem of a document that is a configuration: `policy` is a path, and no other key is one of a policy.
fn configuration_problem(node: &Node) -> Option<Problem> {
    let YamlValue::Mapping(entries) = &node.value else {
        return None;
    };
    let version = node.get(POLICY.name)?;
    let YamlValue::Text(path) = &version.value else {
        return None;
    };
    let is_path = path.contains('/') || path.ends_with(".yaml") || path.ends_with(".yml");
    let has_policy_key = |entry: &MappingEntry| {
        let mut keys = KEYS.iter().filter(|key| key.name != POLICY.name);
        keys.any(|key| *key.name == *entry.key.text)
    };
    if !is_path || entries.iter().any(has_policy_key) {
        return None;
    }
    let problem = Problem::error(
        &version.place,
        "this looks like a configuration, not a policy",
    );
    Some(
        problem
            .with_found(&**path)
            .with_help(format!("write `policy: {{ path: {path} }}`")),
    )
}

fn check_version(node: &Node, problems: &mut Problems) {
    if node.value != YamlValue::Int(VERSION, VERSION.to_string().into()) {
        let problem = wrong_type(node, "unsupported version of the policy language");
        problems.push(problem.with_help(match node.spelling() {
            Some(path) if path.ends_with(".yaml") => {
                format!("allowed: {VERSION}; a configuration names its policy so: `policy: {{ path: {path} }}`")
            }
            Some(_) | None => format!("allowed: {VERSION}"),
        }));
    }
}

fn read_name(node: &Node, problems: &mut Problems) -> Option<Slug> {
    let text = read::spelling(node, problems)?;
    let name = Slug::new(text);
    if name.is_none() {
        let problem = wrong_type(node, "not a valid policy name");
        problems.push(problem.with_help(
            "use lower-case letters, digits and `-`, at most 64, not starting with `-`",
        ));
    }
    name
}

fn read_list(
    node: &Node,
    reader: &mut PolicyFileReader<'_>,
    problems: &mut Problems,
) -> (Option<ListKind>, Option<SourceListItems>) {
    let Some(mut map) = MapReader::open(node, "a list", problems) else {
        return (None, None);
    };
    let kind = map
        .require(LIST_KIND.name, problems)
        .and_then(|node| read::enum_word(node, problems));
    let file = map.take(LIST_FILE.name);
    let items = map.take(LIST_ITEMS.name);
    map.finish(problems);
    let items = match (file, items) {
        (Some(file), None) => reader.read_list_file(file, problems),
        (None, Some(items)) => Some(SourceListItems::Inline(read_inline_items(items, problems))),
        (Some(_), Some(items)) => {
            problems.push(Problem::error(
                &items.place,
                "a list has either `file` or `items`, not both",
            ));
            None
        }
        (None, None) => {
            problems.push(Problem::error(
                &node.place,
                "a list needs `file` or `items`",
            ));
            None
        }
    };
    (kind, items)
}

fn read_inline_items(node: &Node, problems: &mut Problems) -> Vec<LocatedText> {
    read::items(node, "`items`", problems)
        .iter()
        .filter_map(|node| read_text(node, problems))
        .collect()
}

/// Returns the problem of a policy without a default disposition.
pub(crate) fn missing_disposition(place: &SourceLocation) -> Problem {
    let message = "`options.disposition` is missing: it applies to URLs that no rule decides";
    let problem = Problem::error(place, message)
        .with_allowed_words(Disposition::ALL.map(Disposition::as_str));
    Problem {
        suggestion: None,
        ..problem
    }
}

/// Returns the problem of a policy without a header.
pub(super) fn missing_header(path: &Arc<str>, names: &[String]) -> Problem {
    let problem = Problem::error(
        &SourceLocation::for_file(path),
        "no file of the policy contains `policy: 1` and `name`",
    );
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    problem.with_help(format!(
        "add `policy: 1`, `name: …` and `options: {{ disposition: … }}` to one of: {}",
        names.join(", ")
    ))
}

/// Reports options outside `options`, and the key with which other systems include files.
fn report_misplaced_keys(node: &Node, map: &mut MapReader<'_>, problems: &mut Problems) {
    let options = schema::SPECS.iter();
    let mut options: Vec<&str> = options
        .filter_map(|spec| spec.path.split('.').next())
        .collect();
    options.dedup();
    for name in options.into_iter().chain([INCLUDE]) {
        // A key that is taken counts as a known one.
        let entry = node.get(name).and_then(|_| map.take_entry(name));
        let Some(entry) = entry else { continue };
        let help = if name == INCLUDE {
            "the policy of several files is a directory, which `policy.path` names: all its `*.yaml` files belong to it".to_owned()
        } else {
            format!("it is an option: write `options: {{ {name}: … }}`")
        };
        let problem = Problem::error(&entry.key.place, "unknown key").with_found(name);
        problems.push(problem.with_help(help));
    }
}

//! A policy before it is written: rules with conditions, options, lists and comments.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value as Json};

use crate::yaml::{Entry, Item, Node, insert, write_document};

/// A policy to be written.
#[derive(Clone, Debug, Default)]
pub struct PolicyDraft {
    /// Its name: lower-case letters, digits and `-`; see [`to_slug`].
    pub name: String,
    /// Comments at the top of the document.
    pub notes: Vec<String>,
    /// Options of the document. `disposition` must be among them.
    pub options: OptionDrafts,
    pub lists: Vec<ListDraft>,
    pub rules: Vec<RuleItem>,
    pub spaces: Vec<SpaceDraft>,
    /// `global_space`.
    pub global_space: Option<GlobalSpaceDraft>,
    /// Requests, made of the source's words, from which cases are taken for what the search of cases does
    /// not reach: a URL with other facts.
    pub samples: Vec<(String, Map<String, Json>)>,
    /// The tests, in YAML's form of JSON; filled when the import ends.
    pub(crate) cases: Vec<Map<String, Json>>,
}

/// Options with their values, in the order in which they were first set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OptionDrafts(Vec<(String, Json, Option<String>)>);

/// A named list. One of more than 20 items is written to a file.
#[derive(Clone, Debug)]
pub struct ListDraft {
    pub name: String,
    pub notes: Vec<String>,
    /// `domains`, `hosts`, `urls`, `url_prefixes`, `surts`, `substrings`, `globs`, `regexes`, `addresses`, `values`.
    pub kind: &'static str,
    pub items: Vec<String>,
}

/// A crawl space.
#[derive(Clone, Debug, Default)]
pub struct SpaceDraft {
    pub name: String,
    pub notes: Vec<String>,
    pub crawlers: Vec<String>,
    /// The URLs that its crawlers start from.
    pub seeds: Vec<String>,
    pub options: OptionDrafts,
    pub rules: Vec<RuleItem>,
}

/// The value of `global_space`.
#[derive(Clone, Debug)]
pub enum GlobalSpaceDraft {
    Union,
    Rules(Vec<RuleItem>),
}

/// A rule, or a comment in the place of one.
#[derive(Clone, Debug)]
pub enum RuleItem {
    Rule(Box<RuleDraft>),
    Comment(String),
}

impl From<RuleDraft> for RuleItem {
    fn from(rule: RuleDraft) -> Self {
        Self::Rule(Box::new(rule))
    }
}

/// A rule.
#[derive(Clone, Debug)]
pub struct RuleDraft {
    /// Unique in the policy; see [`RuleIds`].
    pub id: String,
    pub about: Option<String>,
    /// Comments above it.
    pub notes: Vec<String>,
    /// `request`, `destination`, `response`, `document`.
    pub stage: Option<&'static str>,
    pub body: RuleDraftBody,
}

#[derive(Clone, Debug)]
pub enum RuleDraftBody {
    Group(GroupDraft),
    Filter(FilterDraft),
}

/// A rule with `when`, `unless`, or neither.
#[derive(Clone, Debug, Default)]
pub struct GroupDraft {
    pub guard: GuardDraft,
    pub then: Option<&'static str>,
    pub set: OptionDrafts,
    pub stop: bool,
    /// `match: first`.
    pub first: bool,
    pub rules: Vec<RuleItem>,
}

#[derive(Clone, Debug, Default)]
pub enum GuardDraft {
    #[default]
    Always,
    When(Condition),
    Unless(Condition),
}

/// A rule with `forbid` or `require`.
#[derive(Clone, Debug)]
pub struct FilterDraft {
    /// `true` for `forbid`, `false` for `require`.
    pub forbids: bool,
    pub condition: Condition,
    pub log: bool,
    /// `gone`, `keep`, `later`.
    pub reject: Option<&'static str>,
}

/// A condition.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    Always,
    All(Vec<Condition>),
    Any(Vec<Condition>),
    Not(Box<Condition>),
    Test(TestDraft),
}

/// A test of a field. It holds if one of the values fits.
#[derive(Clone, Debug, PartialEq)]
pub struct TestDraft {
    /// `host`, `path`, `param.NAME`, or a shortcut such as `domain`, `ext`, `under`, `in`.
    pub field: String,
    /// `exact`, `prefix`, `regex`, `segments` …; `None` for shortcuts and for the default kind of the field.
    pub kind: Option<&'static str>,
    pub values: Vec<String>,
    pub ignore_case: bool,
}

impl Condition {
    /// Creates a test by the default kind of a field, or by a shortcut: `Condition::is("domain", ["example.com"])`.
    pub fn is<S: Into<String>>(field: &str, values: impl IntoIterator<Item = S>) -> Self {
        Self::test(field, None, values)
    }

    /// Creates a test of a kind.
    pub fn test<S: Into<String>>(
        field: &str,
        kind: impl Into<Option<&'static str>>,
        values: impl IntoIterator<Item = S>,
    ) -> Self {
        Self::Test(TestDraft {
            field: field.to_owned(),
            kind: kind.into(),
            values: values.into_iter().map(Into::into).collect(),
            ignore_case: false,
        })
    }

    /// Compares without regard to case.
    #[must_use]
    pub fn ignoring_case(mut self, ignore_case: bool) -> Self {
        if let Self::Test(test) = &mut self {
            test.ignore_case = ignore_case;
        }
        self
    }

    /// Negates the condition.
    #[must_use]
    pub fn negated(self) -> Self {
        match self {
            Self::Not(inner) => *inner,
            other @ (Self::Always | Self::All(_) | Self::Any(_) | Self::Test(_)) => {
                Self::Not(Box::new(other))
            }
        }
    }

    /// Combines conditions that all must hold.
    pub fn all(parts: Vec<Self>) -> Self {
        one_or(parts, Self::All)
    }

    /// Combines conditions of which one must hold.
    pub fn any(parts: Vec<Self>) -> Self {
        one_or(parts, Self::Any)
    }

    fn to_node(&self) -> Node {
        Node::Map(self.to_entries())
    }

    fn to_entries(&self) -> Vec<Entry> {
        match self {
            Self::Always => vec![Entry::new("always", Node::Literal("true".to_owned()))],
            Self::All(parts) => merge_entries(parts).unwrap_or_else(|| {
                vec![Entry::new(
                    "all",
                    Node::list(parts.iter().map(Self::to_node)),
                )]
            }),
            Self::Any(parts) => {
                vec![Entry::new(
                    "any",
                    Node::list(parts.iter().map(Self::to_node)),
                )]
            }
            Self::Not(part) => vec![Entry::new("not", part.to_node())],
            Self::Test(test) => vec![test.to_entry()],
        }
    }
}

fn one_or(mut parts: Vec<Condition>, combine: fn(Vec<Condition>) -> Condition) -> Condition {
    if parts.len() == 1 {
        return parts.remove(0);
    }
    combine(parts)
}

/// Writes several conditions as one mapping if their keys differ.
fn merge_entries(parts: &[Condition]) -> Option<Vec<Entry>> {
    let entries: Vec<Entry> = parts.iter().flat_map(Condition::to_entries).collect();
    let keys: BTreeSet<&str> = entries.iter().map(|entry| entry.key.as_str()).collect();
    (!parts.is_empty() && keys.len() == entries.len()).then_some(entries)
}

impl TestDraft {
    fn to_entry(&self) -> Entry {
        let values = Node::texts(&self.values);
        let value = match (self.kind, self.ignore_case) {
            (None, false) => values,
            (kind, ignore_case) => {
                let mut entries = vec![Entry::new(kind.unwrap_or("exact"), values)];
                if ignore_case {
                    entries.push(Entry::new("case", Node::text("ignore")));
                }
                Node::Map(entries)
            }
        };
        Entry::new(&self.field, value)
    }
}

impl OptionDrafts {
    /// Sets an option by its path: `set("politeness.delay", "3s")`.
    pub fn set(&mut self, path: &str, value: impl Into<Json>) {
        self.set_with_note(path, value, None);
    }

    /// Sets an option, with a comment above it.
    pub fn set_with_note(&mut self, path: &str, value: impl Into<Json>, note: Option<String>) {
        let value = value.into();
        match self.0.iter_mut().find(|(known, _, _)| known == path) {
            Some(found) => (found.1, found.2) = (value, note),
            None => self.0.push((path.to_owned(), value, note)),
        }
    }

    /// Returns the value of an option.
    pub fn get(&self, path: &str) -> Option<&Json> {
        let found = self.0.iter().find(|(known, _, _)| known == path);
        found.map(|(_, value, _)| value)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn to_node(&self) -> Node {
        let mut entries = Vec::new();
        for (path, value, note) in &self.0 {
            let notes = note.iter().cloned().collect();
            insert(&mut entries, path, Node::from_json(value), notes);
        }
        Node::Map(entries)
    }
}

impl RuleDraft {
    /// Creates a filter that refuses what fits the condition.
    pub fn forbid(id: impl Into<String>, condition: Condition) -> Self {
        Self::filter(id.into(), true, condition)
    }

    /// Creates a filter that refuses what does not fit the condition.
    pub fn require(id: impl Into<String>, condition: Condition) -> Self {
        Self::filter(id.into(), false, condition)
    }

    fn filter(id: String, forbids: bool, condition: Condition) -> Self {
        let filter = FilterDraft {
            forbids,
            condition,
            log: false,
            reject: None,
        };
        Self::with_body(id, RuleDraftBody::Filter(filter))
    }

    /// Creates a group.
    pub fn group(id: impl Into<String>, group: GroupDraft) -> Self {
        Self::with_body(id.into(), RuleDraftBody::Group(group))
    }

    /// Creates a group that assigns an action if the condition holds.
    pub fn when(id: impl Into<String>, condition: Condition, then: &'static str) -> Self {
        let group = GroupDraft {
            guard: GuardDraft::When(condition),
            then: Some(then),
            ..GroupDraft::default()
        };
        Self::group(id, group)
    }

    fn with_body(id: String, body: RuleDraftBody) -> Self {
        Self {
            id,
            about: None,
            notes: Vec::new(),
            stage: None,
            body,
        }
    }

    /// Sets the description.
    #[must_use]
    pub fn with_about(mut self, about: Option<String>) -> Self {
        self.about = about;
        self
    }

    fn to_item(&self) -> Item {
        let mut notes = self.notes.clone();
        if let RuleDraftBody::Group(group) = &self.body
            && !has_rule(&group.rules)
        {
            notes.extend(comments(&group.rules));
            if group.then.is_none() && group.set.is_empty() && !group.stop {
                return Item { notes, node: None };
            }
        }
        let mut entries = vec![Entry::new("id", Node::text(&self.id))];
        if let Some(about) = &self.about {
            entries.push(Entry::new("about", Node::text(about)));
        }
        if let Some(stage) = self.stage {
            entries.push(Entry::new("stage", Node::text(stage)));
        }
        match &self.body {
            RuleDraftBody::Group(group) => group.add_entries(&mut entries),
            RuleDraftBody::Filter(filter) => filter.add_entries(&mut entries),
        }
        Item {
            notes,
            node: Some(Node::Map(entries)),
        }
    }
}

impl GroupDraft {
    fn add_entries(&self, entries: &mut Vec<Entry>) {
        match &self.guard {
            GuardDraft::Always => {}
            GuardDraft::When(condition) => entries.push(Entry::new("when", condition.to_node())),
            GuardDraft::Unless(condition) => {
                entries.push(Entry::new("unless", condition.to_node()));
            }
        }
        if let Some(then) = self.then {
            entries.push(Entry::new("then", Node::text(then)));
        }
        if !self.set.is_empty() {
            entries.push(Entry::new("set", self.set.to_node()));
        }
        if self.stop {
            entries.push(Entry::new("stop", Node::Literal("true".to_owned())));
        }
        if self.first {
            entries.push(Entry::new("match", Node::text("first")));
        }
        if has_rule(&self.rules) {
            entries.push(Entry::new("rules", rules_to_node(&self.rules)));
        }
    }
}

impl FilterDraft {
    fn add_entries(&self, entries: &mut Vec<Entry>) {
        let key = if self.forbids { "forbid" } else { "require" };
        entries.push(Entry::new(key, self.condition.to_node()));
        if self.log {
            entries.push(Entry::new("log", Node::Literal("true".to_owned())));
        }
        if let Some(reject) = self.reject {
            entries.push(Entry::new("reject", Node::text(reject)));
        }
    }
}

fn rules_to_node(rules: &[RuleItem]) -> Node {
    let items = rules.iter().map(|item| match item {
        RuleItem::Rule(rule) => rule.to_item(),
        RuleItem::Comment(text) => Item {
            notes: vec![text.clone()],
            node: None,
        },
    });
    Node::List(items.collect())
}

/// Lists of more items than this are written to files.
const MAX_INLINE_ITEMS: usize = 20;

impl PolicyDraft {
    /// Returns the files of the policy, by their names: `policy.yaml` and the files of large lists.
    pub(crate) fn to_files(&self) -> BTreeMap<String, String> {
        let mut files = BTreeMap::new();
        let mut entries = vec![
            Entry::new("policy", Node::Literal("1".to_owned())),
            Entry::new("name", Node::text(&self.name)),
            Entry::new("options", self.options.to_node()),
        ];
        if !self.lists.is_empty() {
            let lists = self.lists.iter().map(|list| list.to_entry(&mut files));
            entries.push(Entry::new("lists", Node::Map(lists.collect())));
        }
        if !self.rules.is_empty() {
            entries.push(rules_entry("rules", &self.rules));
        }
        if let Some(global) = &self.global_space {
            entries.push(match global {
                GlobalSpaceDraft::Union => Entry::new("global_space", Node::text("union")),
                GlobalSpaceDraft::Rules(rules) => {
                    let rules = vec![rules_entry("rules", rules)];
                    Entry::new("global_space", Node::Map(rules))
                }
            });
        }
        if !self.spaces.is_empty() {
            let spaces = self.spaces.iter().map(SpaceDraft::to_item);
            entries.push(Entry::new("spaces", Node::List(spaces.collect())));
        }
        if !self.cases.is_empty() {
            let cases = Node::list(self.cases.iter().map(Node::from_map));
            entries.push(Entry::new("cases", cases));
        }
        files.insert(
            "policy.yaml".to_owned(),
            write_document(&self.notes, &entries),
        );
        files
    }
}

fn has_rule(rules: &[RuleItem]) -> bool {
    rules.iter().any(|item| matches!(item, RuleItem::Rule(_)))
}

fn comments(rules: &[RuleItem]) -> Vec<String> {
    let comments = rules.iter().filter_map(|item| match item {
        RuleItem::Comment(text) => Some(text.clone()),
        RuleItem::Rule(_) => None,
    });
    comments.collect()
}

/// Writes a list of rules. One of comments only is empty, with the comments above its key.
fn rules_entry(key: &str, rules: &[RuleItem]) -> Entry {
    if has_rule(rules) {
        return Entry::new(key, rules_to_node(rules));
    }
    Entry {
        notes: comments(rules),
        key: key.to_owned(),
        value: Node::List(Vec::new()),
    }
}

impl ListDraft {
    fn to_entry(&self, files: &mut BTreeMap<String, String>) -> Entry {
        let mut entries = vec![Entry::new("kind", Node::text(self.kind))];
        // White space before `#` begins a comment in a list file.
        let fits_a_file =
            |item: &String| !item.starts_with('#') && !item.contains([' ', '\t', '\n']);
        if self.items.len() > MAX_INLINE_ITEMS && self.items.iter().all(fits_a_file) {
            let file = format!("lists/{}.txt", self.name);
            files.insert(file.clone(), format!("{}\n", self.items.join("\n")));
            entries.push(Entry::new("file", Node::text(file)));
        } else {
            entries.push(Entry::new(
                "items",
                Node::list(self.items.iter().map(Node::text)),
            ));
        }
        Entry {
            notes: self.notes.clone(),
            key: self.name.clone(),
            value: Node::Map(entries),
        }
    }
}

impl SpaceDraft {
    fn to_item(&self) -> Item {
        let mut entries = vec![Entry::new("name", Node::text(&self.name))];
        if !self.crawlers.is_empty() {
            entries.push(Entry::new(
                "crawlers",
                Node::list(self.crawlers.iter().map(Node::text)),
            ));
        }
        if !self.seeds.is_empty() {
            entries.push(Entry::new(
                "seeds",
                Node::list(self.seeds.iter().map(Node::text)),
            ));
        }
        if !self.options.is_empty() {
            entries.push(Entry::new("options", self.options.to_node()));
        }
        if !self.rules.is_empty() {
            entries.push(rules_entry("rules", &self.rules));
        }
        Item {
            notes: self.notes.clone(),
            node: Some(Node::Map(entries)),
        }
    }
}

/// Gives out ids of rules, each once.
#[derive(Debug, Default)]
pub struct RuleIds(BTreeSet<String>);

impl RuleIds {
    /// Returns an id made of a name of the source: characters that an id may not have are replaced by `-`,
    /// and a number is added if it is taken.
    pub fn next(&mut self, name: &str) -> String {
        let mut id: String = name
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-') {
                    c
                } else {
                    '-'
                }
            })
            .take(100)
            .collect();
        while id.contains("--") {
            id = id.replace("--", "-");
        }
        let id = match id.trim_matches('-') {
            "" => "rule".to_owned(),
            id => id.to_owned(),
        };
        let numbered = (2..).map(|number| format!("{id}-{number}"));
        let free = std::iter::once(id.clone()).chain(numbered);
        let id = free
            .into_iter()
            .find(|id| !self.0.contains(id))
            .unwrap_or(id);
        self.0.insert(id.clone());
        id
    }
}

/// Makes a name of a policy, a space or a list of any text: lower-case letters, digits and `-`.
pub fn to_slug(text: &str) -> String {
    let mut slug: String = text
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_lowercase()
            } else {
                '-'
            }
        })
        .take(64)
        .collect();
    while slug.contains("--") {
        slug = slug.replace("--", "-");
    }
    match slug.trim_matches('-') {
        "" => "imported".to_owned(),
        slug => slug.to_owned(),
    }
}

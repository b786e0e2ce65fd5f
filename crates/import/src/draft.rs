//! A policy before it is written: rules with conditions, options, lists and comments.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value as Json};

use crate::yaml::{Item, YamlEntry, YamlNode, insert, write_document};

/// A URL, and the other facts of the request as in a case: `crawler`, `content_type`, `status` …
pub type CaseRequest = (String, Map<String, Json>);

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
    /// Requests made of the source's words. Those that reach an outcome that no earlier one reaches become
    /// cases.
    pub examples: Vec<CaseRequest>,
    /// The lists are too large for a search: all cases are examples, and no rule is proved dead.
    pub search_skipped: bool,
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
    /// The URLs that its crawlers start from, which are written to a file.
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
    /// The rule that does the same if this one can never decide; then this one is not written at all.
    pub included_in: Option<&'static str>,
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
    When(ConditionDraft),
    Unless(ConditionDraft),
}

/// A rule with `forbid` or `require`.
#[derive(Clone, Debug)]
pub struct FilterDraft {
    /// `true` for `forbid`, `false` for `require`.
    pub forbids: bool,
    pub condition: ConditionDraft,
    pub log: bool,
    /// `gone`, `keep`, `later`.
    pub reject: Option<&'static str>,
}

/// A condition.
#[derive(Clone, Debug, PartialEq)]
pub enum ConditionDraft {
    Always,
    All(Vec<ConditionDraft>),
    Any(Vec<ConditionDraft>),
    Not(Box<ConditionDraft>),
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

impl ConditionDraft {
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

    /// Combines conditions of which one must hold. Neighbours that test the same become one test.
    pub fn any(parts: Vec<Self>) -> Self {
        let mut combined: Vec<Self> = Vec::with_capacity(parts.len());
        for part in parts {
            match (combined.last_mut(), part) {
                (Some(Self::Test(last)), Self::Test(test)) if last.can_take_values_of(&test) => {
                    last.values.extend(test.values);
                }
                (_, part) => combined.push(part),
            }
        }
        one_or(combined, Self::Any)
    }

    fn to_node(&self) -> YamlNode {
        YamlNode::Map(self.to_entries())
    }

    fn to_entries(&self) -> Vec<YamlEntry> {
        match self {
            Self::Always => vec![YamlEntry::new(
                "always",
                YamlNode::Literal("true".to_owned()),
            )],
            Self::All(parts) => merge_entries(parts).unwrap_or_else(|| {
                vec![YamlEntry::new(
                    "all",
                    YamlNode::list(parts.iter().map(Self::to_node)),
                )]
            }),
            Self::Any(parts) => {
                vec![YamlEntry::new(
                    "any",
                    YamlNode::list(parts.iter().map(Self::to_node)),
                )]
            }
            Self::Not(part) => vec![YamlEntry::new("not", part.to_node())],
            Self::Test(test) => vec![test.to_entry()],
        }
    }
}

fn one_or(
    mut parts: Vec<ConditionDraft>,
    combine: fn(Vec<ConditionDraft>) -> ConditionDraft,
) -> ConditionDraft {
    if parts.len() == 1 {
        return parts.remove(0);
    }
    combine(parts)
}

/// Writes several conditions as one mapping if their keys differ.
fn merge_entries(parts: &[ConditionDraft]) -> Option<Vec<YamlEntry>> {
    let entries: Vec<YamlEntry> = parts.iter().flat_map(ConditionDraft::to_entries).collect();
    let keys: BTreeSet<&str> = entries.iter().map(|entry| entry.key.as_str()).collect();
    (!parts.is_empty() && keys.len() == entries.len()).then_some(entries)
}

impl TestDraft {
    /// Returns `true` if the tests differ in their values only, of which one must fit.
    fn can_take_values_of(&self, other: &Self) -> bool {
        let has_values = matches!(
            self.kind,
            Some("contains" | "prefix" | "suffix" | "regex" | "glob")
        );
        has_values
            && (&self.field, self.kind, self.ignore_case)
                == (&other.field, other.kind, other.ignore_case)
    }

    fn to_entry(&self) -> YamlEntry {
        let values = YamlNode::texts(&self.values);
        let value = match (self.kind, self.ignore_case) {
            (None, false) => values,
            (kind, ignore_case) => {
                let mut entries = vec![YamlEntry::new(kind.unwrap_or("exact"), values)];
                if ignore_case {
                    entries.push(YamlEntry::new("case", YamlNode::text("ignore")));
                }
                YamlNode::Map(entries)
            }
        };
        YamlEntry::new(&self.field, value)
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

    /// Returns the options with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Json)> {
        self.0.iter().map(|(path, value, _)| (path.as_str(), value))
    }

    fn to_node(&self) -> YamlNode {
        let mut entries = Vec::new();
        for (path, value, note) in &self.0 {
            let notes = note.iter().cloned().collect();
            insert(&mut entries, path, YamlNode::from_json(value), notes);
        }
        YamlNode::Map(entries)
    }
}

impl RuleDraft {
    /// Creates a filter that refuses what fits the condition.
    pub fn forbid(id: impl Into<String>, condition: ConditionDraft) -> Self {
        Self::filter(id.into(), true, condition)
    }

    /// Creates a filter that refuses what does not fit the condition.
    pub fn require(id: impl Into<String>, condition: ConditionDraft) -> Self {
        Self::filter(id.into(), false, condition)
    }

    fn filter(id: String, forbids: bool, condition: ConditionDraft) -> Self {
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
    pub fn when(id: impl Into<String>, condition: ConditionDraft, then: &'static str) -> Self {
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
            included_in: None,
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
            if !group.has_effect() {
                return Item { notes, node: None };
            }
        }
        let mut entries = vec![YamlEntry::new("id", YamlNode::text(&self.id))];
        if let Some(about) = &self.about {
            entries.push(YamlEntry::new("about", YamlNode::text(about)));
        }
        if let Some(stage) = self.stage {
            entries.push(YamlEntry::new("stage", YamlNode::text(stage)));
        }
        match &self.body {
            RuleDraftBody::Group(group) => group.add_entries(&mut entries),
            RuleDraftBody::Filter(filter) => filter.add_entries(&mut entries),
        }
        Item {
            notes,
            node: Some(YamlNode::Map(entries)),
        }
    }
}

impl GroupDraft {
    /// Returns `true` if the group does something besides its rules.
    fn has_effect(&self) -> bool {
        // A condition alone has an effect in `match: first`: it ends the list.
        let ends_a_list = self.rules.is_empty() && !matches!(self.guard, GuardDraft::Always);
        self.then.is_some() || !self.set.is_empty() || self.stop || ends_a_list
    }

    fn add_entries(&self, entries: &mut Vec<YamlEntry>) {
        match &self.guard {
            GuardDraft::Always => {}
            GuardDraft::When(condition) => {
                entries.push(YamlEntry::new("when", condition.to_node()))
            }
            GuardDraft::Unless(condition) => {
                entries.push(YamlEntry::new("unless", condition.to_node()));
            }
        }
        if let Some(then) = self.then {
            entries.push(YamlEntry::new("then", YamlNode::text(then)));
        }
        if !self.set.is_empty() {
            entries.push(YamlEntry::new("set", self.set.to_node()));
        }
        if self.stop {
            entries.push(YamlEntry::new("stop", YamlNode::Literal("true".to_owned())));
        }
        if self.first {
            entries.push(YamlEntry::new("match", YamlNode::text("first")));
        }
        if has_rule(&self.rules) {
            entries.push(YamlEntry::new("rules", rules_to_node(&self.rules)));
        }
    }
}

impl FilterDraft {
    fn add_entries(&self, entries: &mut Vec<YamlEntry>) {
        let key = if self.forbids { "forbid" } else { "require" };
        entries.push(YamlEntry::new(key, self.condition.to_node()));
        if self.log {
            entries.push(YamlEntry::new("log", YamlNode::Literal("true".to_owned())));
        }
        if let Some(reject) = self.reject {
            entries.push(YamlEntry::new("reject", YamlNode::text(reject)));
        }
    }
}

fn rules_to_node(rules: &[RuleItem]) -> YamlNode {
    let items = rules.iter().map(|item| match item {
        RuleItem::Rule(rule) => rule.to_item(),
        RuleItem::Comment(text) => Item {
            notes: vec![text.clone()],
            node: None,
        },
    });
    YamlNode::List(items.collect())
}

/// Lists of more items than this are written to files.
const MAX_INLINE_ITEMS: usize = 20;

impl PolicyDraft {
    /// Returns the files of the policy, by their names: `policy.yaml`, and those of large lists and of seeds.
    pub fn to_files(&self) -> BTreeMap<String, String> {
        let mut files = BTreeMap::new();
        let text = self.write(Some(&mut files));
        files.insert("policy.yaml".to_owned(), text);
        files
    }

    /// Returns the policy as one document, with all lists and seeds in it.
    pub(crate) fn to_text(&self) -> String {
        self.write(None)
    }

    /// Writes the document. Large lists and seeds are written to `files`, if it is given.
    fn write(&self, mut files: Option<&mut BTreeMap<String, String>>) -> String {
        let mut entries = vec![
            YamlEntry::new("policy", YamlNode::Literal("1".to_owned())),
            YamlEntry::new("name", YamlNode::text(&self.name)),
            YamlEntry::new("options", self.options.to_node()),
        ];
        if !self.lists.is_empty() {
            let lists = self.lists.iter();
            let lists = lists.map(|list| list.to_entry(files.as_deref_mut()));
            entries.push(YamlEntry::new("lists", YamlNode::Map(lists.collect())));
        }
        if !self.rules.is_empty() {
            entries.push(rules_entry("rules", &self.rules));
        }
        if let Some(global) = &self.global_space {
            entries.push(match global {
                GlobalSpaceDraft::Union => YamlEntry::new("global_space", YamlNode::text("union")),
                GlobalSpaceDraft::Rules(rules) => {
                    let rules = vec![rules_entry("rules", rules)];
                    YamlEntry::new("global_space", YamlNode::Map(rules))
                }
            });
        }
        if !self.spaces.is_empty() {
            let spaces = self.spaces.iter();
            let spaces = spaces.map(|space| space.to_item(files.as_deref_mut()));
            entries.push(YamlEntry::new("spaces", YamlNode::List(spaces.collect())));
        }
        if !self.cases.is_empty() {
            let cases = YamlNode::list(self.cases.iter().map(YamlNode::from_map));
            entries.push(YamlEntry::new("cases", cases));
        }
        write_document(&self.notes, &entries)
    }
}

/// Returns `true` if one of the rules is written: a group without any effect is not.
fn has_rule(rules: &[RuleItem]) -> bool {
    rules.iter().any(|item| match item {
        RuleItem::Rule(rule) => match &rule.body {
            RuleDraftBody::Group(group) => group.has_effect() || has_rule(&group.rules),
            RuleDraftBody::Filter(_) => true,
        },
        RuleItem::Comment(_) => false,
    })
}

/// Returns the comments of rules that are not written.
fn comments(rules: &[RuleItem]) -> Vec<String> {
    let mut found = Vec::new();
    for item in rules {
        match item {
            RuleItem::Comment(text) => found.push(text.clone()),
            RuleItem::Rule(rule) => {
                found.extend(rule.notes.iter().cloned());
                if let RuleDraftBody::Group(group) = &rule.body {
                    found.extend(comments(&group.rules));
                }
            }
        }
    }
    found
}

/// Writes a list of rules. One of comments only is empty, with the comments above its key.
fn rules_entry(key: &str, rules: &[RuleItem]) -> YamlEntry {
    if has_rule(rules) {
        return YamlEntry::new(key, rules_to_node(rules));
    }
    YamlEntry {
        notes: comments(rules),
        key: key.to_owned(),
        value: YamlNode::List(Vec::new()),
    }
}

impl ListDraft {
    fn to_entry(&self, files: Option<&mut BTreeMap<String, String>>) -> YamlEntry {
        let mut entries = vec![YamlEntry::new("kind", YamlNode::text(self.kind))];
        // White space before `#` begins a comment in a list file.
        let fits_a_file =
            |item: &String| !item.starts_with('#') && !item.contains([' ', '\t', '\n']);
        let is_large = self.items.len() > MAX_INLINE_ITEMS && self.items.iter().all(fits_a_file);
        if let Some(files) = files.filter(|_| is_large) {
            let file = format!("lists/{}.txt", self.name);
            files.insert(file.clone(), format!("{}\n", self.items.join("\n")));
            entries.push(YamlEntry::new("file", YamlNode::text(file)));
        } else {
            entries.push(YamlEntry::new(
                "items",
                YamlNode::list(self.items.iter().map(YamlNode::text)),
            ));
        }
        YamlEntry {
            notes: self.notes.clone(),
            key: self.name.clone(),
            value: YamlNode::Map(entries),
        }
    }
}

impl SpaceDraft {
    fn to_item(&self, files: Option<&mut BTreeMap<String, String>>) -> Item {
        let mut entries = vec![YamlEntry::new("name", YamlNode::text(&self.name))];
        if !self.crawlers.is_empty() {
            entries.push(YamlEntry::new(
                "crawlers",
                YamlNode::list(self.crawlers.iter().map(YamlNode::text)),
            ));
        }
        if !self.seeds.is_empty() {
            entries.push(YamlEntry::new("seeds", self.seeds_node(files)));
        }
        if !self.options.is_empty() {
            entries.push(YamlEntry::new("options", self.options.to_node()));
        }
        if !self.rules.is_empty() {
            entries.push(rules_entry("rules", &self.rules));
        }
        Item {
            notes: self.notes.clone(),
            node: Some(YamlNode::Map(entries)),
        }
    }

    fn seeds_node(&self, files: Option<&mut BTreeMap<String, String>>) -> YamlNode {
        let Some(files) = files else {
            return YamlNode::list(self.seeds.iter().map(YamlNode::text));
        };
        let file = format!("seeds/{}.txt", self.name);
        files.insert(file.clone(), format!("{}\n", self.seeds.join("\n")));
        YamlNode::text(file)
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

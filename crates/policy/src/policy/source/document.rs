//! The reader of a document: the top-level keys of a policy file.

use std::sync::Arc;

use crate::diagnostics::problem::{Problem, SourceLocation};
use crate::diagnostics::problems::Problems;
use crate::model::disposition::Disposition;
use crate::model::rule_id::Slug;
use crate::policy::cases::Case;
use crate::policy::list::ListKind;
use crate::yaml::Node;
use crate::yaml::read::{self, MapReader, wrong_type};

use super::case::read_case;
use super::option::read_options;
use super::policy_reader::PolicyFileReader;
use super::rule::read_rules;
use super::space::{read_global_space, read_spaces};
use super::tree::{
    Located, LocatedText, OnInvalidRule, SourceGlobalSpace, SourceList, SourceListItems,
    SourceOption, SourceRule, SourceSpace,
};

/// The supported version of the policy language.
const VERSION: i64 = 1;

/// The keys that only one file of a directory may have.
const HEADER_KEYS: [&str; 5] = [
    "policy",
    "name",
    "options",
    "on_invalid_rule",
    "global_space",
];

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
        let options_place = SourceLocation::for_file(file);
        let on_invalid_rule = OnInvalidRule::default();
        Self {
            name: None,
            on_invalid_rule,
            options_place,
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
    pub(super) spaces: Vec<SourceSpace>,
    pub(super) cases: Vec<Case>,
}

impl PolicyParts {
    /// Adds the document of one file.
    pub(super) fn add_document(
        &mut self,
        node: &Node,
        reader: &mut PolicyFileReader<'_>,
        problems: &mut Problems,
    ) {
        let Some(mut map) = MapReader::open(node, "a policy", problems) else {
            return;
        };
        if HEADER_KEYS.iter().any(|key| node.get(key).is_some()) {
            self.read_header(&mut map, problems);
        }
        HEADER_KEYS.iter().for_each(|key| {
            map.take(key);
        });
        if let Some(lists) = map.take("lists") {
            self.read_lists(lists, reader, problems);
        }
        if let Some(rules) = map.take("rules") {
            let first = self.rules.len() + 1;
            self.rules
                .extend(read_rules(rules, "rules", first, problems));
        }
        if let Some(all) = map.take("cases") {
            let nodes = read::items(all, "`cases`", problems);
            self.cases
                .extend(nodes.iter().filter_map(|node| read_case(node, problems)));
        }
        if let Some(spaces) = map.take("spaces") {
            let first = self.spaces.len() + 1;
            self.spaces.extend(read_spaces(spaces, first, problems));
        }
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
        if let Some(version) = map.require("policy", problems) {
            check_version(version, problems);
        }
        let name = map
            .require("name", problems)
            .and_then(|node| read_name(node, problems));
        let on_invalid_rule = map
            .take("on_invalid_rule")
            .and_then(|node| read_on_invalid_rule(node, problems));
        let options = map.take_entry("options");
        let options_place = options
            .map_or(map.place(), |entry| &entry.key.place)
            .clone();
        if options.is_none_or(|entry| entry.value.get("disposition").is_none()) {
            problems.push(missing_disposition(&options_place));
        }
        self.header = Some(PolicyHeader {
            name,
            on_invalid_rule: on_invalid_rule.unwrap_or_default(),
            options_place,
            options: options
                .map(|entry| read_options(&entry.value, problems))
                .unwrap_or_default(),
            global: map
                .take_entry("global_space")
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
                value: entry.key.text.clone(),
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

fn check_version(node: &Node, problems: &mut Problems) {
    if node.value != crate::yaml::YamlValue::Int(VERSION, VERSION.to_string().into()) {
        let problem = wrong_type(node, "unsupported version of the policy language");
        problems.push(problem.with_help(format!("allowed: {VERSION}")));
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

fn read_on_invalid_rule(node: &Node, problems: &mut Problems) -> Option<OnInvalidRule> {
    let of_word = |word: &str| match word {
        "refuse" => Some(OnInvalidRule::Refuse),
        "disable" => Some(OnInvalidRule::Disable),
        _ => None,
    };
    read::word(node, &["refuse", "disable"], of_word, problems)
}

fn read_list_kind(node: &Node, problems: &mut Problems) -> Option<ListKind> {
    let of_word = |word: &str| ListKind::ALL.into_iter().find(|kind| kind.as_str() == word);
    read::word(
        node,
        &ListKind::ALL.map(ListKind::as_str),
        of_word,
        problems,
    )
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
        .require("kind", problems)
        .and_then(|node| read_list_kind(node, problems));
    let file = map.take("file");
    let items = map.take("items");
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
    let nodes = read::items(node, "`items`", problems);
    let text = |node: &Node, problems: &mut Problems| {
        let value = read::spelling(node, problems)?.into();
        Some(Located {
            place: node.place.clone(),
            value,
        })
    };
    nodes
        .iter()
        .filter_map(|node| text(node, problems))
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

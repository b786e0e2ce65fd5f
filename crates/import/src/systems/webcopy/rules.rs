//! The list of rules, which is found by its shape: compounds with an expression.
//!
//! The names of the other tags of a rule are published nowhere. Those of the rule editor are known; any other ends
//! the import with the rules as they are, and `--var` says what it means.

use std::collections::BTreeMap;

use crate::input::{ImportError, ImportInput};
use crate::report::PartId;

use super::source::{WebCopyAction, WebCopyCompare, WebCopyPriority, WebCopyRule};
use super::tree::{NbtDocument, NbtTag, NbtValue};
use super::words::{
    RuleTagMeaning, RuleWord, is_expression, is_of_old_version, meaning_of, normalized, read_words,
    rule_words, value_text,
};

/// The number of lines of the dump in a message.
const DUMP_LINES: usize = 60;

/// The rules as they were read.
pub(super) struct ReadRules<'d> {
    /// The list; `None` if the project has none.
    pub list: Option<&'d NbtTag>,
    pub rules: Vec<WebCopyRule>,
    /// No rule says that it is enabled or disabled.
    pub assumes_enabled: bool,
}

/// The settings of a rule.
#[derive(Clone, Debug, Default)]
struct RuleSettings {
    expression: Option<String>,
    about: Option<String>,
    compare: Option<WebCopyCompare>,
    negated: Option<bool>,
    enabled: Option<bool>,
    actions: Vec<WebCopyAction>,
    scans_content: bool,
    skips_content: bool,
    stops: bool,
    priority: Option<WebCopyPriority>,
}

/// Finds the list of rules, and reads it.
pub(super) fn read<'d>(
    document: &'d NbtDocument,
    parts: &[PartId],
    input: &ImportInput<'_>,
) -> Result<ReadRules<'d>, ImportError> {
    let Some(list) = find_list(document, input)? else {
        return Ok(ReadRules {
            list: None,
            rules: Vec::new(),
            assumes_enabled: false,
        });
    };
    let mut reader = RuleReader {
        document,
        input,
        list,
        unknown: BTreeMap::new(),
    };
    let items = list.compounds();
    let settings = items.iter().map(|rule| reader.settings(rule));
    let mut settings = settings.collect::<Result<Vec<_>, _>>()?;
    reader.finish()?;
    let is_old = items
        .iter()
        .flat_map(NbtTag::children)
        .any(|tag| is_of_old_version(&tag.name))
        || has_old_version(document);
    let assumes_enabled = reader.add_defaults(&mut settings)?;
    let mut rules = Vec::new();
    for ((number, tag), settings) in (1..).zip(items).zip(settings) {
        if let Some(part) = parts.get(tag.index) {
            rules.push(reader.rule(number, tag, *part, settings, is_old)?);
        }
    }
    Ok(ReadRules {
        list: Some(list),
        rules,
        assumes_enabled,
    })
}

/// Returns `true` for a file that version 1.7 or one before it wrote.
fn has_old_version(document: &NbtDocument) -> bool {
    let version = document.root.get("document");
    let version = version.and_then(|tag| tag.get("applicationVersion"));
    let mut numbers = version
        .and_then(NbtTag::text)
        .unwrap_or_default()
        .split('.');
    let mut next = || numbers.next().and_then(|number| number.parse::<u32>().ok());
    match (next(), next()) {
        (Some(0), _) => true,
        (Some(1), Some(minor)) => minor <= 7,
        _ => false,
    }
}

fn find_list<'d>(
    document: &'d NbtDocument,
    input: &ImportInput<'_>,
) -> Result<Option<&'d NbtTag>, ImportError> {
    let tags = document.root.all();
    let named_rules = |tag: &NbtTag| normalized(&tag.name).contains("rule");
    let is_empty_list =
        |tag: &NbtTag| matches!(&tag.value, NbtValue::List { items, .. } if items.is_empty());
    let has_expression = |tag: &NbtTag| {
        let is_one = |tag: &NbtTag| is_expression(&tag.name, input) && tag.text().is_some();
        tag.compounds()
            .iter()
            .any(|item| item.children().iter().any(is_one))
    };
    let lists = tags
        .into_iter()
        .filter(|tag| match input.variable("rules") {
            Some(name) => tag.name == name && !tag.compounds().is_empty(),
            None => {
                let has_items = !tag.compounds().is_empty() || is_empty_list(tag);
                has_expression(tag) || named_rules(tag) && has_items
            }
        });
    let mut lists: Vec<&NbtTag> = lists.collect();
    if lists.len() > 1 && lists.iter().filter(|tag| named_rules(tag)).count() == 1 {
        lists.retain(|tag| named_rules(tag));
    }
    match lists.as_slice() {
        [] => Ok(None),
        [list] => Ok(Some(list)),
        [first, ..] => {
            let names: Vec<&str> = lists.iter().map(|tag| tag.name.as_str()).collect();
            let message = format!(
                "several lists have the form of rules: {}; --var rules=NAME chooses one. The first is\n{}",
                names.join(", "),
                first.dump(DUMP_LINES)
            );
            Err(document.invalid(first, message))
        }
    }
}

struct RuleReader<'r, 'd> {
    document: &'d NbtDocument,
    input: &'r ImportInput<'r>,
    list: &'d NbtTag,
    /// The tags that are not known, by name and value, with the first of each.
    unknown: BTreeMap<String, &'d NbtTag>,
}

impl<'d> RuleReader<'_, 'd> {
    fn settings(&mut self, rule: &'d NbtTag) -> Result<RuleSettings, ImportError> {
        let mut settings = RuleSettings::default();
        for tag in rule.children() {
            match meaning_of(tag, self.input)? {
                Some(RuleTagMeaning::Expression) => {
                    settings.expression = tag.text().map(str::to_owned);
                }
                Some(RuleTagMeaning::About) => settings.about = tag.text().map(str::to_owned),
                Some(RuleTagMeaning::Words(words)) => settings.apply(&words),
                None => {
                    let name = match value_text(tag) {
                        Some(value) => format!("{}.{value}", tag.name),
                        None => tag.name.clone(),
                    };
                    self.unknown.entry(name).or_insert(tag);
                }
            }
        }
        Ok(settings)
    }

    /// Ends the import if a tag is not known.
    fn finish(&self) -> Result<(), ImportError> {
        let Some((_, first)) = self.unknown.iter().next() else {
            return Ok(());
        };
        let names: Vec<String> = self
            .unknown
            .iter()
            .map(|(name, tag)| format!("  line {}: --var {name}=WORD", tag.line))
            .collect();
        let why = format!(
            "the meaning of tags of rules is not known. Say it, by the rules as WebCopy shows them:\n{}\nwords, joined by `+`: {}, expression, about",
            names.join("\n"),
            rule_words()
        );
        Err(self.stop(first, &why))
    }

    /// Creates the error with the rules as they are.
    fn stop(&self, tag: &NbtTag, why: &str) -> ImportError {
        let dump = self.list.dump(DUMP_LINES);
        let message = format!("{why}\nthe rules (--dump prints the whole tree):\n{dump}");
        self.document.invalid(tag, message)
    }

    /// Adds what rules do not say. Returns `true` if it is assumed that they are enabled.
    fn add_defaults(&self, rules: &mut [RuleSettings]) -> Result<bool, ImportError> {
        let words = self.input.variable("rule");
        let words = words.map_or(Ok(Vec::new()), |words| read_words(words, "rule"))?;
        let mut defaults = RuleSettings::default();
        defaults.apply(&words);
        // A flag is absent if it has its default: where some rules say that they are enabled, the others are not.
        let says = |value: bool| rules.iter().any(|rule| rule.enabled == Some(value));
        let (enabled, is_assumed) = match (defaults.enabled, says(true), says(false)) {
            (Some(enabled), _, _) => (enabled, false),
            (None, true, _) => (false, false),
            (None, false, true) => (true, false),
            (None, false, false) => (true, true),
        };
        for rule in rules {
            rule.compare = rule.compare.or(defaults.compare);
            rule.negated = rule.negated.or(defaults.negated);
            rule.enabled = rule.enabled.or(Some(enabled));
            rule.priority = rule.priority.or(defaults.priority);
            rule.stops |= defaults.stops;
            if rule.actions.is_empty() {
                rule.actions.clone_from(&defaults.actions);
            }
        }
        Ok(is_assumed)
    }

    fn rule(
        &self,
        number: usize,
        tag: &NbtTag,
        part: PartId,
        settings: RuleSettings,
        is_old: bool,
    ) -> Result<WebCopyRule, ImportError> {
        let Some(expression) = settings.expression.clone() else {
            return Err(self.stop(tag, &format!("rule {number} has no expression")));
        };
        let compare = match settings.compare {
            Some(compare) => compare,
            None if is_old => WebCopyCompare::PathQuery,
            None => {
                let why = format!(
                    "rule {number} does not say what it compares; --var rule=WORD says what a rule compares then, such as --var rule=path"
                );
                return Err(self.stop(tag, &why));
            }
        };
        let action = match self.action(number, tag, &settings)? {
            None if !is_old => {
                let why = format!(
                    "rule {number} has no action; --var rule=WORD says which one a rule has then, such as --var rule=exclude"
                );
                return Err(self.stop(tag, &why));
            }
            action => action,
        };
        let field_ignores = matches!(
            compare,
            WebCopyCompare::Authority | WebCopyCompare::ContentType
        );
        Ok(WebCopyRule {
            part,
            number,
            about: settings.about.filter(|text| !text.trim().is_empty()),
            expression,
            compare,
            negated: settings.negated.unwrap_or(false),
            is_enabled: settings.enabled.unwrap_or(true),
            action,
            stops: settings.stops,
            priority: settings.priority.unwrap_or_default(),
            ignore_case: field_ignores || self.input.variable("case") == Some("ignore"),
        })
    }

    fn action(
        &self,
        number: usize,
        tag: &NbtTag,
        settings: &RuleSettings,
    ) -> Result<Option<WebCopyAction>, ImportError> {
        let action = match settings.actions.as_slice() {
            [] => None,
            [action] => Some(*action),
            [_, _, ..] => {
                let why = format!("rule {number} has several actions");
                return Err(self.stop(tag, &why));
            }
        };
        let excludes = action == Some(WebCopyAction::Exclude);
        let downloads = action == Some(WebCopyAction::Download);
        match (settings.scans_content, settings.skips_content) {
            (false, false) => Ok(action),
            (true, false) if excludes => Ok(Some(WebCopyAction::ExcludeButScan)),
            (false, true) if downloads => Ok(Some(WebCopyAction::DownloadNoScan)),
            _ => {
                let why = format!(
                    "rule {number} scans or skips content without the action that this belongs to; --var TAG=WORD says what it does, such as --var crawlContent=exclude-but-scan"
                );
                Err(self.stop(tag, &why))
            }
        }
    }
}

impl RuleSettings {
    fn apply(&mut self, words: &[RuleWord]) {
        for word in words {
            match word {
                RuleWord::Compare(compare) => self.compare = Some(*compare),
                RuleWord::Matches => self.negated = Some(false),
                RuleWord::DoesNotMatch => self.negated = Some(true),
                RuleWord::Enabled => self.enabled = Some(true),
                RuleWord::Disabled => self.enabled = Some(false),
                RuleWord::Action(action) => self.actions.push(*action),
                RuleWord::ScansContent => self.scans_content = true,
                RuleWord::SkipsContent => self.skips_content = true,
                RuleWord::Stop => self.stops = true,
                RuleWord::Priority(priority) => self.priority = Some(*priority),
                RuleWord::NotInherited | RuleWord::Ignored => {}
            }
        }
    }
}

//! Names of tags and values, and the words by which `--var` says what others mean.

use crate::input::{ImportError, ImportInput, Place};

use super::source::{WebCopyAction, WebCopyCompare, WebCopyPriority};
use super::tree::{NbtTag, NbtValue};

/// A setting of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RuleWord {
    Compare(WebCopyCompare),
    Matches,
    DoesNotMatch,
    Enabled,
    Disabled,
    Action(WebCopyAction),
    /// 1.7: with `Exclude`, the content is scanned all the same.
    ScansContent,
    /// 1.7: with `Include`, the content is not scanned.
    SkipsContent,
    Stop,
    Priority(WebCopyPriority),
    /// 1.7: the rule is not inherited by the pages that a page links to.
    NotInherited,
    Ignored,
}

/// The meaning of a tag of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RuleTagMeaning {
    Expression,
    About,
    Words(Vec<RuleWord>),
}

/// The words of `--var`.
const RULE_WORDS: [(&str, RuleWord); 21] = {
    use RuleWord::{
        Action, Compare, Disabled, DoesNotMatch, Enabled, Ignored, Matches, NotInherited, Priority,
        Stop,
    };
    [
        ("authority", Compare(WebCopyCompare::Authority)),
        (
            "authority-path-query",
            Compare(WebCopyCompare::AuthorityPathQuery),
        ),
        ("content-type", Compare(WebCopyCompare::ContentType)),
        ("url", Compare(WebCopyCompare::Url)),
        ("path", Compare(WebCopyCompare::Path)),
        ("path-query", Compare(WebCopyCompare::PathQuery)),
        ("query", Compare(WebCopyCompare::Query)),
        ("matches", Matches),
        ("does-not-match", DoesNotMatch),
        ("enabled", Enabled),
        ("disabled", Disabled),
        ("exclude", Action(WebCopyAction::Exclude)),
        ("exclude-but-scan", Action(WebCopyAction::ExcludeButScan)),
        ("download", Action(WebCopyAction::Download)),
        ("download-no-scan", Action(WebCopyAction::DownloadNoScan)),
        ("stop", Stop),
        ("high", Priority(WebCopyPriority::High)),
        ("normal", Priority(WebCopyPriority::Normal)),
        ("low", Priority(WebCopyPriority::Low)),
        ("not-inherited", NotInherited),
        ("ignore", Ignored),
    ]
};

/// The flags by their names, without case and separators: those of the rule editor.
const FLAGS: [(&str, RuleWord); 26] = {
    use RuleWord::{
        Action, Compare, Disabled, DoesNotMatch, Enabled, NotInherited, ScansContent, SkipsContent,
        Stop,
    };
    [
        ("enabled", Enabled),
        ("enable", Enabled),
        ("enablethisrule", Enabled),
        ("disabled", Disabled),
        ("exclude", Action(WebCopyAction::Exclude)),
        ("excludebutscan", Action(WebCopyAction::ExcludeButScan)),
        ("download", Action(WebCopyAction::Download)),
        ("downloadnoscan", Action(WebCopyAction::DownloadNoScan)),
        (
            "downloadbutdonotscan",
            Action(WebCopyAction::DownloadNoScan),
        ),
        ("include", Action(WebCopyAction::Download)),
        ("crawlcontent", ScansContent),
        ("dontcrawlcontent", SkipsContent),
        ("donotcrawlcontent", SkipsContent),
        ("usefulluri", Compare(WebCopyCompare::Url)),
        ("usefullurl", Compare(WebCopyCompare::Url)),
        ("fulluri", Compare(WebCopyCompare::Url)),
        ("reverse", DoesNotMatch),
        ("doesnotmatch", DoesNotMatch),
        ("stop", Stop),
        ("stopprocessing", Stop),
        ("stopprocessingrules", Stop),
        ("stopprocessingmorerules", Stop),
        ("donotinherit", NotInherited),
        ("dontinherit", NotInherited),
        ("noinherit", NotInherited),
        ("donotallowchildrentoinheritthisrule", NotInherited),
    ]
};

/// The names of tags whose values are words.
const CHOICES: [&str; 7] = [
    "compare",
    "comparewith",
    "operand",
    "action",
    "behaviour",
    "priority",
    "downloadpriority",
];

/// The values of these tags, without case and separators.
const VALUES: [(&str, RuleWord); 21] = {
    use RuleWord::{Action, Compare, DoesNotMatch, Matches, Priority};
    [
        ("authority", Compare(WebCopyCompare::Authority)),
        (
            "authoritypathandquerystring",
            Compare(WebCopyCompare::AuthorityPathQuery),
        ),
        (
            "authoritypathquery",
            Compare(WebCopyCompare::AuthorityPathQuery),
        ),
        ("contenttype", Compare(WebCopyCompare::ContentType)),
        ("entireurl", Compare(WebCopyCompare::Url)),
        ("entireuri", Compare(WebCopyCompare::Url)),
        ("path", Compare(WebCopyCompare::Path)),
        ("pathandquerystring", Compare(WebCopyCompare::PathQuery)),
        ("pathandquery", Compare(WebCopyCompare::PathQuery)),
        ("pathquery", Compare(WebCopyCompare::PathQuery)),
        ("querystring", Compare(WebCopyCompare::Query)),
        ("query", Compare(WebCopyCompare::Query)),
        ("matches", Matches),
        ("doesnotmatch", DoesNotMatch),
        ("exclude", Action(WebCopyAction::Exclude)),
        ("excludebutscan", Action(WebCopyAction::ExcludeButScan)),
        ("download", Action(WebCopyAction::Download)),
        (
            "downloadbutdonotscan",
            Action(WebCopyAction::DownloadNoScan),
        ),
        ("high", Priority(WebCopyPriority::High)),
        ("normal", Priority(WebCopyPriority::Normal)),
        ("low", Priority(WebCopyPriority::Low)),
    ]
};

/// Returns a name without case and separators.
pub(super) fn normalized(name: &str) -> String {
    let letters = name.chars().filter(|c| c.is_alphanumeric());
    letters.flat_map(char::to_lowercase).collect()
}

/// Returns `true` for the name of the tag with a rule's expression.
pub(super) fn is_expression(name: &str, input: &ImportInput<'_>) -> bool {
    match input.variable(name) {
        Some(word) => word == "expression",
        None => matches!(normalized(name).as_str(), "expression" | "pattern"),
    }
}

/// Returns `true` for the tags of version 1.7 and before.
pub(super) fn is_of_old_version(name: &str) -> bool {
    matches!(
        normalized(name).as_str(),
        "include"
            | "crawlcontent"
            | "dontcrawlcontent"
            | "donotcrawlcontent"
            | "usefulluri"
            | "usefullurl"
            | "fulluri"
            | "reverse"
    )
}

/// Returns the text of a value that is a number or a text, as `--var TAG.VALUE` names it.
pub(super) fn value_text(tag: &NbtTag) -> Option<String> {
    match &tag.value {
        NbtValue::Integer { value, .. } => Some(value.to_string()),
        NbtValue::Text(text) => Some(text.clone()),
        NbtValue::Real { .. }
        | NbtValue::Numbers { .. }
        | NbtValue::List { .. }
        | NbtValue::Compound(_) => None,
    }
}

/// Returns the word of `--var` for a tag with its value, else for a tag that is set.
pub(super) fn variable_of<'i>(tag: &NbtTag, input: &'i ImportInput<'_>) -> Option<&'i str> {
    let value = value_text(tag);
    let of_value = value.and_then(|value| input.variable(&format!("{}.{value}", tag.name)));
    of_value.or_else(|| input.variable(&tag.name))
}

/// Reads words of rules that are joined by `+`.
pub(super) fn read_words(text: &str, variable: &str) -> Result<Vec<RuleWord>, ImportError> {
    let words = text.split('+').map(|word| {
        let found = RULE_WORDS.iter().find(|(name, _)| *name == word.trim());
        found.map(|(_, word)| *word).ok_or_else(|| {
            let message = format!(
                "`{word}` is not a word for a rule; words, joined by `+`: {}",
                rule_words()
            );
            ImportError::invalid(&Place::start(&format!("--var {variable}")), message)
        })
    });
    words.collect()
}

/// Returns the words for rules, for messages.
pub(super) fn rule_words() -> String {
    RULE_WORDS.map(|(name, _)| name).join(", ")
}

/// Returns the meaning of a tag of a rule; `None` if it is not known.
pub(super) fn meaning_of(
    tag: &NbtTag,
    input: &ImportInput<'_>,
) -> Result<Option<RuleTagMeaning>, ImportError> {
    let name = normalized(&tag.name);
    let is_set = tag.integer() != Some(0);
    if let Some(words) = variable_of(tag, input) {
        return Ok(Some(match words {
            "expression" => RuleTagMeaning::Expression,
            "about" => RuleTagMeaning::About,
            words => {
                let of_value = value_text(tag)
                    .and_then(|value| input.variable(&format!("{}.{value}", tag.name)));
                let words = read_words(words, &tag.name)?;
                RuleTagMeaning::Words(match is_set || of_value.is_some() {
                    true => words,
                    false => Vec::new(),
                })
            }
        }));
    }
    if is_expression(&tag.name, input) && tag.text().is_some() {
        return Ok(Some(RuleTagMeaning::Expression));
    }
    let known = match name.as_str() {
        "comment" | "comments" | "description" | "name" | "title" if tag.text().is_some() => {
            Some(RuleTagMeaning::About)
        }
        "id" => Some(RuleTagMeaning::Words(vec![RuleWord::Ignored])),
        _ => None,
    };
    if known.is_some() {
        return Ok(known);
    }
    if CHOICES.contains(&name.as_str()) {
        let value = tag.text().map(normalized);
        let found = VALUES
            .iter()
            .find(|(known, _)| Some(*known) == value.as_deref());
        return Ok(found.map(|(_, word)| RuleTagMeaning::Words(vec![*word])));
    }
    let found = FLAGS.iter().find(|(known, _)| *known == name);
    Ok(found
        .filter(|_| matches!(tag.integer(), Some(0 | 1)))
        .map(|(_, word)| RuleTagMeaning::Words(flag_words(*word, is_set))))
}

fn flag_words(word: RuleWord, is_set: bool) -> Vec<RuleWord> {
    match (word, is_set) {
        (word, true) => vec![word],
        (RuleWord::Enabled, false) => vec![RuleWord::Disabled],
        (RuleWord::Disabled, false) => vec![RuleWord::Enabled],
        (_, false) => Vec::new(),
    }
}

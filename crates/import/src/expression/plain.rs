//! Conditions for expressions: the plain kind of a test where it means exactly the same, `regex` otherwise.

use regex_automata::nfa::thompson::{self, WhichCaptures};

use crate::draft::ConditionDraft;

use super::node::{Anchor, ExpressionNode};
use super::parse::TextNature;
use super::write::{LetterCase, letter_case, write};

/// The maximum memory of the automaton of an expression, in bytes: the policy's is 2 MiB, and it may rewrite
/// single characters.
const SIZE_LIMIT: usize = 3 << 19;
/// The maximum nesting depth of an expression in a policy.
const NEST_LIMIT: u32 = 64;

/// Returns the condition that a field fits a sequence somewhere.
pub(super) fn condition(
    sequence: Vec<ExpressionNode>,
    field: &str,
    nature: TextNature,
) -> Result<ConditionDraft, String> {
    let sequence = without_ends(sequence, nature);
    let is_always = match sequence.as_slice() {
        [] => true,
        // A URL is never empty.
        [ExpressionNode::Any(_)] => field == "url" && !nature.lines,
        [only] => only.is_start() || only.is_end(),
        _ => false,
    };
    if is_always {
        return Ok(ConditionDraft::Always);
    }
    if let Some(condition) = plain_condition(&sequence, field) {
        return Ok(condition);
    }
    let written = write(&ExpressionNode::concat(sequence), nature);
    check(&written.text, written.ignore_case)?;
    Ok(ConditionDraft::test(field, "regex", [written.text]).ignoring_case(written.ignore_case))
}

/// Removes `^.*` at the beginning and `.*$` at the end, which fit anything.
fn without_ends(mut sequence: Vec<ExpressionNode>, nature: TextNature) -> Vec<ExpressionNode> {
    if nature.lines {
        return sequence;
    }
    while matches!(sequence.as_slice(), [first, second, ..] if first.is_start() && (second.is_anything() || second.is_start()))
    {
        // `^^` is `^`.
        let second_is_start = sequence.get(1).is_some_and(ExpressionNode::is_start);
        sequence.drain(..if second_is_start { 1 } else { 2 });
    }
    while sequence.first().is_some_and(ExpressionNode::is_anything) {
        sequence.remove(0);
    }
    while matches!(sequence.as_slice(), [.., last, end] if end.is_end() && (last.is_anything() || last.is_end()))
    {
        sequence.pop();
        if sequence.last().is_some_and(ExpressionNode::is_anything) {
            sequence.pop();
        }
    }
    while sequence.last().is_some_and(ExpressionNode::is_anything) {
        sequence.pop();
    }
    sequence
}

/// Checks that a policy accepts the expression.
pub(super) fn check(text: &str, ignore_case: bool) -> Result<(), String> {
    let tree = regex_syntax::ParserBuilder::new()
        .nest_limit(NEST_LIMIT)
        .case_insensitive(ignore_case)
        .build()
        .parse(text)
        .map_err(|error| {
            let error = error.to_string();
            let last = error.lines().last().unwrap_or_default();
            format!(
                "a policy's expressions cannot say it: {}",
                last.trim_start_matches("error: ")
            )
        })?;
    // A policy's expressions are also matched backwards, and that automaton may be larger.
    let is_small = |reverse: bool| {
        let config = thompson::Config::new()
            .nfa_size_limit(Some(SIZE_LIMIT))
            .reverse(reverse)
            .which_captures(WhichCaptures::None);
        let mut compiler = thompson::Compiler::new();
        compiler.configure(config).build_from_hir(&tree).is_ok()
    };
    if is_small(false) && is_small(true) {
        return Ok(());
    }
    Err("it takes more than 2 MiB when compiled".to_owned())
}

fn plain_condition(sequence: &[ExpressionNode], field: &str) -> Option<ConditionDraft> {
    if let Some(condition) = extension(sequence, field).or_else(|| domain(sequence, field)) {
        return Some(condition);
    }
    let (starts, rest) = match sequence {
        [first, rest @ ..] if first.is_start() => (true, rest),
        rest => (false, rest),
    };
    let (ends, rest) = match rest {
        [rest @ .., last] if last.is_end() => (true, rest),
        rest => (false, rest),
    };
    let text = literal_text(rest)?;
    let node = ExpressionNode::Concat(rest.to_vec());
    let ignore_case = match letter_case(&node) {
        LetterCase::Neutral | LetterCase::Compared => false,
        LetterCase::Ignored => true,
        LetterCase::Mixed => return None,
    };
    let kind = match (starts, ends) {
        (true, true) => "exact",
        (true, false) => "prefix",
        (false, true) => "suffix",
        (false, false) => "contains",
    };
    if !is_same_as_text(field, kind, &text, ignore_case) {
        return None;
    }
    Some(match (field, kind) {
        ("host" | "content_type", "exact") | ("path" | "path_and_query", "prefix")
            if !ignore_case =>
        {
            ConditionDraft::is(field, [text])
        }
        _ => ConditionDraft::test(field, kind, [text]).ignoring_case(ignore_case),
    })
}

fn literal_text(nodes: &[ExpressionNode]) -> Option<String> {
    let chars = nodes.iter().map(literal_char);
    chars
        .collect::<Option<String>>()
        .filter(|text| !text.is_empty())
}

fn literal_char(node: &ExpressionNode) -> Option<char> {
    if let ExpressionNode::Group { inner, .. } = node {
        return literal_char(inner);
    }
    let ExpressionNode::Literal { character, .. } = node else {
        return None;
    };
    Some(*character)
}

/// Returns `true` if a policy compares a text as it is: no character has another form, and no part is resolved.
fn is_same_as_text(field: &str, kind: &str, text: &str, ignore_case: bool) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_/.=&;,:~-".contains(c);
    let dots = ["/./", "/../"].iter().any(|dots| text.contains(dots))
        || text.ends_with("/.")
        || text.ends_with("/..");
    if dots
        || !text
            .chars()
            .all(|c| plain(c) || c == '?' && matches!(field, "url" | "path_and_query"))
    {
        return false;
    }
    let from_start = matches!(kind, "exact" | "prefix");
    let has_capital = text.contains(|c: char| c.is_ascii_uppercase());
    match field {
        "url" if from_start => !ignore_case && is_url_with_path(text),
        "url" => !text.contains("//"),
        "path" | "path_and_query" => !from_start || text.starts_with('/'),
        "query" => !from_start || !text.starts_with('?'),
        "host" => kind == "exact" && !has_capital && text.contains('.') && !text.ends_with('.'),
        "content_type" => kind == "exact" && text.matches('/').count() == 1 && !text.contains(';'),
        _ => false,
    }
}

/// Returns `true` for a URL with a host in its usual form and a path without a query.
fn is_url_with_path(text: &str) -> bool {
    let rest = text
        .strip_prefix("http://")
        .or_else(|| text.strip_prefix("https://"));
    let Some((host, path)) = rest.and_then(|rest| rest.split_once('/')) else {
        return false;
    };
    let in_host = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let is_name = host.contains(|c: char| c.is_ascii_lowercase());
    is_name && host.chars().all(in_host) && !host.ends_with('.') && !path.contains('?')
}

/// Recognizes `\.(gif|jpg)$` on a path without regard to case.
fn extension(sequence: &[ExpressionNode], field: &str) -> Option<ConditionDraft> {
    let [dot, names @ .., end] = sequence else {
        return None;
    };
    let is_dot = matches!(dot, ExpressionNode::Literal { character: '.', .. });
    if field != "path" || !is_dot || !end.is_end() || names.is_empty() {
        return None;
    }
    let alternatives = match names {
        [ExpressionNode::Group { inner, .. }] => {
            let ExpressionNode::Alternate(parts) = &**inner else {
                return None;
            };
            parts.clone()
        }
        names => vec![ExpressionNode::Concat(names.to_vec())],
    };
    let mut extensions = Vec::new();
    for name in alternatives {
        if letter_case(&name) == LetterCase::Compared || letter_case(&name) == LetterCase::Mixed {
            return None;
        }
        let text = literal_text(&name.into_sequence())?;
        if !text.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return None;
        }
        extensions.push(text);
    }
    Some(ConditionDraft::is("ext", extensions))
}

/// Recognizes `(^|\.)example\.com$` on a host.
fn domain(sequence: &[ExpressionNode], field: &str) -> Option<ConditionDraft> {
    let [ExpressionNode::Group { inner, .. }, labels @ .., end] = sequence else {
        return None;
    };
    let ExpressionNode::Alternate(parts) = &**inner else {
        return None;
    };
    let is_dot =
        |node: &ExpressionNode| matches!(node, ExpressionNode::Literal { character: '.', .. });
    let is_boundary = match parts.as_slice() {
        [ExpressionNode::Anchor(Anchor::Start), dot]
        | [dot, ExpressionNode::Anchor(Anchor::Start)] => is_dot(dot),
        _ => false,
    };
    if field != "host" || !is_boundary || !end.is_end() {
        return None;
    }
    let text = literal_text(labels)?;
    let in_host = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let is_name = text.chars().all(in_host) && !text.starts_with('.') && !text.ends_with('.');
    is_name.then(|| ConditionDraft::is("domain", [text]))
}

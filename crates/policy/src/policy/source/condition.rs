//! The reader of conditions.

mod atom;
pub(super) mod json_schema;
pub(crate) mod keywords;

use crate::diagnostics::problem::Problem;
use crate::diagnostics::problems::Problems;
use crate::yaml::read::{items, one_or_many, wrong_type};
use crate::yaml::{MappingEntry, Node, YamlValue};

use super::tree::SourceCondition;

/// The maximum nesting depth of conditions.
const MAX_DEPTH: usize = 32;

/// Reads a condition; `None` if it has errors, which were reported.
pub(super) fn read_condition(node: &Node, problems: &mut Problems) -> Option<SourceCondition> {
    read_nested(node, 0, problems)
}

fn read_nested(node: &Node, depth: usize, problems: &mut Problems) -> Option<SourceCondition> {
    let YamlValue::Mapping(entries) = &node.value else {
        let problem = wrong_type(node, "a condition must be a mapping (`host: example.com`)");
        problems.push(if node.is_null() {
            problem
        } else {
            problem.with_help("to combine several conditions write `any: […]` or `all: […]`")
        });
        return None;
    };
    if entries.is_empty() {
        problems.push(
            Problem::error(&node.place, "the condition is empty").with_help("write `always: true`"),
        );
        return None;
    }
    if depth > MAX_DEPTH {
        problems.push(Problem::error(
            &node.place,
            format!("conditions are nested more than {MAX_DEPTH} levels deep"),
        ));
        return None;
    }
    let parts: Vec<Option<SourceCondition>> = entries
        .iter()
        .map(|entry| read_part(entry, depth + 1, problems))
        .collect();
    let mut parts = parts.into_iter().collect::<Option<Vec<_>>>()?;
    if parts.len() == 1 {
        parts.pop()
    } else {
        Some(SourceCondition::All(parts))
    }
}

fn read_part(
    entry: &MappingEntry,
    depth: usize,
    problems: &mut Problems,
) -> Option<SourceCondition> {
    match &*entry.key.text {
        "all" => read_parts(entry, depth, problems).map(SourceCondition::All),
        "any" => read_parts(entry, depth, problems).map(SourceCondition::Any),
        "not" => Some(SourceCondition::Not(Box::new(read_nested(
            &entry.value,
            depth,
            problems,
        )?))),
        "always" => read_always(&entry.value, problems),
        _ => atom::read_atom(entry, problems),
    }
}

fn read_parts(
    entry: &MappingEntry,
    depth: usize,
    problems: &mut Problems,
) -> Option<Vec<SourceCondition>> {
    let word = &*entry.key.text;
    let nodes = items(&entry.value, &format!("`{word}`"), problems);
    if nodes.is_empty() {
        if let YamlValue::Sequence(_) = entry.value.value {
            problems.push(Problem::error(
                &entry.value.place,
                format!("`{word}` has no conditions"),
            ));
        }
        return None;
    }
    let parts: Vec<_> = nodes
        .iter()
        .map(|node| read_nested(node, depth, problems))
        .collect();
    parts.into_iter().collect()
}

fn read_always(node: &Node, problems: &mut Problems) -> Option<SourceCondition> {
    if node.value == YamlValue::Bool(true) {
        return Some(SourceCondition::Always);
    }
    let problem = wrong_type(node, "`always` must be `true`");
    problems.push(problem.with_help("to turn a rule off write `enabled: false`"));
    None
}

/// Returns the values of a key that takes one or several. An empty list is an error, since it
/// matches nothing.
fn read_values<'n>(node: &'n Node, problems: &mut Problems) -> Option<&'n [Node]> {
    let all = one_or_many(node);
    if all.is_empty() {
        problems.push(Problem::error(&node.place, "an empty list matches nothing"));
        return None;
    }
    Some(all)
}

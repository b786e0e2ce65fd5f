//! Environment variables in values of the configuration: `${VAR}`.

use crate::diagnostics::problem::Problem;
use crate::diagnostics::problems::Problems;
use crate::yaml::{MappingEntry, Node, YamlValue};

/// Returns the value of an environment variable; in tests, from a table.
pub type VariableLookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Replaces the variables in every value of a tree; keys are not changed.
///
/// A value with a mistake is reported and removed, so that its reader does not report it again.
pub(super) fn substitute_all(
    node: &mut Node,
    variables: VariableLookup<'_>,
    problems: &mut Problems,
) {
    match &mut node.value {
        YamlValue::Sequence(items) => {
            items.retain_mut(|item| substitute_in_node(item, variables, problems))
        }
        YamlValue::Mapping(entries) => {
            entries.retain_mut(|entry| {
                is_password_hash(entry) || substitute_in_node(&mut entry.value, variables, problems)
            });
        }
        YamlValue::Null
        | YamlValue::Bool(_)
        | YamlValue::Int(..)
        | YamlValue::Float(..)
        | YamlValue::Text(_) => {}
    }
}

/// Returns `true` for the hash of a password. It begins with a dollar sign that is not a variable, and is used as it is,
/// so that it can be pasted.
fn is_password_hash(entry: &MappingEntry) -> bool {
    let text = entry
        .value
        .spelling()
        .filter(|_| *entry.key.text == *"password_hash");
    text.is_some_and(|text| {
        text.starts_with('$') && !text.starts_with("${") && !text.starts_with("$$")
    })
}

fn substitute_in_node(
    node: &mut Node,
    variables: VariableLookup<'_>,
    problems: &mut Problems,
) -> bool {
    let replaced = match &node.value {
        YamlValue::Text(text) if text.contains('$') => substitute(text, variables),
        YamlValue::Null
        | YamlValue::Bool(_)
        | YamlValue::Int(..)
        | YamlValue::Float(..)
        | YamlValue::Text(_)
        | YamlValue::Sequence(_)
        | YamlValue::Mapping(_) => {
            substitute_all(node, variables, problems);
            return true;
        }
    };
    match replaced {
        Ok(text) => node.value = to_scalar(text),
        Err(mistake) => {
            problems.push(Problem::error(&node.place, mistake));
            return false;
        }
    }
    true
}

/// Converts a text to the scalar that it would be in the file: `workers: ${WORKERS}` is a number if the variable is one.
fn to_scalar(text: String) -> YamlValue {
    let number = text
        .parse::<i64>()
        .map(|n| YamlValue::Int(n, text.as_str().into()));
    match (text.as_str(), number) {
        ("true", _) => YamlValue::Bool(true),
        ("false", _) => YamlValue::Bool(false),
        (_, Ok(number)) => number,
        (_, Err(_)) => YamlValue::Text(text.into()),
    }
}

/// Replaces every `${VAR}` by its value, and `$$` by a dollar sign. Any other `$` is an error, since it is most likely a
/// mistake.
///
/// # Errors
/// Returns a message if a variable is not set, or if a `$` is neither followed by a name in braces nor by another `$`.
pub(super) fn substitute(text: &str, variables: VariableLookup<'_>) -> Result<String, String> {
    let mut done = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        done.push_str(before);
        rest = if let Some(after) = after.strip_prefix('$') {
            done.push('$');
            after
        } else {
            let (name, after) = split_variable(after)?;
            let value = variables(name)
                .ok_or_else(|| format!("the environment variable {name} is not set"))?;
            done.push_str(&value);
            after
        };
    }
    done.push_str(rest);
    Ok(done)
}

/// Splits a text into the name in braces at its start and the rest.
fn split_variable(text: &str) -> Result<(&str, &str), String> {
    let braced = text.strip_prefix('{').and_then(|t| t.split_once('}'));
    match braced {
        Some((name, after)) if is_name(name) => Ok((name, after)),
        Some((name, _)) => Err(format!(
            "`{name}` is not the name of an environment variable"
        )),
        None => Err("write ${VAR} for an environment variable, or $$ for a dollar sign".into()),
    }
}

/// Returns `true` for the name of an environment variable (POSIX, Base Definitions 3.216).
fn is_name(text: &str) -> bool {
    let starts_well = text.bytes().next().is_some_and(|b| !b.is_ascii_digit());
    starts_well && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_replaced_once() {
        let variables = |name: &str| match name {
            "PORT" => Some("3128".to_owned()),
            "TRICKY" => Some("${PORT}$$".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        let check = |text| substitute(text, &variables);
        assert_eq!(check("127.0.0.1:${PORT}"), Ok("127.0.0.1:3128".into()));
        assert_eq!(check("a$$b${EMPTY}c"), Ok("a$bc".into()));
        assert_eq!(check("${TRICKY}"), Ok("${PORT}$$".into()));
        assert_eq!(check("no variable"), Ok("no variable".into()));
        assert_eq!(
            check("${NONE}"),
            Err("the environment variable NONE is not set".into())
        );
        for bad in ["$PORT", "a$", "${PORT", "${}", "${A-B}", "${1A}"] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }
}

//! `${VAR}` in values: the environment's part of the configuration.

use crate::diagnostics::problem::Problem;
use crate::diagnostics::problems::Problems;
use crate::yaml::{MappingEntry, Node, YamlValue};

/// Where the values of `${VAR}` come from; the process's environment, or a table in tests.
pub type VariableLookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Replaces the variables in every text of a tree; keys are left alone.
///
/// A value with a mistake is taken out when it is reported: what a reader would say of it besides is no news.
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

/// A hash of a password begins with a dollar that begins no variable: it is taken as it is, so that it can be pasted.
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

/// What the text would be in the file: `workers: ${WORKERS}` is a number if the variable is one.
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

/// Replaces every `${VAR}` by its value, and `$$` by a dollar. A `$` before anything else is an error, since it
/// would be a mistake more often than a wish.
///
/// # Errors
/// What is wrong: an unset variable, or a `$` that begins nothing.
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
            let unset = || format!("the environment variable {name} is not set");
            done.push_str(&variables(name).ok_or_else(unset)?);
            after
        };
    }
    done.push_str(rest);
    Ok(done)
}

/// The name in braces, and what follows them.
fn split_variable(text: &str) -> Result<(&str, &str), String> {
    let braced = text.strip_prefix('{').and_then(|t| t.split_once('}'));
    match braced {
        Some((name, after)) if is_name(name) => Ok((name, after)),
        Some((name, _)) => Err(format!(
            "`{name}` is not the name of an environment variable"
        )),
        None => Err("write ${VAR} for an environment variable, or $$ for a dollar".into()),
    }
}

/// POSIX, Base Definitions 3.216.
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

//! Conversion of an offline evaluation to a test case: YAML for the list `cases` of a policy or of a case file
//! (docs/policy/reference.md, "Cases").
//!
//! The case expects what the policy decides now, so it passes until the policy decides otherwise.

use std::fmt::Write as _;

use serde_json::{Map, Value as Json};

use crate::model::intent::Intent;
use crate::model::profile::Profile;
use crate::pipeline::offline_evaluation::OfflineEvaluation;
use crate::policy::cases::FACT_KEYS;

use super::decision::verdict;

/// The maximum length of a key without a question mark (YAML 1.2.2 section 7.4.2: 1,024 characters).
const MAX_PLAIN_KEY: usize = 500;

/// Returns the test case for an offline evaluation. `given` are its facts as they were read; `profile` is set if the
/// case is limited to one profile.
pub fn to_yaml(
    evaluation: &OfflineEvaluation<'_>,
    given: &Map<String, Json>,
    profile: Option<Profile>,
) -> String {
    let mut lines: Vec<String> = FACT_KEYS
        .into_iter()
        .filter_map(|key| {
            given
                .get(key)
                .filter(|value| !value.is_null())
                .map(|value| entry_line(key, value))
        })
        .collect();
    lines.extend(profile.map(|profile| format!("profile: {}", profile.as_str())));
    lines.push(expectation_line(evaluation, profile));
    format!("- {}\n", lines.join("\n  "))
}

fn entry_line(key: &str, value: &Json) -> String {
    format!("{key}: {}", flow_value(value))
}

/// Returns the expected decision. The status is included only if the case has a profile.
fn expectation_line(evaluation: &OfflineEvaluation<'_>, profile: Option<Profile>) -> String {
    let decision = &evaluation.decision;
    let answer = evaluation.answer();
    let parts = [
        ("verdict", Some(verdict(evaluation).to_owned())),
        ("stage", Some(decision.stage.as_str().to_owned())),
        ("reason", Some(decision.reason().as_str().to_owned())),
        ("rule", evaluation.rule_id().map(quote)),
        (
            "intent",
            answer.intent.map(Intent::as_str).map(str::to_owned),
        ),
        ("code", answer.code.map(|code| code.to_string())),
        (
            "status",
            answer
                .status
                .filter(|_| profile.is_some())
                .map(|status| status.to_string()),
        ),
    ];
    let parts = parts
        .into_iter()
        .filter_map(|(key, value)| Some(format!("{key}: {}", value?)));
    format!("expect: {{ {} }}", parts.collect::<Vec<_>>().join(", "))
}

/// Formats a value on one line.
fn flow_value(value: &Json) -> String {
    match value {
        Json::Null | Json::Bool(_) => value.to_string(),
        // Larger numbers are not valid in the YAML; no limit of a policy exceeds this.
        Json::Number(number) => match number.as_u64() {
            Some(whole) => whole.min(i64::MAX.unsigned_abs()).to_string(),
            None => number.to_string(),
        },
        Json::String(text) => quote(text),
        Json::Array(items) => format!(
            "[{}]",
            items.iter().map(flow_value).collect::<Vec<_>>().join(", ")
        ),
        Json::Object(entries) => {
            let entries = entries
                .iter()
                .map(|(key, value)| format!("{}: {}", yaml_key(key), flow_value(value)));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
        }
    }
}

fn yaml_key(text: &str) -> String {
    let text = quote(text);
    if text.len() > MAX_PLAIN_KEY {
        format!("? {text}")
    } else {
        text
    }
}

/// Formats text in double quotes. Everything but letters, digits and ASCII is escaped, so that nothing
/// can look like something else.
fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        let number = u32::from(c);
        // Writing to a string does not fail.
        let _ = match c {
            '"' | '\\' => write!(quoted, "\\{c}"),
            ' '..='~' => write!(quoted, "{c}"),
            _ if c.is_alphanumeric() => write!(quoted, "{c}"),
            ..='\u{ffff}' => write!(quoted, "\\u{number:04x}"),
            _ => write!(quoted, "\\U{number:08x}"),
        };
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_texts_round_trip() {
        for (text, yaml) in [
            ("", r#""""#),
            ("http://a.example/?a=b#c", r#""http://a.example/?a=b#c""#),
            (r#"a"b\c"#, r#""a\"b\\c""#),
            ("a\nb\t\u{7f}", r#""a\u000ab\u0009\u007f""#),
            ("größe", r#""größe""#),
            ("\u{202e}\u{feff}\u{1f600}", r#""\u202e\ufeff\U0001f600""#),
        ] {
            assert_eq!(quote(text), yaml);
        }
    }
}

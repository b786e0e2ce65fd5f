//! A trial as a case (policy.md section 8): YAML text for the list `cases` of a policy or of a case file.
//!
//! It says what is given, and what the policy in question makes of it, so that it passes until the policy changes its mind.

use std::fmt::Write as _;

use serde_json::{Map, Value as Json};

use crate::model::intent::Intent;
use crate::model::profile::Profile;
use crate::pipeline::offline_evaluation::OfflineEvaluation;
use crate::policy::cases::FACT_KEYS;

use super::decision::verdict;

/// The longest key that stands without a question mark before it (YAML 1.2.2 section 7.4.2: 1,024 characters).
const MAX_PLAIN_KEY: usize = 500;

/// The case of a trial with these facts, `given` as they were read; `profile` if it is to be answered in one way.
pub fn to_yaml(
    trial: &OfflineEvaluation<'_>,
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
    lines.push(expectation_line(trial, profile));
    format!("- {}\n", lines.join("\n  "))
}

fn entry_line(key: &str, value: &Json) -> String {
    format!("{key}: {}", flow_value(value))
}

/// The verdict with its cause. The status of the answer is among it where the case says who is answered.
fn expectation_line(trial: &OfflineEvaluation<'_>, profile: Option<Profile>) -> String {
    let (decision, answer) = (&trial.decision, trial.answer());
    let number = |number: Option<u16>| number.map(|number| number.to_string());
    let parts = [
        ("verdict", Some(verdict(trial).to_owned())),
        ("stage", Some(decision.stage.as_str().to_owned())),
        ("reason", Some(decision.reason().as_str().to_owned())),
        ("rule", trial.rule_id().map(quote)),
        (
            "intent",
            answer.intent.map(Intent::as_str).map(str::to_owned),
        ),
        ("code", number(answer.code)),
        (
            "status",
            number(answer.status).filter(|_| profile.is_some()),
        ),
    ];
    let parts = parts
        .into_iter()
        .filter_map(|(key, value)| Some(format!("{key}: {}", value?)));
    format!("expect: {{ {} }}", parts.collect::<Vec<_>>().join(", "))
}

/// A value on one line.
fn flow_value(value: &Json) -> String {
    match value {
        Json::Null | Json::Bool(_) => value.to_string(),
        // YAML's numbers end there; no limit of a policy is larger.
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
                .map(|(key, value)| format!("{}: {}", self::yaml_key(key), flow_value(value)));
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

/// Text between double quotes. What is no letter, digit or ASCII sign is written by its number, so that nothing in it
/// looks like something else.
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
    fn texts_are_quoted_so_that_they_stay_what_they_are() {
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

//! Output of the lines of a robots.txt other than Allow and Disallow: usage preferences, visit times, parameters, hosts
//! and sitemaps.

use serde_json::{Map, Value as Json, json};

use crate::cli::text::sanitize_text;
use crate::robots::RobotsFile;
use crate::robots::agent::RobotsAgent;
use crate::robots::extension::{ExtensionKind, ReportedLine, UsageRule};

/// Formats the usage preferences for a URL as the end of a line; empty if there are none.
pub(super) fn usage_to_text(rules: &[UsageRule<'_>]) -> String {
    let preferences: Vec<String> = rules
        .iter()
        .map(|rule| {
            format!(
                "{}={} (line {})",
                rule.purpose,
                rule.preference.as_str(),
                rule.line
            )
        })
        .collect();
    if preferences.is_empty() {
        String::new()
    } else {
        format!("  usage {}", preferences.join(", "))
    }
}

/// Converts the usage preferences for a URL, for example to `{"train-ai": {"preference": "deny", "line": 3}}`.
pub(super) fn usage_to_json(rules: &[UsageRule<'_>]) -> Json {
    let entries = rules.iter().map(|rule| {
        let value = json!({ "preference": rule.preference.as_str(), "line": rule.line });
        (rule.purpose.to_string(), value)
    });
    Json::Object(entries.collect())
}

/// Returns the sitemaps, and the lines that are reported only, each with its label.
pub(super) fn labeled_lines(
    rules: &RobotsFile,
    agent: RobotsAgent<'_>,
) -> Vec<(&'static str, String)> {
    let mut lines: Vec<(&str, String)> = rules
        .sitemaps()
        .map(|sitemap| ("sitemap", sanitize_text(&sitemap).into_owned()))
        .collect();
    for (label, reported) in [
        ("visit", rules.visit_times(agent)),
        ("clean", rules.extension_lines(ExtensionKind::CleanParam)),
        ("host", rules.extension_lines(ExtensionKind::Host)),
        ("license", rules.extension_lines(ExtensionKind::License)),
    ] {
        for line in reported {
            lines.push((label, sanitize_text(&line.value).into_owned()));
        }
    }
    lines
}

/// Returns the same lines as the keys of an object; the values are null if there is no file.
pub(super) fn to_json(rules: Option<&RobotsFile>, agent: RobotsAgent<'_>) -> Map<String, Json> {
    let sitemaps = rules.map(|rules| rules.sitemaps().collect::<Json>());
    let visit_times = rules.map(|rules| values_json(rules.visit_times(agent)));
    let clean_params =
        rules.map(|rules| values_json(rules.extension_lines(ExtensionKind::CleanParam)));
    let hosts = rules.map(|rules| values_json(rules.extension_lines(ExtensionKind::Host)));
    let licenses = rules.map(|rules| values_json(rules.extension_lines(ExtensionKind::License)));
    [
        ("sitemaps", sitemaps),
        ("visit_time", visit_times),
        ("clean_param", clean_params),
        ("host", hosts),
        ("license", licenses),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value.unwrap_or_default()))
    .collect()
}

fn values_json(lines: Vec<ReportedLine<'_>>) -> Json {
    lines.into_iter().map(|line| line.value).collect()
}

//! What a robots.txt says beyond Allow and Disallow, in words and in JSON: uses, hours, parameters, names, sitemaps.

use serde_json::{Map, Value as Json, json};

use crate::cli::sanitize::sanitize_text;
use crate::robots::RobotsFile;
use crate::robots::extension::{ExtensionKind, ReportedLine, UsageRule};

/// The uses that it allows or denies for a URL, as the end of a line; empty if it says nothing.
pub(super) fn usage_to_text(stated: &[UsageRule<'_>]) -> String {
    let words =
        |s: &UsageRule<'_>| format!("{}={} (line {})", s.purpose, s.preference.as_str(), s.line);
    let words: Vec<String> = stated.iter().map(words).collect();
    if words.is_empty() {
        String::new()
    } else {
        format!("  usage {}", words.join(", "))
    }
}

/// The same as an object: `{"train-ai": {"preference": "deny", "line": 3}}`.
pub(super) fn usage_to_json(stated: &[UsageRule<'_>]) -> Json {
    let entry = |s: &UsageRule<'_>| {
        (
            s.purpose.to_string(),
            json!({ "preference": s.preference.as_str(), "line": s.line }),
        )
    };
    Json::Object(stated.iter().map(entry).collect())
}

/// What it says of the site and to the crawler, each with the word for it.
pub(super) fn labeled_lines(rules: &RobotsFile, agent: &str) -> Vec<(&'static str, String)> {
    let noted = |word, lines: Vec<ReportedLine<'_>>| -> Vec<(&'static str, String)> {
        lines
            .iter()
            .map(|noted| (word, sanitize_text(&noted.value).into_owned()))
            .collect()
    };
    let sitemaps = rules
        .sitemaps()
        .map(|sitemap| ("sitemap", sanitize_text(&sitemap).into_owned()));
    let visits = noted("visit", rules.visit_times(agent));
    let params = noted("clean", rules.extension_lines(ExtensionKind::CleanParam));
    let hosts = noted("host", rules.extension_lines(ExtensionKind::Host));
    sitemaps.chain(visits).chain(params).chain(hosts).collect()
}

/// The same as keys of an object; each is null where there is no file.
pub(super) fn to_json(rules: Option<&RobotsFile>, agent: &str) -> Map<String, Json> {
    let values = |lines: Vec<ReportedLine<'_>>| -> Json {
        lines.into_iter().map(|noted| noted.value).collect()
    };
    let told = |of: &dyn Fn(&RobotsFile) -> Json| rules.map_or(Json::Null, of);
    let entries = [
        ("sitemaps", told(&|rules| rules.sitemaps().collect())),
        (
            "visit_time",
            told(&|rules| values(rules.visit_times(agent))),
        ),
        (
            "clean_param",
            told(&|rules| values(rules.extension_lines(ExtensionKind::CleanParam))),
        ),
        (
            "host",
            told(&|rules| values(rules.extension_lines(ExtensionKind::Host))),
        ),
    ];
    entries
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}

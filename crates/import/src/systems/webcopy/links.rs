//! The link map: the URLs that WebCopy has seen, and what it did with them.
//!
//! The URLs are examples for cases of the policy, and each is compared with what the rules say.

use serde_json::{Map, Value as Json, json};

use crawlgate_policy::UrlTarget;

use crate::draft::PolicyDraft;
use crate::reference::webcopy::WebCopyEvaluator;
use crate::reference::{SourceEvaluator, SourceRequest, SourceVerdict};
use crate::report::{AssumptionEffect, PartId, PartNeed, PartTarget, Report};

use super::tree::NbtTag;

/// The maximum number of URLs that may become cases.
const MAX_EXAMPLES: usize = 2_000;

/// Reasons of `skipReason` that are not about rules: a redirection, 404, 403, another scheme than HTTP.
const OTHER_REASONS: [i64; 4] = [7, 8, 10, 15];

/// Content types of examples, for rules on them.
const TYPES: [&str; 14] = [
    "text/html",
    "text/plain",
    "text/css",
    "image/png",
    "image/jpeg",
    "video/mp4",
    "audio/mpeg",
    "application/pdf",
    "application/zip",
    "application/epub+zip",
    "application/json",
    "application/xml",
    "application/octet-stream",
    "",
];

/// Adds requests for the project's URL with contents of several types to the examples of the policy.
pub(super) fn add_types(uri: Option<&str>, policy: &mut PolicyDraft) {
    let url = uri.and_then(|uri| UrlTarget::parse(&without_user(uri)).ok());
    let Some(url) = url else {
        return;
    };
    for kind in TYPES {
        let facts = Map::from_iter([("content_type".to_owned(), json!(kind))]);
        policy.examples.push((url.as_str().to_owned(), facts));
    }
}

/// Adds the URLs to the examples of the policy, and sets the outcome of their parts.
pub(super) fn convert(
    map: &NbtTag,
    uri: Option<&str>,
    parts: &[PartId],
    evaluator: &WebCopyEvaluator,
    report: &mut Report,
    policy: &mut PolicyDraft,
) {
    if let Some(part) = parts.get(map.index) {
        report.converted(*part, "cases", PartNeed::Url);
    }
    for link in map.children() {
        let Some(part) = parts.get(link.index).copied() else {
            continue;
        };
        let Some(url) = url_of(link, uri) else {
            report.unrelated(part, "not a URL of HTTP");
            continue;
        };
        let facts = facts_of(link);
        let verdict =
            |facts: &Map<String, Json>| evaluator.decide(&SourceRequest { url: &url, facts });
        let target = PartTarget {
            name: "cases".to_owned(),
            need: PartNeed::Url,
        };
        match (was_requested(link), verdict(&Map::new())) {
            (Some(true), SourceVerdict::Refuse) => {
                report.assumed(part, target, refused(link), AssumptionEffect::RefusesMore);
            }
            (Some(false), SourceVerdict::Allow) => {
                report.assumed(part, target, ALLOWED, AssumptionEffect::RefusesLess);
            }
            _ => report.converted(part, "cases", PartNeed::Url),
        }
        if policy.examples.len() < MAX_EXAMPLES {
            policy.examples.push((url, facts));
        }
    }
}

const ALLOWED: &str = "the rules were changed after the link map was written: WebCopy excluded this URL, which they do not";

/// Returns the assumption for a URL that was requested, and that the rules exclude.
fn refused(link: &NbtTag) -> &'static str {
    match link.get("external").and_then(NbtTag::integer) {
        Some(1) => {
            "WebCopy requested this URL of another host for a page of the project; the policy is about the project's hosts only"
        }
        _ => {
            "the rules were changed after the link map was written: WebCopy requested this URL, which they exclude"
        }
    }
}

/// Returns the URL of a link in canonical form. It is relative to that of the project, and absent if it is the same.
fn url_of(link: &NbtTag, uri: Option<&str>) -> Option<String> {
    let text = link.get("uri").and_then(NbtTag::text).unwrap_or_default();
    let url = resolve(text, uri)?;
    let target = UrlTarget::parse(&url).ok()?;
    Some(target.as_str().to_owned())
}

fn resolve(text: &str, uri: Option<&str>) -> Option<String> {
    let text = text.split('#').next().unwrap_or_default();
    let (scheme, _) = text.split_once(':').unwrap_or_default();
    let is_scheme = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    if !scheme.is_empty() && scheme.chars().all(is_scheme) {
        let is_http = matches!(scheme.to_ascii_lowercase().as_str(), "http" | "https");
        return is_http.then(|| without_user(text));
    }
    let base = without_user(uri?.split('#').next()?);
    let (scheme, rest) = base.split_once("://")?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(end)?;
    let path = path.split('?').next().unwrap_or_default();
    let directory = path
        .rfind('/')
        .and_then(|at| path.get(..=at))
        .unwrap_or("/");
    let path = match text.as_bytes() {
        [] => return Some(base.clone()),
        [b'/', b'/', ..] => return Some(format!("{scheme}:{text}")),
        [b'/', ..] => text.to_owned(),
        [b'?', ..] if path.is_empty() => format!("/{text}"),
        [b'?', ..] => format!("{path}{text}"),
        _ => format!("{directory}{text}"),
    };
    Some(format!("{scheme}://{authority}{path}"))
}

fn without_user(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let user = rest.get(..end).and_then(|authority| authority.rfind('@'));
    let rest = user.map_or(Some(rest), |at| rest.get(at + 1..));
    format!("{scheme}://{}", rest.unwrap_or_default())
}

/// Returns the type of the content, if it was given.
fn facts_of(link: &NbtTag) -> Map<String, Json> {
    let mut facts = Map::new();
    let status = link.get("httpStatus").and_then(NbtTag::integer);
    let kind = link.get("contentType").and_then(NbtTag::text);
    if let (Some(200), Some(kind)) = (status, kind) {
        facts.insert("content_type".to_owned(), json!(kind));
    }
    facts
}

/// Returns `false` for a URL that was excluded before it was requested; `None` if the link does not tell.
fn was_requested(link: &NbtTag) -> Option<bool> {
    let number = |name: &str| link.get(name).and_then(NbtTag::integer);
    if number("httpStatus").is_some() {
        return Some(true);
    }
    let is_other = number("skipReason").is_some_and(|reason| OTHER_REASONS.contains(&reason));
    let is_excluded = number("excluded") == Some(1) && !is_other;
    is_excluded.then_some(false)
}

//! Conversion of the conditions of `urlcanon.MatchRule`.

use crate::draft::ConditionDraft;
use crate::expression::{Anchoring, Dialect, SourceExpression};
use crate::systems::brozzler::{MatchCondition, MatchRule};

/// Returns the condition of a rule. The error is the reason why it cannot be converted.
pub(super) fn of_rule(rule: &MatchRule) -> Result<ConditionDraft, String> {
    if let Some(problem) = &rule.problem {
        return Err(problem.clone());
    }
    let parts: Result<Vec<ConditionDraft>, String> =
        rule.conditions.iter().map(of_condition).collect();
    let parts = parts?;
    if parts.is_empty() {
        return Err("it has no condition".to_owned());
    }
    Ok(ConditionDraft::all(parts))
}

fn of_condition(condition: &MatchCondition) -> Result<ConditionDraft, String> {
    let value = condition.value.as_str();
    match condition.key.as_str() {
        "domain" => Ok(ConditionDraft::is("domain", [value])),
        "substring" => Ok(ConditionDraft::test("url", "contains", [value])),
        "regex" => expression(value, "url"),
        "parent_url_regex" => expression(value, "referer"),
        "surt" => surt(value),
        "ssurt" => ssurt(value),
        key => Err(format!("the condition {key} is not known")),
    }
}

fn expression(text: &str, field: &str) -> Result<ConditionDraft, String> {
    let expression = SourceExpression {
        text,
        dialect: Dialect::Python,
        anchoring: Anchoring::Whole,
        ignore_case: false,
    };
    let translated = expression.translate(field)?;
    match translated.assumption {
        Some((assumption, _)) => Err(format!("only assuming that {assumption}")),
        None => Ok(translated.condition),
    }
}

/// Reads labels in reverse order, each with a comma: `com,example,`.
fn host_of(labels: &str) -> Result<String, String> {
    let names: Vec<&str> = labels
        .strip_suffix(',')
        .ok_or("the name of a host is cut in the middle of a label")?
        .split(',')
        .collect();
    let is_label = |label: &&str| {
        !label.is_empty()
            && label
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
    };
    if !names.iter().all(is_label) || names.iter().all(|name| name.parse::<u32>().is_ok()) {
        return Err("the host is no name".to_owned());
    }
    let names: Vec<&str> = names.into_iter().rev().collect();
    Ok(names.join(".").to_ascii_lowercase())
}

fn scheme_condition(scheme: &str) -> Result<ConditionDraft, String> {
    match scheme {
        "http" => Ok(ConditionDraft::is("scheme", ["http"])),
        "https" => Ok(ConditionDraft::is("scheme", ["https"])),
        _ => Err(format!("the scheme {scheme} does not go through the proxy")),
    }
}

/// `http://(com,example,` is the host with those below it; `http://(com,example,)/a` the host and a beginning of
/// the path. The scheme counts.
fn surt(value: &str) -> Result<ConditionDraft, String> {
    let (scheme, rest) = value
        .split_once("://(")
        .ok_or("a SURT begins with http://( or https://(")?;
    let mut parts = vec![scheme_condition(scheme)?];
    match rest.split_once(')') {
        None => parts.push(ConditionDraft::is("domain", [host_of(rest)?])),
        Some((labels, path)) => {
            parts.push(ConditionDraft::is("host", [host_of(labels)?]));
            parts.push(default_port(scheme));
            parts.extend(path_condition(path)?);
        }
    }
    Ok(ConditionDraft::all(parts))
}

fn default_port(scheme: &str) -> ConditionDraft {
    ConditionDraft::is("port", [if scheme == "https" { "443" } else { "80" }])
}

fn path_condition(path: &str) -> Result<Option<ConditionDraft>, String> {
    match path {
        "" | "/" => Ok(None),
        path if path.starts_with('/') => Ok(Some(ConditionDraft::test(
            "path_and_query",
            "prefix",
            [path],
        ))),
        _ => Err("the path does not begin with a slash".to_owned()),
    }
}

/// `com,example,` is the host with those below it; `com,example,//https:/a` the host, the scheme with its default
/// port, and a beginning of the path.
fn ssurt(value: &str) -> Result<ConditionDraft, String> {
    let Some((labels, rest)) = value.split_once("//") else {
        return Ok(ConditionDraft::is("domain", [host_of(value)?]));
    };
    let host = ConditionDraft::is("host", [host_of(labels)?]);
    if rest.is_empty() {
        return Ok(host);
    }
    let (scheme, path) = rest
        .split_once(':')
        .ok_or("the scheme is cut in the middle")?;
    if let Ok(port) = scheme.parse::<u16>() {
        let (scheme, path) = path
            .split_once(':')
            .ok_or("the scheme is cut in the middle")?;
        let mut parts = vec![
            host,
            scheme_condition(scheme)?,
            ConditionDraft::is("port", [port.to_string()]),
        ];
        parts.extend(path_condition(path)?);
        return Ok(ConditionDraft::all(parts));
    }
    let mut parts = vec![host, scheme_condition(scheme)?, default_port(scheme)];
    parts.extend(path_condition(path)?);
    Ok(ConditionDraft::all(parts))
}

/// Returns the scope that brozzler makes of a seed: what begins with it, without its query.
pub(super) fn of_seed(url: &str) -> Result<ConditionDraft, String> {
    let (scheme, rest) = url.split_once("://").ok_or("the seed is no URL")?;
    let rest = rest.split(['#', '?']).next().unwrap_or(rest);
    let (authority, path) = rest
        .split_at_checked(rest.find('/').unwrap_or(rest.len()))
        .unwrap_or((rest, ""));
    let authority = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host)
        .to_ascii_lowercase();
    let (host, port) = match authority.split_once(':') {
        Some((host, port)) => (
            host,
            ConditionDraft::is(
                "port",
                [port
                    .parse::<u16>()
                    .map_err(|_| "the port is no number")?
                    .to_string()],
            ),
        ),
        None => (authority.as_str(), default_port(scheme)),
    };
    let mut parts = vec![
        ConditionDraft::is("host", [host]),
        scheme_condition(scheme)?,
        port,
    ];
    parts.extend(path_condition(path)?);
    Ok(ConditionDraft::all(parts))
}

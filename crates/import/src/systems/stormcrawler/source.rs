//! The filters of StormCrawler as they are read.

use crate::input::{ImportError, ImportInput, MAX_DOCUMENT, MAX_RULE_FILE};
use crate::report::{MissingPart, PartId, Report};

use super::json::{self, JsonNode};

/// A filter, of which all must pass.
#[derive(Clone, Debug)]
pub enum StormFilter {
    MaxLength(PartId, u64),
    /// A segment that occurs so often refuses.
    MaxRepetition(PartId, u64),
    /// The first line that fits decides; without one the URL is refused.
    Regex(Vec<StormLine>),
    Fast(Vec<StormScope>),
}

/// A line `+expression` or `-expression`.
#[derive(Clone, Debug)]
pub struct StormLine {
    pub part: PartId,
    pub line: u32,
    pub allows: bool,
    pub expression: String,
}

/// A scope of `fast.urlfilter.json`. The first pattern that fits decides in the scope, but one that allows does
/// not end the other scopes.
#[derive(Clone, Debug)]
pub struct StormScope {
    pub part: PartId,
    pub line: u32,
    pub kind: StormScopeKind,
    pub patterns: Vec<StormPattern>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StormScopeKind {
    Host(String),
    Domain(String),
    Global,
}

#[derive(Clone, Debug)]
pub struct StormPattern {
    pub part: PartId,
    pub line: u32,
    pub denies: bool,
    pub with_query: bool,
    pub expression: String,
}

/// Reads a document: `urlfilters.json`, or `fast.urlfilter.json`.
pub(super) fn read(
    root: &JsonNode,
    path: &str,
    input: &ImportInput<'_>,
    report: &mut Report,
    filters: &mut Vec<StormFilter>,
) -> Result<(), ImportError> {
    report.unrelated(root.part, "the document");
    let [(_, list)] = root.members() else {
        return Ok(());
    };
    report.unrelated(list.part, "the list");
    let is_fast = list.items().iter().any(|item| item.get("scope").is_some());
    if is_fast {
        filters.push(StormFilter::Fast(read_scopes(list, report)));
        return Ok(());
    }
    for item in list.items() {
        read_filter(item, path, input, report, filters)?;
    }
    Ok(())
}

fn all_unrelated(node: &JsonNode, why: &str, report: &mut Report) {
    for part in node.all_parts() {
        if !report.is_set(part) {
            report.unrelated(part, why);
        }
    }
}

fn none_converted(
    node: &JsonNode,
    why: &str,
    failure: MissingPart,
    instead: &str,
    report: &mut Report,
) {
    for part in node.all_parts() {
        report.not_converted(part, why, failure, Some(instead));
    }
}

fn read_filter(
    item: &JsonNode,
    path: &str,
    input: &ImportInput<'_>,
    report: &mut Report,
    filters: &mut Vec<StormFilter>,
) -> Result<(), ImportError> {
    let class = item
        .get("class")
        .and_then(JsonNode::text)
        .unwrap_or_default();
    let class = class.rsplit('.').next().unwrap_or_default();
    let params = item.get("params");
    let param = |name: &str| params.and_then(|params| params.get(name));
    let is_true = |name: &str| param(name).and_then(JsonNode::text) == Some("true");
    match class {
        "BasicURLFilter" => {
            let repetition = param("maxPathRepetition");
            let count = repetition.map_or(Some(3), JsonNode::number);
            let part = repetition.map_or(item.part, |node| node.part);
            if let Some(count) = count
                .and_then(|count| u64::try_from(count).ok())
                .filter(|it| *it > 1)
            {
                filters.push(StormFilter::MaxRepetition(part, count));
            }
            let length = param("maxLength");
            let max = length
                .and_then(JsonNode::number)
                .and_then(|max| u64::try_from(max).ok());
            if let (Some(node), Some(max)) = (length, max.filter(|max| *max > 0)) {
                filters.push(StormFilter::MaxLength(node.part, max));
            }
        }
        "RegexURLFilter" => {
            if let Some(lines) = param("urlFilters") {
                filters.push(StormFilter::Regex(read_inline(lines, report)));
            } else {
                let file = param("regexFilterFile").and_then(JsonNode::text);
                let file = beside(path, file.unwrap_or("default-regex-filters.txt"));
                let text = input.read_text(&file, MAX_RULE_FILE)?;
                let mut lines = Vec::new();
                for (place, line) in text.lines() {
                    if line.is_empty() || line.starts_with([' ', '#']) {
                        continue;
                    }
                    let part = report.add(place.clone(), line);
                    lines.extend(read_line(line, part, place.line, report));
                }
                filters.push(StormFilter::Regex(lines));
            }
        }
        "FastURLFilter" => {
            let file = param("file").and_then(JsonNode::text);
            let file = beside(path, file.unwrap_or("fast.urlfilter.json"));
            let text = input.read_text(&file, MAX_DOCUMENT)?;
            let root = json::read(&text, report)?;
            report.unrelated(root.part, "the document");
            let list = match root.members() {
                [(_, list)] => list,
                _ => &root,
            };
            report.unrelated(list.part, "the list");
            filters.push(StormFilter::Fast(read_scopes(list, report)));
        }
        "HostURLFilter" if is_true("ignoreOutsideHost") || is_true("ignoreOutsideDomain") => {
            let why = "it depends on the page that links, which a request does not name";
            let instead = "a rule `require: { domain: […] }` with the hosts of the seeds";
            none_converted(item, why, MissingPart::LetsThrough, instead, report);
        }
        "MaxDepthFilter"
            if param("maxDepth")
                .and_then(JsonNode::number)
                .is_some_and(|max| max >= 0) =>
        {
            let why =
                "StormCrawler counts links in the metadata of a URL, which a request does not have";
            let instead = "`max_depth`, if the crawler sends `Referer`";
            none_converted(item, why, MissingPart::LetsThrough, instead, report);
        }
        "MetadataFilter" => {
            let why = "it depends on the metadata of the page that links";
            let instead = "none: the proxy does not know the metadata";
            none_converted(item, why, MissingPart::LetsThrough, instead, report);
        }
        "HostURLFilter" | "MaxDepthFilter" => {
            all_unrelated(item, "filters nothing with these parameters", report);
        }
        "BasicURLNormalizer" | "SelfURLFilter" | "SitemapFilter" | "RobotsFilter" => {
            let why = "about links before they are queued: normal forms, links to the page itself, sitemaps";
            all_unrelated(item, why, report);
        }
        "RegexURLNormalizer" => {
            let why = "its patterns are not read";
            let instead =
                "`replace`, or `crawlgate import nutch` with its file, whose format is the same";
            none_converted(item, why, MissingPart::OtherSetting, instead, report);
        }
        _ => {
            let why = "an unknown class of filter";
            let instead = "rules with the same meaning";
            none_converted(item, why, MissingPart::LetsThrough, instead, report);
        }
    }
    all_unrelated_but_filters(item, filters, report);
    Ok(())
}

/// Sets the outcome of what is no rule: names, classes and braces.
fn all_unrelated_but_filters(item: &JsonNode, filters: &[StormFilter], report: &mut Report) {
    let is_rule = |part: PartId| {
        filters.iter().any(|filter| match filter {
            StormFilter::MaxLength(rule, _) | StormFilter::MaxRepetition(rule, _) => *rule == part,
            StormFilter::Regex(lines) => lines.iter().any(|line| line.part == part),
            StormFilter::Fast(_) => false,
        })
    };
    for part in item.all_parts() {
        if !report.is_set(part) && !is_rule(part) {
            report.unrelated(part, "names a filter, or has no effect");
        }
    }
}

/// Returns the path of a file in the directory of another one.
pub(super) fn beside(path: &str, name: &str) -> String {
    match path.rsplit_once('/') {
        Some((directory, _)) => format!("{directory}/{name}"),
        None => name.to_owned(),
    }
}

fn read_inline(list: &JsonNode, report: &mut Report) -> Vec<StormLine> {
    let mut lines = Vec::new();
    for item in list.items() {
        let text = item.text().unwrap_or_default();
        if text.is_empty() || text.starts_with([' ', '#']) {
            report.unrelated(item.part, "a comment");
        } else {
            lines.extend(read_line(text, item.part, item.line, report));
        }
    }
    lines
}

fn read_line(text: &str, part: PartId, line: u32, report: &mut Report) -> Option<StormLine> {
    let allows = text.starts_with('+');
    if !allows && !text.starts_with('-') {
        report.dead(
            part,
            "StormCrawler refuses the line: it begins with neither + nor -",
        );
        return None;
    }
    Some(StormLine {
        part,
        line,
        allows,
        expression: text.get(1..).unwrap_or_default().to_owned(),
    })
}

fn read_scopes(list: &JsonNode, report: &mut Report) -> Vec<StormScope> {
    let mut scopes = Vec::new();
    for item in list.items() {
        let scope = item
            .get("scope")
            .and_then(JsonNode::text)
            .unwrap_or_default()
            .trim();
        let kind = if scope == "GLOBAL" {
            StormScopeKind::Global
        } else if let Some(name) = scope.strip_prefix("domain:") {
            StormScopeKind::Domain(name.to_owned())
        } else if let Some(name) = scope.strip_prefix("host:") {
            StormScopeKind::Host(name.to_owned())
        } else {
            let why = "it depends on the metadata of the page that links";
            let instead = "none: the proxy does not know the metadata";
            none_converted(item, why, MissingPart::LetsThrough, instead, report);
            continue;
        };
        let mut patterns = Vec::new();
        for node in item
            .get("patterns")
            .map_or(&[] as &[JsonNode], JsonNode::items)
        {
            patterns.extend(read_pattern(node, report));
        }
        for part in [item.part]
            .into_iter()
            .chain(item.get("patterns").map(|node| node.part))
        {
            report.unrelated(part, "a brace");
        }
        let part = item.get("scope").map_or(item.part, |node| node.part);
        scopes.push(StormScope {
            part,
            line: item.line,
            kind,
            patterns,
        });
    }
    scopes
}

fn read_pattern(node: &JsonNode, report: &mut Report) -> Option<StormPattern> {
    let text = node.text().unwrap_or_default();
    let lower = text.to_ascii_lowercase();
    let kinds = [
        ("denypathquery ", true, true),
        ("denypath ", true, false),
        ("allowpathquery ", false, true),
        ("allowpath ", false, false),
    ];
    let found = kinds.iter().find(|(word, _, _)| lower.starts_with(word));
    let Some((word, denies, with_query)) = found else {
        report.dead(
            node.part,
            "StormCrawler fails at the line: it begins with none of its words",
        );
        return None;
    };
    Some(StormPattern {
        part: node.part,
        line: node.line,
        denies: *denies,
        with_query: *with_query,
        expression: text.get(word.len()..).unwrap_or_default().trim().to_owned(),
    })
}

//! Velocity's recursive conditions: options are assigned in order, a filter is final.

use fancy_regex::Regex;

use crate::reference::requested::RequestedUrl;
use crate::reference::{SourceEvaluator, SourceRequest, SourceVerdict};
use crate::report::Report;
use crate::systems::velocity::source::{
    VelocityCrawler, VelocityField, VelocityNode, VelocityTest,
};

/// Decides by the conditions of a crawler.
pub struct VelocityEvaluator {
    allows: bool,
    nodes: Vec<ConditionNode>,
}

enum ConditionNode {
    Condition {
        applies_if_matched: bool,
        test: ConditionTest,
        allows: Option<bool>,
        nodes: Vec<ConditionNode>,
    },
    Filter {
        must_match: bool,
        test: ConditionTest,
    },
    Limit {
        max: u64,
        counts_slashes: bool,
    },
    Seeds(Vec<String>),
}

struct ConditionTest {
    field: VelocityField,
    patterns: Vec<Option<Regex>>,
}

/// The state of a URL while the conditions are processed.
struct CrawlProgress {
    allows: bool,
    is_filtered: bool,
}

impl VelocityEvaluator {
    /// Prepares the conditions that were converted.
    pub fn new(crawler: VelocityCrawler, report: &Report) -> Self {
        Self {
            allows: crawler.allows,
            nodes: prepare(crawler.nodes, report),
        }
    }
}

fn prepare(nodes: Vec<VelocityNode>, report: &Report) -> Vec<ConditionNode> {
    let nodes = nodes.into_iter().filter_map(|node| match node {
        VelocityNode::Condition {
            part,
            applies_if_matched,
            test,
            allows,
            nodes,
        } => report.is_converted(part).then(|| ConditionNode::Condition {
            applies_if_matched,
            test: ConditionTest::new(&test),
            allows,
            nodes: prepare(nodes, report),
        }),
        VelocityNode::Filter {
            part,
            must_match,
            test,
        } => report.is_converted(part).then(|| ConditionNode::Filter {
            must_match,
            test: ConditionTest::new(&test),
        }),
        VelocityNode::Limit {
            part,
            max,
            counts_slashes,
        } => report.is_converted(part).then_some(ConditionNode::Limit {
            max,
            counts_slashes,
        }),
        VelocityNode::Seeds { part, hosts } => report
            .is_converted(part)
            .then_some(ConditionNode::Seeds(hosts)),
    });
    nodes.collect()
}

impl SourceEvaluator for VelocityEvaluator {
    fn decide(&self, request: &SourceRequest<'_>) -> SourceVerdict {
        let url = RequestedUrl::new(request.url);
        let mut progress = CrawlProgress {
            allows: self.allows,
            is_filtered: false,
        };
        if process(&self.nodes, &url, &mut progress).is_none() {
            return SourceVerdict::Unknown;
        }
        match progress.allows && !progress.is_filtered {
            true => SourceVerdict::Allow,
            false => SourceVerdict::Refuse,
        }
    }
}

/// Processes a list of rules; `None` if a pattern cannot be evaluated.
fn process(
    nodes: &[ConditionNode],
    url: &RequestedUrl<'_>,
    progress: &mut CrawlProgress,
) -> Option<()> {
    for node in nodes {
        match node {
            ConditionNode::Condition {
                applies_if_matched,
                test,
                allows,
                nodes,
            } => {
                if test.matches(url)? == *applies_if_matched {
                    progress.allows = allows.unwrap_or(progress.allows);
                    process(nodes, url, progress)?;
                }
            }
            ConditionNode::Filter { must_match, test } => {
                progress.is_filtered |= test.matches(url)? != *must_match;
            }
            ConditionNode::Limit {
                max,
                counts_slashes,
            } => {
                let length = match counts_slashes {
                    true => url.path.matches('/').count(),
                    false => url.url.chars().count(),
                };
                progress.is_filtered |= length as u64 > *max;
            }
            ConditionNode::Seeds(hosts) => {
                let below = |host: &String| url.host.ends_with(&format!(".{host}"));
                if hosts.iter().any(|host| url.host == host || below(host)) {
                    progress.allows = true;
                }
            }
        }
    }
    Some(())
}

impl ConditionTest {
    fn new(test: &VelocityTest) -> Self {
        let patterns = test.patterns.iter().map(|pattern| {
            let escaped = fancy_regex::escape(pattern);
            let regex = match test.has_wildcards {
                true => escaped.replace(r"\*", ".*"),
                false => escaped.into_owned(),
            };
            // The case of a host does not count, nor that of a scheme.
            let end = match pattern.split_once("://") {
                Some((_, rest)) => rest.find(['/', '?']).unwrap_or(rest.len()),
                None => 0,
            };
            let is_host = matches!(test.field, VelocityField::Host | VelocityField::Protocol);
            let flags = if is_host { "(?i)" } else { "" };
            let regex = match (test.field, end) {
                (VelocityField::Url, 1..) => lower_host(&regex),
                _ => regex,
            };
            Regex::new(&format!(r"{flags}\A{regex}\z")).ok()
        });
        Self {
            field: test.field,
            patterns: patterns.collect(),
        }
    }

    fn matches(&self, url: &RequestedUrl<'_>) -> Option<bool> {
        let port = if url.scheme == "https" { 443 } else { 80 };
        // Velocity's keys have the default port.
        let rest = url.url.get(url.scheme.len() + 3 + url.authority.len()..)?;
        let key = match url.port {
            Some(_) => url.url.to_owned(),
            None => format!("{}://{}:{port}{rest}", url.scheme, url.host),
        };
        let forms: Vec<&str> = match self.field {
            VelocityField::Url => vec![url.url, &key],
            VelocityField::Path => vec![url.path],
            VelocityField::Host => vec![url.host],
            VelocityField::Protocol => vec![url.scheme],
        };
        for pattern in &self.patterns {
            for form in &forms {
                if pattern.as_ref()?.is_match(form).ok()? {
                    return Some(true);
                }
            }
        }
        Some(false)
    }
}

/// Writes scheme and host of an escaped pattern in lower case.
fn lower_host(regex: &str) -> String {
    let Some((scheme, rest)) = regex.split_once("://") else {
        return regex.to_owned();
    };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (host, rest) = rest.split_at_checked(end).unwrap_or((rest, ""));
    format!(
        "{}://{}{rest}",
        scheme.to_ascii_lowercase(),
        host.to_ascii_lowercase()
    )
}

//! Nutch's filters, all of which a URL must pass.

use crate::expression::{Anchoring, Dialect};
use crate::reference::expression::OriginalExpression;
use crate::reference::{SourceEvaluator, SourceRequest, SourceVerdict};
use crate::report::Report;
use crate::systems::nutch::source::{
    FastRuleKind, FastScope, FilterFile, FilterLines, FilterPlugin, SuffixLines,
};

/// `URLFilters.filter`: the filters one after the other, until one of them refuses.
pub struct NutchEvaluator {
    filters: Vec<UrlFilter>,
    lengths: Vec<(&'static str, u64)>,
}

enum UrlFilter {
    /// Sign, host of the block, expression.
    FirstLine(Vec<(bool, Option<String>, Option<OriginalExpression>)>),
    Prefix(Vec<String>),
    Suffix(SuffixLines),
    Domains(bool, Vec<String>),
    Fast(Vec<(FastScope, FastRuleKind, Option<OriginalExpression>)>),
}

impl NutchEvaluator {
    /// Creates an evaluator of the lines that were converted.
    pub fn new(filters: &[FilterFile], lengths: Vec<(&'static str, u64)>, report: &Report) -> Self {
        let filters = filters.iter().map(|filter| UrlFilter::new(filter, report));
        Self {
            filters: filters.collect(),
            lengths,
        }
    }
}

fn compile(text: &str, dialect: Dialect) -> Option<OriginalExpression> {
    OriginalExpression::new(text, dialect, Anchoring::Search, false).ok()
}

impl UrlFilter {
    fn new(filter: &FilterFile, report: &Report) -> Self {
        match &filter.lines {
            FilterLines::Regex(lines) => {
                let dialect = match filter.plugin == FilterPlugin::Automaton {
                    true => Dialect::Automaton,
                    false => Dialect::Java,
                };
                let lines = lines.iter().filter(|line| report.is_converted(line.part));
                let lines = lines.map(|line| {
                    let expression = compile(&line.expression, dialect);
                    (line.allows, line.host.clone(), expression)
                });
                Self::FirstLine(lines.collect())
            }
            FilterLines::Prefix(lines) => {
                Self::Prefix(lines.iter().map(|line| line.text.clone()).collect())
            }
            FilterLines::Suffix(lines) => Self::Suffix(lines.clone()),
            FilterLines::Domains { denies, lines } => {
                let names = lines.iter().map(|line| line.text.clone());
                Self::Domains(*denies, names.collect())
            }
            FilterLines::Fast(blocks) => {
                let mut rules = Vec::new();
                for block in blocks {
                    for rule in &block.rules {
                        if report.is_converted(rule.part) {
                            let expression = compile(&rule.expression, Dialect::Java);
                            rules.push((block.scope.clone(), rule.kind, expression));
                        }
                    }
                }
                Self::Fast(rules)
            }
        }
    }

    /// Returns `true` if the URL passes; `None` if that cannot be told.
    fn passes(&self, url: &JavaUrl<'_>) -> Option<bool> {
        match self {
            Self::FirstLine(lines) => {
                for (allows, host, expression) in lines {
                    if let Some(host) = host
                        && host != url.host
                        && host != registrable(url.host)
                    {
                        continue;
                    }
                    if expression.as_ref()?.is_match(url.text)? {
                        return Some(*allows);
                    }
                }
                Some(false)
            }
            Self::Prefix(prefixes) => {
                Some(prefixes.iter().any(|prefix| url.text.starts_with(prefix)))
            }
            Self::Suffix(lines) => Some(has_suffix(lines, url) != lines.allows_others),
            Self::Domains(denies, names) => {
                if names.is_empty() {
                    return Some(true);
                }
                let host = url.host;
                let suffix = registrable(host).split_once('.').map_or("", |(_, it)| it);
                let known = [suffix, registrable(host), host];
                let found = names.iter().any(|name| known.contains(&name.as_str()));
                Some(found != *denies)
            }
            Self::Fast(rules) => {
                for (scope, kind, expression) in rules {
                    let applies = match scope {
                        FastScope::Host(name) => name == url.host,
                        FastScope::Domain(name) => {
                            let rest = url.host.strip_suffix(name.as_str());
                            rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
                        }
                        FastScope::All => true,
                    };
                    let text = match kind {
                        FastRuleKind::All => None,
                        FastRuleKind::Path => Some(url.path),
                        FastRuleKind::PathAndQuery => Some(url.file),
                    };
                    let fits = match text {
                        None => true,
                        Some(text) => applies && expression.as_ref()?.is_match(text)?,
                    };
                    if applies && fits {
                        return Some(false);
                    }
                }
                Some(true)
            }
        }
    }
}

fn has_suffix(lines: &SuffixLines, url: &JavaUrl<'_>) -> bool {
    let text = if lines.compares_path {
        url.path
    } else {
        url.text
    };
    lines
        .suffixes
        .iter()
        .any(|suffix| match lines.ignores_case {
            true => text.to_lowercase().ends_with(&suffix.text.to_lowercase()),
            false => text.ends_with(&suffix.text),
        })
}

fn registrable(host: &str) -> &str {
    crawlgate_policy::internal::urls::domain::registrable_domain(host)
}

/// The parts of a URL as `java.net.URL` has them.
struct JavaUrl<'u> {
    text: &'u str,
    host: &'u str,
    path: &'u str,
    /// Path and query.
    file: &'u str,
}

impl<'u> JavaUrl<'u> {
    fn new(text: &'u str) -> Self {
        let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
        let (authority, file) = match rest.find(['/', '?']) {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let without_port = |authority: &'u str| match authority.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
            Some(_) | None => authority,
        };
        Self {
            text,
            host: without_port(authority),
            path: file.split('?').next().unwrap_or_default(),
            file,
        }
    }
}

impl SourceEvaluator for NutchEvaluator {
    fn decide(&self, request: &SourceRequest<'_>) -> SourceVerdict {
        let url = JavaUrl::new(request.url);
        let query = url.file.split_once('?').map_or("", |(_, query)| query);
        for (field, max) in &self.lengths {
            let text = match *field {
                "path" => url.path,
                "query" => query,
                _ => url.text,
            };
            if text.len() as u64 > *max {
                return SourceVerdict::Refuse;
            }
        }
        for filter in &self.filters {
            match filter.passes(&url) {
                Some(true) => {}
                Some(false) => return SourceVerdict::Refuse,
                None => return SourceVerdict::Unknown,
            }
        }
        SourceVerdict::Allow
    }
}

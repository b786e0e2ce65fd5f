//! StormCrawler's filters, all of which a URL must pass.

use crate::expression::{Anchoring, Dialect};
use crate::reference::expression::OriginalExpression;
use crate::reference::{SourceEvaluator, SourceRequest, SourceVerdict};
use crate::report::Report;
use crate::systems::stormcrawler::source::{StormFilter, StormScopeKind};

/// `URLFilters.filter`.
pub struct StormEvaluator(Vec<Check>);

enum Check {
    MaxLength(u64),
    MaxRepetition(u64),
    Lines(Vec<(bool, Option<OriginalExpression>)>),
    Scopes(Vec<(StormScopeKind, Vec<ScopePattern>)>),
}

/// Denies, compares the query, expression.
type ScopePattern = (bool, bool, Option<OriginalExpression>);

fn compile(text: &str) -> Option<OriginalExpression> {
    OriginalExpression::new(text, Dialect::Java, Anchoring::Search, false).ok()
}

impl StormEvaluator {
    /// Creates an evaluator of what was converted.
    pub fn new(filters: &[StormFilter], report: &Report) -> Self {
        let mut checks = Vec::new();
        for filter in filters {
            checks.push(match filter {
                StormFilter::MaxLength(_, max) => Check::MaxLength(*max),
                StormFilter::MaxRepetition(_, count) => Check::MaxRepetition(*count),
                StormFilter::Regex(lines) => {
                    let kept = lines.iter().filter(|line| report.is_converted(line.part));
                    let kept = kept.map(|line| (line.allows, compile(&line.expression)));
                    match kept.collect::<Vec<_>>() {
                        kept if kept.is_empty() && !lines.is_empty() => continue,
                        kept => Check::Lines(kept),
                    }
                }
                StormFilter::Fast(scopes) => {
                    let kept = scopes.iter().map(|scope| {
                        let patterns = scope.patterns.iter();
                        let patterns = patterns.filter(|pattern| report.is_converted(pattern.part));
                        let patterns = patterns.map(|pattern| {
                            let expression = compile(&pattern.expression);
                            (pattern.denies, pattern.with_query, expression)
                        });
                        (scope.kind.clone(), patterns.collect())
                    });
                    Check::Scopes(kept.collect())
                }
            });
        }
        Self(checks)
    }
}

impl SourceEvaluator for StormEvaluator {
    fn decide(&self, request: &SourceRequest<'_>) -> SourceVerdict {
        for check in &self.0 {
            match check.passes(request.url) {
                Some(true) => {}
                Some(false) => return SourceVerdict::Refuse,
                None => return SourceVerdict::Unknown,
            }
        }
        SourceVerdict::Allow
    }
}

impl Check {
    fn passes(&self, url: &str) -> Option<bool> {
        match self {
            Self::MaxLength(max) => Some(url.len() as u64 <= *max),
            Self::MaxRepetition(count) => Some(most_repeated(url) < *count),
            Self::Lines(lines) => {
                for (allows, expression) in lines {
                    if expression.as_ref()?.is_match(url)? {
                        return Some(*allows);
                    }
                }
                Some(false)
            }
            Self::Scopes(scopes) => {
                let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
                let end = rest.find(['/', '?']).unwrap_or(rest.len());
                let (authority, file) = rest.split_at(end);
                let host = authority.split(':').next().unwrap_or_default();
                let path = file.split('?').next().unwrap_or_default();
                for (kind, patterns) in scopes {
                    let applies = match kind {
                        StormScopeKind::Global => true,
                        StormScopeKind::Host(name) => name == host,
                        StormScopeKind::Domain(name) => {
                            host == name || host.ends_with(&format!(".{name}"))
                        }
                    };
                    if applies && denies(patterns, path, file)? {
                        return Some(false);
                    }
                }
                Some(true)
            }
        }
    }
}

/// The first pattern that fits decides.
fn denies(patterns: &[ScopePattern], path: &str, file: &str) -> Option<bool> {
    for (denies, with_query, expression) in patterns {
        let text = if *with_query { file } else { path };
        if expression.as_ref()?.is_match(text)? {
            return Some(*denies);
        }
    }
    Some(false)
}

/// Returns how often the most frequent part between slashes occurs; 0 if there are four or fewer.
fn most_repeated(url: &str) -> u64 {
    let parts: Vec<&str> = url.trim_end_matches('/').split('/').collect();
    if parts.len() <= 4 {
        return 0;
    }
    let named = parts.iter().filter(|part| !part.is_empty());
    let counts = named.map(|part| parts.iter().filter(|other| *other == part).count() as u64);
    counts.max().unwrap_or(0)
}

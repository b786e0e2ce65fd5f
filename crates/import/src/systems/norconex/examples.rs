//! Requests for cases that the search for requests does not find: repeated segments, and answers that are not good.

use serde_json::{Map, Value as Json, json};

use crate::draft::PolicyDraft;
use crate::reference::{SourceEvaluator, SourceRequest, SourceVerdict};

use super::model::{NorconexConfig, NorconexCrawler, NorconexFilterKind};

/// The maximum number of segments in a request.
const MAX_SEGMENTS: u32 = 100;
/// The maximum number of start URLs that are tried.
const MAX_TRIED: usize = 100;

/// Adds requests to a policy, for each crawler.
pub(super) fn add_examples(
    policy: &mut PolicyDraft,
    config: &NorconexConfig,
    evaluator: &dyn SourceEvaluator,
) {
    for crawler in &config.crawlers {
        let facts = crawler_facts(crawler);
        for url in repeated_segments(crawler) {
            policy.examples.push((url, facts.clone()));
        }
        if crawler.metadata_filters.is_empty() {
            continue;
        }
        if let Some(url) = accepted_url(crawler, evaluator, &facts) {
            let mut facts = facts;
            facts.insert("status".to_owned(), json!(404));
            policy.examples.push((url, facts));
        }
    }
}

fn crawler_facts(crawler: &NorconexCrawler) -> Map<String, Json> {
    let mut facts = Map::new();
    if !crawler.name.is_empty() {
        facts.insert("crawler".to_owned(), json!(crawler.name));
    }
    facts
}

/// Returns URLs with as many equal segments as filters count.
fn repeated_segments(crawler: &NorconexCrawler) -> Vec<String> {
    let filters = [
        &crawler.reference_filters,
        &crawler.metadata_filters,
        &crawler.document_filters,
    ];
    let counts = filters
        .into_iter()
        .flatten()
        .filter_map(|filter| match filter.kind {
            NorconexFilterKind::Segments {
                count,
                duplicate: true,
                ..
            } => Some(count),
            NorconexFilterKind::Segments { .. }
            | NorconexFilterKind::Reference(_)
            | NorconexFilterKind::Extension { .. }
            | NorconexFilterKind::Metadata { .. }
            | NorconexFilterKind::Unknown => None,
        });
    let base = candidates(crawler).next().unwrap_or_default();
    let end = base.find(['?', '#']).unwrap_or(base.len());
    let base = base.get(..end).unwrap_or(&base).trim_end_matches('/');
    let counts = counts.filter(|count| *count <= MAX_SEGMENTS);
    let urls = counts.map(|count| {
        let segments = "/a".repeat(usize::try_from(count).unwrap_or(1));
        format!("{base}{segments}")
    });
    urls.collect()
}

/// Returns a URL that the crawler fetches.
fn accepted_url(
    crawler: &NorconexCrawler,
    evaluator: &dyn SourceEvaluator,
    facts: &Map<String, Json>,
) -> Option<String> {
    let is_accepted = |url: &String| {
        let request = SourceRequest { url, facts };
        evaluator.decide(&request) == SourceVerdict::Allow
    };
    candidates(crawler).find(is_accepted)
}

fn candidates(crawler: &NorconexCrawler) -> impl Iterator<Item = String> {
    let starts = crawler.scope.starts.iter().take(MAX_TRIED);
    let starts = starts.map(|start| match start.url.split_once("://") {
        Some((_, rest)) if !rest.contains('/') => format!("{}/", start.url),
        Some(_) | None => start.url.clone(),
    });
    starts.chain(["http://www.example.com/".to_owned()])
}

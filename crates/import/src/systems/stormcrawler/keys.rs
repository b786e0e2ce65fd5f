//! The keys of the configuration that are no policy's business.

/// Beginnings of keys.
const UNRELATED: &[&str] = &[
    "aws.",
    "cloudsearch.",
    "detect.",
    "es.",
    "feed.",
    "fetcher.",
    "fetcherbolt.",
    "file.",
    "http.",
    "https.",
    "indexer.",
    "jsoup.",
    "max.fetch.errors",
    "metadata.",
    "navigationfilters.",
    "okhttp.",
    "opensearch.",
    "parse.",
    "parsefilters.",
    "parser.",
    "partition.",
    "playwright.",
    "protocol.",
    "protocols",
    "redirections.",
    "robots.",
    "scheduler.",
    "selenium.",
    "sitemap.",
    "solr.",
    "spout.",
    "sql.",
    "status.",
    "storm.",
    "textextractor.",
    "tika.",
    "topology.",
    "track.",
    "urlbuffer.",
    "urlfrontier.",
    "warc.",
    "worker.",
];

/// Returns `true` for a key that is no policy's business.
pub(super) fn is_unrelated(name: &str) -> bool {
    UNRELATED
        .iter()
        .any(|beginning| name.starts_with(beginning))
}

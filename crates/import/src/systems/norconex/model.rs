//! The parts of a configuration that decide about requests, as the crawler reads them.

use crate::report::PartId;

/// A configuration with all of its crawlers.
#[derive(Clone, Debug, Default)]
pub struct NorconexConfig {
    pub crawlers: Vec<NorconexCrawler>,
}

/// A crawler with the defaults that it does not override.
#[derive(Clone, Debug, Default)]
pub struct NorconexCrawler {
    /// The name of its space; empty if it is the only one.
    pub name: String,
    pub scope: UrlScope,
    pub max_depth: Option<(u64, PartId)>,
    pub reference_filters: Vec<NorconexFilter>,
    pub metadata_filters: Vec<NorconexFilter>,
    pub document_filters: Vec<NorconexFilter>,
    /// The statuses of good answers.
    pub valid_statuses: Vec<u16>,
}

/// The URLs that a crawl starts from, and how far it goes away from them.
#[derive(Clone, Debug, Default)]
pub struct UrlScope {
    pub starts: Vec<StartUrl>,
    pub stay_on_domain: Option<PartId>,
    pub include_subdomains: Option<PartId>,
    pub stay_on_port: Option<PartId>,
    pub stay_on_protocol: Option<PartId>,
    /// Start URLs that are not in the files: sitemaps, providers, files elsewhere.
    pub unknown_starts: bool,
}

#[derive(Clone, Debug)]
pub struct StartUrl {
    pub url: String,
    pub scheme: String,
    pub host: String,
    pub port: u16,
    pub part: Option<PartId>,
}

/// A filter of references, metadata or documents.
#[derive(Clone, Debug)]
pub struct NorconexFilter {
    pub part: PartId,
    /// All of its parts, except for those that are unknown.
    pub parts: Vec<PartId>,
    /// The parts of settings that no filter has.
    pub unknown: Vec<PartId>,
    pub line: u32,
    /// The simple name of its class.
    pub class: String,
    pub excludes: bool,
    pub kind: NorconexFilterKind,
    pub comment: Option<String>,
}

#[derive(Clone, Debug)]
pub enum NorconexFilterKind {
    Reference(TextMatcher),
    Extension {
        extensions: Vec<String>,
        /// The parts that have them, one for each.
        parts: Vec<PartId>,
        ignore_case: bool,
    },
    Segments {
        count: u32,
        duplicate: bool,
        separator: String,
    },
    Metadata {
        field: TextMatcher,
        value: TextMatcher,
    },
    /// A class that this importer does not know.
    Unknown,
}

/// A comparison of text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TextMatcher {
    pub method: MatchMethod,
    pub pattern: String,
    pub ignore_case: bool,
    /// It fits a part of the text.
    pub partial: bool,
    pub negate: bool,
    /// A detail that is not read: the name of its attribute.
    pub unsupported: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MatchMethod {
    #[default]
    Basic,
    Csv,
    Wildcard,
    Regex,
}

//! Reading of the settings that decide about requests.

use crawlgate_policy::internal::urls::target::UrlTarget;

use crate::input::{ImportInput, MAX_RULE_FILE};
use crate::report::PartId;

use super::model::{
    MatchMethod, NorconexConfig, NorconexCrawler, NorconexFilter, NorconexFilterKind, StartUrl,
    TextMatcher, UrlScope,
};
use super::session::{NorconexVersion, Session};
use super::tree::Setting;

pub(super) const REFERENCE_FILTERS: [&str; 2] = ["referenceFilters", "httpURLFilters"];
pub(super) const METADATA_FILTERS: [&str; 2] = ["metadataFilters", "httpHeadersFilters"];
pub(super) const DOCUMENT_FILTERS: [&str; 2] = ["documentFilters", "httpDocumentFilters"];

/// Reads all crawlers of a session.
pub(super) fn read_config(session: &Session<'_>, input: &ImportInput<'_>) -> NorconexConfig {
    let crawlers = session.crawlers.iter().map(|crawler| {
        let settings = session.effective(crawler);
        let mut read = read_crawler(&settings, session.version, input);
        read.name = session.crawler_name(crawler);
        read
    });
    NorconexConfig {
        crawlers: crawlers.collect(),
    }
}

fn read_crawler(
    settings: &[&Setting],
    version: NorconexVersion,
    input: &ImportInput<'_>,
) -> NorconexCrawler {
    NorconexCrawler {
        name: String::new(),
        scope: read_scope(settings, input),
        max_depth: read_max_depth(settings),
        reference_filters: read_filters(settings, &REFERENCE_FILTERS, version),
        metadata_filters: read_filters(settings, &METADATA_FILTERS, version),
        document_filters: read_filters(settings, &DOCUMENT_FILTERS, version),
        valid_statuses: read_valid_statuses(settings),
    }
}

pub(super) fn find<'t>(settings: &[&'t Setting], names: &[&str]) -> Option<&'t Setting> {
    let mut settings = settings.iter();
    settings
        .find(|setting| names.contains(&setting.name.as_str()))
        .copied()
}

pub(super) fn read_max_depth(settings: &[&Setting]) -> Option<(u64, PartId)> {
    let setting = find(settings, &["maxDepth"])?;
    let depth = setting.text.parse().ok()?;
    Some((depth, setting.part))
}

/// The settings that fetch: the elements that have `validStatusCodes` in some version.
pub(super) const FETCHERS: [&str; 6] = [
    "httpFetchers",
    "fetchers",
    "documentFetcher",
    "metadataFetcher",
    "httpDocumentFetcher",
    "httpHeadersFetcher",
];

/// Returns the statuses that are good for some fetcher.
pub(super) fn read_valid_statuses(settings: &[&Setting]) -> Vec<u16> {
    let fetchers = settings
        .iter()
        .filter(|setting| FETCHERS.contains(&setting.name.as_str()));
    let mut statuses = Vec::new();
    for fetcher in fetchers {
        collect_statuses(fetcher, &mut statuses);
    }
    if statuses.is_empty() {
        statuses.push(200);
    }
    statuses.sort_unstable();
    statuses.dedup();
    statuses
}

fn collect_statuses(setting: &Setting, statuses: &mut Vec<u16>) {
    for child in &setting.children {
        if child.name == "validStatusCodes" {
            let codes = child.list().into_iter();
            statuses.extend(codes.filter_map(|(code, _)| code.parse::<u16>().ok()));
        } else {
            collect_statuses(child, statuses);
        }
    }
}

/// Returns the prefix of the names of headers.
pub(super) fn headers_prefix(settings: &[&Setting]) -> Option<String> {
    let fetchers = settings
        .iter()
        .filter(|setting| FETCHERS.contains(&setting.name.as_str()));
    let mut found = fetchers.filter_map(|setting| find_prefix(setting));
    found.next().filter(|prefix| !prefix.is_empty())
}

fn find_prefix(setting: &Setting) -> Option<String> {
    let own = setting.value(&["headersPrefix"]).map(str::to_owned);
    own.or_else(|| setting.children.iter().find_map(find_prefix))
}

/// Reads the filters of one kind.
pub(super) fn read_filters(
    settings: &[&Setting],
    names: &[&str],
    version: NorconexVersion,
) -> Vec<NorconexFilter> {
    let filters = find(settings, names);
    let filters = filters.into_iter().flat_map(|filters| {
        filters
            .elements()
            .map(|filter| read_filter(filter, version))
    });
    filters.collect()
}

fn read_filter(setting: &Setting, version: NorconexVersion) -> NorconexFilter {
    let class = setting.class().unwrap_or("filter").to_owned();
    let excludes = setting
        .value(&["onMatch"])
        .is_some_and(|action| action.eq_ignore_ascii_case("exclude"));
    let unknown = unknown_parts(setting);
    let parts = setting.parts().into_iter();
    NorconexFilter {
        part: setting.part,
        parts: parts.filter(|part| !unknown.contains(part)).collect(),
        unknown,
        line: setting.line,
        kind: read_kind(setting, &class.to_ascii_lowercase(), version),
        class,
        excludes,
        comment: setting.comment.clone(),
    }
}

/// The names of the settings of all filters, and of the matchers in them.
const FILTER_SETTINGS: [&str; 20] = [
    "class",
    "onMatch",
    "ignoreCase",
    "caseSensitive",
    "regex",
    "field",
    "header",
    "fieldMatcher",
    "valueMatcher",
    "method",
    "pattern",
    "partial",
    "negateMatches",
    "extensions",
    "extension",
    "count",
    "duplicate",
    "separator",
    "ignoreDiacritic",
    "matchEmpty",
];

/// Those that are `true` or `false`.
const FILTER_FLAGS: [&str; 7] = [
    "ignoreCase",
    "caseSensitive",
    "partial",
    "negateMatches",
    "duplicate",
    "ignoreDiacritic",
    "matchEmpty",
];

fn is_flag(text: &str) -> bool {
    ["", "true", "false"].contains(&text.trim().to_ascii_lowercase().as_str())
}

/// Returns the parts of the settings in a filter that no filter has, or not with this value: their meaning is unknown.
fn unknown_parts(setting: &Setting) -> Vec<PartId> {
    let children = setting.children.iter();
    let parts = children.flat_map(|child| {
        let name = child.name.as_str();
        let is_known = child.is_item
            || FILTER_SETTINGS.contains(&name)
                && (!FILTER_FLAGS.contains(&name) || is_flag(&child.text));
        if is_known {
            unknown_parts(child)
        } else {
            child.parts()
        }
    });
    parts.collect()
}

/// Reads a filter by the name of its class in lower case, which changes with the versions.
fn read_kind(setting: &Setting, class: &str, version: NorconexVersion) -> NorconexFilterKind {
    match class {
        "regexreferencefilter" | "regexurlfilter" => {
            NorconexFilterKind::Reference(own_regex(setting))
        }
        "referencefilter" | "genericreferencefilter" => {
            NorconexFilterKind::Reference(child_matcher(setting, "valueMatcher"))
        }
        "extensionreferencefilter" | "extensionurlfilter" => {
            let list = match setting.get(&["extensions"]) {
                Some(list) => list.list(),
                None => setting.words(),
            };
            let list = list.into_iter().map(|(text, part)| (text.to_owned(), part));
            let (extensions, parts) = list.unzip();
            NorconexFilterKind::Extension {
                extensions,
                parts,
                ignore_case: ignores_case(setting, version < NorconexVersion::V4),
            }
        }
        "segmentcounturlfilter" => {
            let count = setting
                .value(&["count"])
                .and_then(|count| count.parse().ok());
            let separator = setting.value(&["separator"]).filter(|it| !it.is_empty());
            NorconexFilterKind::Segments {
                count: count.unwrap_or(10),
                duplicate: setting.flag(&["duplicate"]).unwrap_or(false),
                separator: separator.unwrap_or("/").to_owned(),
            }
        }
        "regexmetadatafilter" | "regexheaderfilter" => NorconexFilterKind::Metadata {
            field: TextMatcher {
                pattern: setting
                    .value(&["field", "header"])
                    .unwrap_or_default()
                    .to_owned(),
                ..TextMatcher::default()
            },
            value: own_regex(setting),
        },
        "metadatafilter" | "genericmetadatafilter" => NorconexFilterKind::Metadata {
            field: child_matcher(setting, "fieldMatcher"),
            value: child_matcher(setting, "valueMatcher"),
        },
        _ => NorconexFilterKind::Unknown,
    }
}

/// Reads the expression that is the text of a filter of the versions up to 3: without regard to case unless
/// it says otherwise.
pub(super) fn own_regex(setting: &Setting) -> TextMatcher {
    let text = setting.value(&["regex"]).unwrap_or(&setting.text);
    TextMatcher {
        method: MatchMethod::Regex,
        pattern: text.to_owned(),
        ignore_case: ignores_case(setting, true),
        ..TextMatcher::default()
    }
}

fn ignores_case(setting: &Setting, default: bool) -> bool {
    match setting.flag(&["ignoreCase"]) {
        Some(ignores) => ignores,
        None => setting
            .flag(&["caseSensitive"])
            .map_or(default, |is_sensitive| !is_sensitive),
    }
}

fn child_matcher(setting: &Setting, name: &str) -> TextMatcher {
    setting.get(&[name]).map(read_matcher).unwrap_or_default()
}

/// Reads a `TextMatcher`: literal text unless it has a method.
pub(super) fn read_matcher(setting: &Setting) -> TextMatcher {
    let method = setting.value(&["method"]).unwrap_or("basic");
    let (method, mut unsupported) = match method.to_ascii_lowercase().as_str() {
        "" | "basic" => (MatchMethod::Basic, None),
        "csv" => (MatchMethod::Csv, None),
        "wildcard" => (MatchMethod::Wildcard, None),
        "regex" => (MatchMethod::Regex, None),
        _ => (MatchMethod::Basic, Some("method")),
    };
    for detail in ["ignoreDiacritic", "matchEmpty"] {
        if setting.flag(&[detail]) == Some(true) {
            unsupported = Some(detail);
        }
    }
    let pattern = setting.value(&["pattern"]).unwrap_or(&setting.text);
    TextMatcher {
        method,
        pattern: pattern.to_owned(),
        ignore_case: setting.flag(&["ignoreCase"]).unwrap_or(false),
        partial: setting.flag(&["partial"]).unwrap_or(false),
        negate: setting.flag(&["negateMatches"]).unwrap_or(false),
        unsupported,
    }
}

pub(super) const STARTS: [&str; 6] = [
    "startURLs",
    "start",
    "startReferences",
    "startReferencesFiles",
    "startReferencesSitemaps",
    "startReferencesProviders",
];
pub(super) const SCOPE_RESOLVERS: [&str; 2] = ["urlScopeResolver", "urlCrawlScopeStrategy"];

/// Reads start URLs and the flags that keep a crawl near them.
pub(super) fn read_scope(settings: &[&Setting], input: &ImportInput<'_>) -> UrlScope {
    let mut scope = UrlScope::default();
    for setting in settings {
        if STARTS.contains(&setting.name.as_str()) {
            collect_starts(setting, input, &mut scope);
        }
        if STARTS.contains(&setting.name.as_str())
            || SCOPE_RESOLVERS.contains(&setting.name.as_str())
        {
            for (name, target) in [
                ("stayOnDomain", &mut scope.stay_on_domain),
                ("includeSubdomains", &mut scope.include_subdomains),
                ("stayOnPort", &mut scope.stay_on_port),
                ("stayOnProtocol", &mut scope.stay_on_protocol),
            ] {
                let flag = setting.get(&[name]);
                let set = flag.filter(|flag| flag.text.eq_ignore_ascii_case("true"));
                *target = set.map(|flag| flag.part).or(*target);
            }
        }
    }
    if let Some(seeds) = &input.seeds {
        for line in seeds.lines() {
            scope.starts.extend(start_url(line.trim(), None));
        }
        scope.unknown_starts = false;
    }
    scope
}

/// The maximum number of start URLs that are read.
const MAX_STARTS: usize = 100_000;

fn collect_starts(setting: &Setting, input: &ImportInput<'_>, scope: &mut UrlScope) {
    if setting.name == "startReferences" && setting.elements().next().is_none() {
        for (url, part) in setting.list() {
            scope.starts.extend(start_url(url, Some(part)));
        }
    }
    for child in setting.elements() {
        match start_kind(setting, child) {
            StartKind::Url => scope
                .starts
                .extend(start_url(&child.text, Some(child.part))),
            StartKind::File => match read_urls_file(&child.text, input) {
                Some(text) => {
                    for line in text.lines().take(MAX_STARTS) {
                        scope
                            .starts
                            .extend(start_url(line.trim(), Some(child.part)));
                    }
                }
                None => scope.unknown_starts = true,
            },
            StartKind::Other => scope.unknown_starts = true,
        }
    }
}

/// A kind of start.
pub(super) enum StartKind {
    Url,
    /// A file of URLs, one a line.
    File,
    /// A sitemap, or a class that provides URLs.
    Other,
}

/// Returns the kind of a start by its name, or by that of its list.
pub(super) fn start_kind(list: &Setting, start: &Setting) -> StartKind {
    match (list.name.as_str(), start.name.as_str()) {
        ("startReferencesFiles", _) | (_, "urlsFile" | "refsFile" | "file") => StartKind::File,
        ("startReferencesSitemaps" | "startReferencesProviders", _) => StartKind::Other,
        (_, "url" | "ref") | ("startReferences", _) => StartKind::Url,
        _ => StartKind::Other,
    }
}

/// Reads a file of start URLs, if it is in the directory of the source.
pub(super) fn read_urls_file(path: &str, input: &ImportInput<'_>) -> Option<String> {
    let path = path.trim_start_matches("./");
    let source = input.read_text(path, MAX_RULE_FILE).ok()?;
    Some(source.text)
}

/// Returns `true` for a URL that a crawl can start from.
pub(super) fn is_start_url(url: &str) -> bool {
    start_url(url.trim(), None).is_some()
}

fn start_url(url: &str, part: Option<PartId>) -> Option<StartUrl> {
    let (scheme, rest) = url.split_once("://")?;
    let scheme = scheme.to_ascii_lowercase();
    let standard = match scheme.as_str() {
        "http" => 80,
        "https" => 443,
        _ => return None,
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(end)?;
    let authority = authority.rsplit('@').next().unwrap_or(authority);
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port.parse().ok()?),
        Some(_) | None => (authority, standard),
    };
    let is_host = !host.is_empty() && !host.contains(char::is_whitespace);
    // Without the user and password that it may have.
    let url = format!("{scheme}://{authority}{path}");
    let is_url = UrlTarget::parse(&url).is_ok();
    (is_host && is_url).then(|| StartUrl {
        url,
        scheme,
        host: host.to_ascii_lowercase(),
        port,
        part,
    })
}

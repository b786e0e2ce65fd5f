//! Norconex's questions about a URL: depth, scope, reference filters, metadata filters, document filters.

use fancy_regex::Regex;
use serde_json::Value as Json;

use crate::reference::{SourceEvaluator, SourceRequest, SourceVerdict};
use crate::systems::norconex::model::{
    MatchMethod, NorconexConfig, NorconexCrawler, NorconexFilter, NorconexFilterKind, TextMatcher,
    UrlScope,
};

/// Decides as the crawlers of a configuration do.
pub struct NorconexEvaluator {
    config: NorconexConfig,
}

/// The facts of a request and its answer.
struct NorconexPage<'a> {
    url: &'a str,
    path: &'a str,
    /// `None` before the answer.
    status: Option<u16>,
    /// The fields of its head, with names in lower case.
    headers: Vec<(String, String)>,
    content_type: Option<&'a str>,
}

impl NorconexEvaluator {
    /// Creates an evaluator.
    pub fn new(config: NorconexConfig) -> Self {
        Self { config }
    }

    /// Without a name the crawler is the only one.
    fn crawler(&self, name: Option<&str>) -> Option<&NorconexCrawler> {
        let mut crawlers = self.config.crawlers.iter();
        crawlers.find(|crawler| crawler.name.is_empty() || Some(crawler.name.as_str()) == name)
    }
}

impl SourceEvaluator for NorconexEvaluator {
    fn decide(&self, request: &SourceRequest<'_>) -> SourceVerdict {
        let Some(crawler) = self.crawler(request.text("crawler")) else {
            return SourceVerdict::Unknown;
        };
        crawler.decide(request).unwrap_or(SourceVerdict::Unknown)
    }
}

impl NorconexCrawler {
    /// Returns `None` if an expression cannot be evaluated.
    fn decide(&self, request: &SourceRequest<'_>) -> Option<SourceVerdict> {
        let page = NorconexPage::new(request)?;
        let depth = request.number("depth");
        let is_too_deep = match (self.max_depth, depth) {
            (Some((max, _)), Some(depth)) => depth > max,
            (None, _) | (_, None) => false,
        };
        if is_too_deep || !self.scope.contains(&page)? {
            return Some(SourceVerdict::Refuse);
        }
        if !accepts(&self.reference_filters, &page)? {
            return Some(SourceVerdict::Refuse);
        }
        let Some(status) = page.status.filter(|status| self.is_good(*status)) else {
            return Some(SourceVerdict::Allow);
        };
        if request.facts.contains_key("canonical") || request.facts.contains_key("meta_robots") {
            return None;
        }
        if !accepts(&self.metadata_filters, &page)? {
            return Some(SourceVerdict::Refuse);
        }
        // A page that a document filter refuses still gives its links; other types have none.
        let is_html = matches!(
            page.content_type,
            Some("text/html" | "application/xhtml+xml")
        );
        let keeps_links = is_html || !(200..300).contains(&status);
        if !keeps_links && !accepts(&self.document_filters, &page)? {
            return Some(SourceVerdict::Refuse);
        }
        Some(SourceVerdict::Allow)
    }

    fn is_good(&self, status: u16) -> bool {
        self.valid_statuses.contains(&status)
    }
}

impl UrlScope {
    fn contains(&self, page: &NorconexPage<'_>) -> Option<bool> {
        let is_open = self.stay_on_domain.is_none()
            && self.stay_on_port.is_none()
            && self.stay_on_protocol.is_none();
        if is_open || self.starts.is_empty() {
            return Some(true);
        }
        let (scheme, rest) = page.url.split_once("://")?;
        let authority = rest.split(['/', '?']).next()?;
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
            Some(_) | None => (authority, if scheme == "https" { 443 } else { 80 }),
        };
        let fits = self.starts.iter().any(|start| {
            let is_below = host
                .strip_suffix(start.host.as_str())
                .is_some_and(|below| below.ends_with('.'));
            let on_domain = host == start.host || (self.include_subdomains.is_some() && is_below);
            (self.stay_on_domain.is_none() || on_domain)
                && (self.stay_on_port.is_none() || port == start.port)
                && (self.stay_on_protocol.is_none() || scheme == start.scheme)
        });
        Some(fits)
    }
}

/// `FilterGroupResolver`: no filter that excludes may fit; if there are others, one of them must.
fn accepts(filters: &[NorconexFilter], page: &NorconexPage<'_>) -> Option<bool> {
    let mut has_include = false;
    let mut is_included = false;
    for filter in filters {
        let fits = filter.fits(page)?;
        if filter.excludes && fits {
            return Some(false);
        }
        if !filter.excludes {
            has_include = true;
            is_included |= fits;
        }
    }
    Some(!has_include || is_included)
}

impl NorconexFilter {
    fn fits(&self, page: &NorconexPage<'_>) -> Option<bool> {
        match &self.kind {
            NorconexFilterKind::Reference(matcher) if matcher.pattern.trim().is_empty() => {
                Some(true)
            }
            NorconexFilterKind::Reference(matcher) => matcher.fits(page.url),
            NorconexFilterKind::Extension {
                extensions,
                ignore_case,
            } => Some(extension_fits(extensions, *ignore_case, page.path)),
            NorconexFilterKind::Segments {
                count, duplicate, ..
            } => Some(segments_fit(*count, *duplicate, page.path)),
            NorconexFilterKind::Metadata { field, value } => metadata_fits(field, value, page),
            NorconexFilterKind::Unknown => None,
        }
    }
}

fn extension_fits(extensions: &[String], ignore_case: bool, path: &str) -> bool {
    if extensions.is_empty() {
        return true;
    }
    let name = path.rsplit('/').next().unwrap_or(path);
    let own = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    extensions.iter().any(|extension| {
        if ignore_case {
            extension.eq_ignore_ascii_case(own)
        } else {
            extension == own
        }
    })
}

fn segments_fit(count: u32, duplicate: bool, path: &str) -> bool {
    let segments: Vec<&str> = path.split('/').filter(|it| !it.trim().is_empty()).collect();
    let reached = if duplicate {
        let repeats = segments.iter();
        let repeats = repeats.map(|one| segments.iter().filter(|other| *other == one).count());
        repeats.max().unwrap_or(0)
    } else {
        segments.len()
    };
    u32::try_from(reached).is_ok_and(|reached| reached >= count)
}

fn metadata_fits(
    field: &TextMatcher,
    value: &TextMatcher,
    page: &NorconexPage<'_>,
) -> Option<bool> {
    if field.pattern.trim().is_empty() || value.pattern.trim().is_empty() {
        return Some(true);
    }
    let names: Vec<&str> = match field.method {
        MatchMethod::Csv => field.pattern.split(',').map(str::trim).collect(),
        MatchMethod::Basic => vec![field.pattern.trim()],
        MatchMethod::Wildcard | MatchMethod::Regex => return None,
    };
    for name in names {
        match name {
            "document.reference" => {
                if value.fits(page.url)? {
                    return Some(true);
                }
            }
            "document.contentType" | "collector.content-type" => {
                if let Some(content_type) = page.content_type
                    && value.fits(content_type)?
                {
                    return Some(true);
                }
            }
            name => {
                // Headers may be stored with a prefix before their names.
                let name = name.to_ascii_lowercase();
                for (header, text) in &page.headers {
                    let is_named = name.ends_with(header.as_str());
                    if is_named && !text.is_empty() && value.fits(text)? {
                        return Some(true);
                    }
                }
            }
        }
    }
    Some(false)
}

impl TextMatcher {
    fn fits(&self, text: &str) -> Option<bool> {
        let pattern = match self.method {
            MatchMethod::Basic => literal(&self.pattern),
            MatchMethod::Csv => {
                let values = self.pattern.split(',').map(str::trim);
                let values = values.filter(|value| !value.is_empty()).map(literal);
                values.collect::<Vec<_>>().join("|")
            }
            MatchMethod::Wildcard => {
                let pieces = self.pattern.chars().map(|c| match c {
                    '*' => ".*".to_owned(),
                    '?' => ".".to_owned(),
                    c => literal(&c.to_string()),
                });
                pieces.collect()
            }
            MatchMethod::Regex => self.pattern.clone(),
        };
        let flags = if self.ignore_case { "(?si)" } else { "(?s)" };
        let pattern = if self.partial {
            format!("{flags}(?:{pattern})")
        } else {
            format!("{flags}\\A(?:{pattern})\\z")
        };
        let fits = Regex::new(&pattern).ok()?.is_match(text).ok()?;
        Some(fits != self.negate)
    }
}

fn literal(text: &str) -> String {
    let escaped = text.chars().map(|c| {
        if c.is_alphanumeric() || c == '_' {
            c.to_string()
        } else {
            format!("\\x{{{:x}}}", u32::from(c))
        }
    });
    escaped.collect()
}

impl<'a> NorconexPage<'a> {
    fn new(request: &SourceRequest<'a>) -> Option<Self> {
        let (_, rest) = request.url.split_once("://")?;
        let start = rest.find(['/', '?']).unwrap_or(rest.len());
        let path = rest.get(start..)?;
        let path = path.split('?').next()?;
        let content_type = request.text("content_type");
        let mut headers = Vec::new();
        if let Some(Json::Object(given)) = request.facts.get("headers") {
            for (name, value) in given {
                let name = name.to_ascii_lowercase();
                match value {
                    Json::Array(values) => headers.extend(
                        values
                            .iter()
                            .filter_map(|value| Some((name.clone(), value.as_str()?.to_owned()))),
                    ),
                    Json::Null
                    | Json::Bool(_)
                    | Json::Number(_)
                    | Json::String(_)
                    | Json::Object(_) => headers.push((name, value.as_str()?.to_owned())),
                }
            }
        }
        let typed = headers.iter().any(|(name, _)| name == "content-type");
        if let Some(content_type) = content_type.filter(|_| !typed) {
            headers.push(("content-type".to_owned(), content_type.to_owned()));
        }
        let answered = ["status", "content_type", "headers", "size", "title"];
        let has_answer = answered
            .iter()
            .any(|fact| request.facts.contains_key(*fact));
        let status = request
            .number("status")
            .map_or(Some(200), |status| u16::try_from(status).ok());
        Some(Self {
            url: request.url,
            path,
            status: status.filter(|_| has_answer),
            content_type,
            headers,
        })
    }
}

//! Browsertrix Crawler: `ScopedSeed.isIncluded` for each seed, `BlockRules.shouldBlock` before.
//!
//! A request does not say from which seed it was found, so a page is requested if one of them includes it.

mod normal;

use crate::expression::{Anchoring, Dialect};
use crate::reference::expression::OriginalExpression;
use crate::reference::requested::RequestedUrl;
use crate::reference::{SourceEvaluator, SourceRequest, SourceVerdict};
use crate::report::Report;
use crate::systems::browsertrix::source::{
    BrowsertrixCrawl, ResourceRule, ResourceRuleKind, ScopeExpression, ScopeType, SitemapSource,
};

use normal::to_normal_form;

/// Evaluates the scopes of a crawl.
pub struct BrowsertrixEvaluator {
    blocks: Vec<BlockMatcher>,
    ad_hosts: Vec<String>,
    seeds: Vec<SeedMatcher>,
    sitemaps: Vec<String>,
}

struct BlockMatcher {
    url: Option<OriginalExpression>,
    allows_only: bool,
}

struct SeedMatcher {
    url: String,
    /// In normal form, without `www<N>.`.
    normal: String,
    scope_type: ScopeType,
    include: Vec<OriginalExpression>,
    exclude: Vec<OriginalExpression>,
    depth: Option<u32>,
}

impl BrowsertrixEvaluator {
    /// Keeps what was converted.
    pub fn new(crawl: &BrowsertrixCrawl, report: &Report) -> Self {
        let is_kept = |rule: &&ResourceRule| {
            let first = rule.parts.first();
            first.is_some_and(|part| report.is_converted(*part))
        };
        let blocks = crawl
            .blocks
            .iter()
            .filter(is_kept)
            .map(|rule| BlockMatcher {
                url: rule.url.as_deref().and_then(expression),
                allows_only: rule.kind == ResourceRuleKind::AllowOnly,
            });
        let ad_hosts = crawl.ad_hosts.as_ref();
        let ad_hosts = ad_hosts.filter(|(part, _)| report.is_converted(*part));
        let seeds = crawl.scoped_seeds();
        let seeds = seeds.filter(|seed| report.is_converted(seed.seed.part));
        let matchers = seeds.filter_map(|seed| {
            Some(SeedMatcher {
                url: seed.seed.url.clone(),
                normal: to_normal_form(&without_www(&seed.seed.url)),
                scope_type: seed.scope_type?,
                include: expressions(seed.include, report),
                exclude: expressions(seed.exclude, report),
                depth: seed.depth,
            })
        });
        Self {
            blocks: blocks.collect(),
            ad_hosts: ad_hosts.map(|(_, hosts)| hosts.clone()).unwrap_or_default(),
            seeds: matchers.collect(),
            sitemaps: sitemaps(crawl, report),
        }
    }

    fn allows(&self, request: &SourceRequest<'_>) -> Option<bool> {
        let authority = RequestedUrl::new(request.url).authority;
        if self.ad_hosts.iter().any(|host| host == authority) {
            return Some(false);
        }
        if request.text("dest") == Some("embed") {
            return self.allows_resource(request.url);
        }
        if self.sitemaps.iter().any(|url| url == request.url) {
            return Some(true);
        }
        let normal = to_normal_form(request.url);
        let depth = request.number("depth").unwrap_or(0);
        for seed in &self.seeds {
            if seed.includes(request.url, &normal, depth)? {
                return Some(true);
            }
        }
        Some(false)
    }

    fn allows_resource(&self, url: &str) -> Option<bool> {
        for rule in &self.blocks {
            let fits = match &rule.url {
                Some(expression) => expression.is_match(url)?,
                None => false,
            };
            if fits != rule.allows_only {
                return Some(false);
            }
        }
        Some(true)
    }
}

fn expressions(expressions: &[ScopeExpression], report: &Report) -> Vec<OriginalExpression> {
    let kept = expressions.iter().filter(|it| report.is_converted(it.part));
    kept.filter_map(|it| expression(&it.text)).collect()
}

fn expression(text: &str) -> Option<OriginalExpression> {
    OriginalExpression::new(text, Dialect::JavaScript, Anchoring::Search, false).ok()
}

fn sitemaps(crawl: &BrowsertrixCrawl, report: &Report) -> Vec<String> {
    let mut urls = Vec::new();
    for seed in &crawl.seeds {
        let setting = seed.scope.sitemap.as_ref();
        let Some((part, source)) = setting.or(crawl.scope.sitemap.as_ref()) else {
            continue;
        };
        if !report.is_converted(*part) {
            continue;
        }
        let parts = RequestedUrl::new(&seed.url);
        let origin = format!("{}://{}", parts.scheme, parts.authority);
        match source {
            SitemapSource::Off => {}
            SitemapSource::Detect => {
                urls.push(format!("{origin}/robots.txt"));
                urls.push(format!("{origin}/sitemap.xml"));
            }
            SitemapSource::Url(url) if url.contains("://") => urls.push(url.clone()),
            SitemapSource::Url(url) if url.starts_with('/') => urls.push(format!("{origin}{url}")),
            SitemapSource::Url(url) => {
                let end = parts.path.rfind('/').unwrap_or(0);
                let directory = parts.path.get(..end).unwrap_or_default();
                urls.push(format!("{origin}{directory}/{url}"));
            }
        }
    }
    urls
}

impl SeedMatcher {
    fn includes(&self, url: &str, normal: &str, depth: u64) -> Option<bool> {
        if url == self.url || normal == self.normal {
            return Some(true);
        }
        if self.depth.is_some_and(|most| depth > u64::from(most)) {
            return Some(false);
        }
        let mut included = self.is_in_scope(normal);
        for expression in &self.include {
            included = included || expression.is_match(normal)?;
        }
        for expression in &self.exclude {
            if expression.is_match(normal)? {
                return Some(false);
            }
        }
        Some(included)
    }

    fn is_in_scope(&self, normal: &str) -> bool {
        let seed = RequestedUrl::new(&self.normal);
        let bare = without_www(normal);
        let page = RequestedUrl::new(&bare);
        let is_same_host = page.authority == seed.authority;
        match self.scope_type {
            ScopeType::Page | ScopeType::PageSpa => {
                is_same_host && page.path == seed.path && page.query == seed.query
            }
            ScopeType::Prefix => {
                let end = seed.path.rfind('/').map_or(0, |at| at + 1);
                let directory = seed.path.get(..end).unwrap_or_default();
                is_same_host && page.path.starts_with(directory)
            }
            ScopeType::Host => is_same_host,
            ScopeType::Domain => {
                let whole = RequestedUrl::new(normal).authority;
                let below = whole.strip_suffix(seed.authority);
                below.is_some_and(|labels| labels.is_empty() || labels.ends_with('.'))
            }
            ScopeType::Any => true,
            ScopeType::Custom => false,
        }
    }
}

/// Removes `www<N>.` from the host.
fn without_www(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://www") else {
        return url.to_owned();
    };
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    match rest.strip_prefix('.') {
        Some(rest) => format!("{scheme}://{rest}"),
        None => url.to_owned(),
    }
}

impl SourceEvaluator for BrowsertrixEvaluator {
    fn decide(&self, request: &SourceRequest<'_>) -> SourceVerdict {
        match self.allows(request) {
            Some(true) => SourceVerdict::Allow,
            Some(false) => SourceVerdict::Refuse,
            None => SourceVerdict::Unknown,
        }
    }
}

//! A crawl as its file describes it.

use crate::report::PartId;

/// A crawl.
#[derive(Clone, Debug, Default)]
pub struct BrowsertrixCrawl {
    /// The settings for seeds that have none of their own.
    pub scope: SeedScope,
    pub seeds: Vec<BrowsertrixSeed>,
    /// The key of the first seeds: `seeds` or `seedFile`.
    pub seeds_part: Option<PartId>,
    pub blocks: Vec<ResourceRule>,
    /// `blockAds: true`.
    pub blocks_ads: Option<PartId>,
    /// The hosts of `ad-hosts.json`, with the part that is the file.
    pub ad_hosts: Option<(PartId, Vec<String>)>,
    /// `useRobots`.
    pub robots: Option<(PartId, bool)>,
    pub robots_agent: Option<(PartId, String)>,
}

/// A seed.
#[derive(Clone, Debug)]
pub struct BrowsertrixSeed {
    /// The part that is its URL.
    pub part: PartId,
    /// In canonical form, without user, password and fragment.
    pub url: String,
    /// Its settings, which replace those of the crawl one by one.
    pub scope: SeedScope,
}

/// The settings of a scope, as they are written; `None` for those that are not.
#[derive(Clone, Debug, Default)]
pub struct SeedScope {
    pub scope_type: Option<(PartId, ScopeName)>,
    pub include: Option<Vec<ScopeExpression>>,
    pub exclude: Option<Vec<ScopeExpression>>,
    /// The depth; `None` without a limit.
    pub depth: Option<(PartId, Option<u32>)>,
    pub hash: Option<(PartId, bool)>,
    pub sitemap: Option<(PartId, SitemapSource)>,
}

/// A regular expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopeExpression {
    pub part: PartId,
    pub line: u32,
    pub text: String,
}

/// A type of scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ScopeType {
    Page,
    PageSpa,
    Prefix,
    Host,
    Domain,
    Any,
    Custom,
}

/// The value of `scopeType`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScopeName {
    /// An empty value.
    Unset,
    Known(ScopeType),
    /// A name that Browsertrix refuses.
    Unknown,
}

/// The value of `sitemap`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SitemapSource {
    Off,
    /// robots.txt, then `/sitemap.xml`.
    Detect,
    Url(String),
}

/// An item of `blockRules`.
#[derive(Clone, Debug)]
pub struct ResourceRule {
    pub line: u32,
    /// Its parts, or the item itself if that is a text.
    pub parts: Vec<PartId>,
    pub url: Option<String>,
    pub kind: ResourceRuleKind,
    pub in_frame: bool,
    pub frame_text: bool,
}

/// The type of an item of `blockRules`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceRuleKind {
    Block,
    AllowOnly,
    /// A type that Browsertrix refuses.
    Unknown,
}

/// A seed with the settings that apply to it.
#[derive(Clone, Copy, Debug)]
pub struct ScopedSeed<'c> {
    pub seed: &'c BrowsertrixSeed,
    /// `None` for a type that Browsertrix refuses.
    pub scope_type: Option<ScopeType>,
    pub include: &'c [ScopeExpression],
    pub exclude: &'c [ScopeExpression],
    pub depth: Option<u32>,
    pub sitemap: &'c SitemapSource,
}

impl ScopeType {
    pub(super) fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "page" => Self::Page,
            "page-spa" => Self::PageSpa,
            "prefix" => Self::Prefix,
            "host" => Self::Host,
            "domain" => Self::Domain,
            "any" => Self::Any,
            "custom" => Self::Custom,
            _ => return None,
        })
    }
}

impl BrowsertrixCrawl {
    /// Returns the seeds with the settings that apply to them: their own, else those of the crawl.
    pub fn scoped_seeds(&self) -> impl Iterator<Item = ScopedSeed<'_>> {
        self.seeds.iter().map(|seed| self.scoped(seed))
    }

    fn scoped<'c>(&'c self, seed: &'c BrowsertrixSeed) -> ScopedSeed<'c> {
        let (own, common) = (&seed.scope, &self.scope);
        let include = own.include.as_ref().or(common.include.as_ref());
        let include = include.map_or(&[][..], Vec::as_slice);
        let exclude = own.exclude.as_ref().or(common.exclude.as_ref());
        let name = own.scope_type.as_ref().or(common.scope_type.as_ref());
        let scope_type = match name.map(|(_, name)| name) {
            Some(ScopeName::Known(scope_type)) => Some(*scope_type),
            Some(ScopeName::Unknown) => None,
            Some(ScopeName::Unset) | None if include.is_empty() => Some(ScopeType::Prefix),
            Some(ScopeName::Unset) | None => Some(ScopeType::Custom),
        };
        let depth = own.depth.or(common.depth).and_then(|(_, depth)| depth);
        let sitemap = own.sitemap.as_ref().or(common.sitemap.as_ref());
        ScopedSeed {
            seed,
            scope_type,
            include,
            exclude: exclude.map_or(&[][..], Vec::as_slice),
            // No link of a single page is followed.
            depth: match scope_type == Some(ScopeType::Page) {
                true => Some(0),
                false => depth,
            },
            sitemap: sitemap.map_or(&SitemapSource::Off, |(_, source)| source),
        }
    }
}

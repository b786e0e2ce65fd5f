//! Reads a crawl: every key and every item is a part.

use std::collections::BTreeMap;

use crawlgate_policy::internal::urls::target::UrlTarget;
use crawlgate_policy::internal::yaml::{MappingEntry, Node, YamlValue};

use crate::input::{ImportError, ImportInput, MAX_DOCUMENT, MAX_RULE_FILE, Place};
use crate::report::{MissingPart, PartId, Report};
use crate::systems::urls::without_user;
use crate::systems::yaml_source::{YamlSource, entries, items};

use super::options::{OptionEffect, canonical_name, effect};
use super::source::{
    BrowsertrixCrawl, BrowsertrixSeed, ResourceRule, ResourceRuleKind, ScopeExpression, ScopeName,
    ScopeType, SeedScope, SitemapSource,
};

/// Reads the files: crawls, and lists of hosts as `ad-hosts.json`.
pub(super) fn read(
    input: &ImportInput<'_>,
    report: &mut Report,
) -> Result<BrowsertrixCrawl, ImportError> {
    let mut crawl = BrowsertrixCrawl::default();
    for path in &input.paths {
        let text = input.read_text(&path.path, MAX_DOCUMENT)?;
        let source = YamlSource::parse(&text, is_secret)?;
        match &source.root.value {
            YamlValue::Mapping(_) => {
                let mut reader = CrawlReader {
                    input,
                    report,
                    source: &source,
                    omits_null: false,
                };
                reader.crawl(&source.root, &mut crawl);
            }
            YamlValue::Sequence(hosts) => {
                let hosts = hosts.iter().filter_map(Node::spelling);
                let hosts: Vec<String> = hosts.map(str::to_owned).collect();
                let lines = u32::try_from(hosts.len()).unwrap_or(u32::MAX);
                let text = "hosts of advertisements";
                let part = report.add_lines(source.place(&source.root), text, lines);
                crawl.ad_hosts = Some((part, hosts));
            }
            YamlValue::Null
            | YamlValue::Bool(_)
            | YamlValue::Int(..)
            | YamlValue::Float(..)
            | YamlValue::Text(_) => {
                let message = "neither the options of a crawl nor a list of hosts";
                return Err(ImportError::invalid(&source.place(&source.root), message));
            }
        }
    }
    if let Some(seeds) = &input.seeds {
        add_seed_lines("--seeds", seeds, report, &mut crawl);
    }
    Ok(crawl)
}

fn is_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    let words = ["password", "passwd", "secret", "token"];
    key == "auth" || words.iter().any(|word| key.contains(word))
}

struct CrawlReader<'r> {
    input: &'r ImportInput<'r>,
    report: &'r mut Report,
    source: &'r YamlSource,
    /// `null` means that a key is absent, as in the JSON of the application.
    omits_null: bool,
}

impl CrawlReader<'_> {
    fn crawl(&mut self, node: &Node, crawl: &mut BrowsertrixCrawl) {
        let mut known: BTreeMap<String, &str> = BTreeMap::new();
        for entry in entries(node) {
            let name = canonical_name(&entry.key.text);
            if let Some(first) = known.get(&name) {
                let why = format!("Browsertrix takes the first of a name and its alias: {first}");
                self.dead(entry, &why);
                continue;
            }
            known.insert(name.clone(), &entry.key.text);
            self.option(&name, entry, crawl);
        }
    }

    fn option(&mut self, name: &str, entry: &MappingEntry, crawl: &mut BrowsertrixCrawl) {
        match name {
            "seeds" => self.seeds(entry, crawl),
            "seedFile" => self.seed_file(entry, crawl),
            "scopeType" => crawl.scope.scope_type = Some(self.scope_type(entry)),
            "scopeIncludeRx" => crawl.scope.include = Some(self.expressions(entry)),
            "scopeExcludeRx" => crawl.scope.exclude = Some(self.expressions(entry)),
            "depth" => crawl.scope.depth = self.depth(entry),
            "extraHops" => self.extra_hops(entry),
            "allowHashUrls" => crawl.scope.hash = Some(self.flag(entry)),
            "useSitemap" => crawl.scope.sitemap = Some(self.sitemap(entry)),
            "blockRules" => self.blocks(entry, crawl),
            "blockAds" => {
                let (part, blocks) = self.flag(entry);
                match blocks {
                    true => crawl.blocks_ads = Some(part),
                    false => self.report.unrelated(part, "the default"),
                }
            }
            "useRobots" => crawl.robots = Some(self.flag(entry)),
            "robotsAgent" => {
                let part = self.source.add_entry(entry, self.report);
                let agent = entry.value.spelling().unwrap_or_default();
                crawl.robots_agent = Some((part, agent.to_owned()));
            }
            "alwaysAddBehaviorLinks" | "addRedirectedSeeds" => self.widening(entry),
            "originOverride" => self.origin_override(entry),
            "config" if !entries(&entry.value).is_empty() => {
                let part = self.source.add_entry(entry, self.report);
                self.report.unrelated(part, "its keys follow");
                self.omits_null = true;
                self.crawl(&entry.value, crawl);
                self.omits_null = false;
            }
            name => self.other(name, entry),
        }
    }

    fn other(&mut self, name: &str, entry: &MappingEntry) {
        let parts = self.source.add_all(entry, self.report);
        let is_default = matches!(
            &entry.value.value,
            YamlValue::Null | YamlValue::Int(0, _) | YamlValue::Bool(false)
        ) || entry.value.spelling() == Some("0");
        for part in parts {
            match effect(name) {
                Some(OptionEffect::CrawlLimit) if is_default => {
                    self.report.unrelated(part, "the default: no limit");
                }
                Some(OptionEffect::CrawlLimit) => self.report.not_converted(
                    part,
                    "a limit of the whole crawl",
                    MissingPart::LetsThrough,
                    Some("leave it to Browsertrix; `budget` limits a day"),
                ),
                Some(OptionEffect::Unrelated(why)) => self.report.unrelated(part, why),
                // Not known: listed as not converted.
                None => {}
            }
        }
    }

    fn dead(&mut self, entry: &MappingEntry, why: &str) {
        for part in self.source.add_all(entry, self.report) {
            self.report.dead(part, why);
        }
    }

    fn seeds(&mut self, entry: &MappingEntry, crawl: &mut BrowsertrixCrawl) {
        let part = self.source.add_entry(entry, self.report);
        let YamlValue::Sequence(seeds) = &entry.value.value else {
            if let Some(url) = entry.value.spelling() {
                add_seed(part, url, SeedScope::default(), self.report, crawl);
            }
            crawl.seeds_part = crawl.seeds_part.or(Some(part));
            return;
        };
        crawl.seeds_part = crawl.seeds_part.or(Some(part));
        for seed in seeds {
            if let Some(url) = seed.spelling() {
                let part = self.source.add_item(seed, self.report);
                add_seed(part, url, SeedScope::default(), self.report, crawl);
            } else if entries(seed).is_empty() {
                let part = self.source.add_item(seed, self.report);
                self.report.dead(part, "no URL: Browsertrix skips it");
            } else {
                self.seed(seed, crawl);
            }
        }
    }

    fn seed(&mut self, node: &Node, crawl: &mut BrowsertrixCrawl) {
        let mut url = None;
        let mut scope = SeedScope::default();
        for entry in entries(node) {
            if self.omits_null && entry.value.is_null() {
                let part = self.source.add_entry(entry, self.report);
                self.report.unrelated(part, "is not set");
                continue;
            }
            // Names are not replaced here: a seed has no aliases.
            match &*entry.key.text {
                "url" => {
                    let part = self.source.add_entry(entry, self.report);
                    url = Some((part, entry.value.spelling().unwrap_or_default()));
                }
                "scopeType" => scope.scope_type = Some(self.scope_type(entry)),
                "include" => scope.include = Some(self.expressions(entry)),
                "exclude" => scope.exclude = Some(self.expressions(entry)),
                "depth" => scope.depth = self.depth(entry),
                "extraHops" => self.extra_hops(entry),
                "allowHash" => scope.hash = Some(self.flag(entry)),
                "sitemap" => scope.sitemap = Some(self.sitemap(entry)),
                "auth" => {
                    let part = self.source.add_entry(entry, self.report);
                    let why = "Browsertrix itself sends it; it is written nowhere";
                    self.report.unrelated(part, why);
                }
                "scopeIncludeRx" | "scopeExcludeRx" | "allowHashUrls" | "useSitemap" | "type"
                | "limit" => {
                    self.dead(entry, "Browsertrix does not know this key of a seed");
                }
                // Not known: listed as not converted.
                _ => {
                    self.source.add_all(entry, self.report);
                }
            }
        }
        if let Some((part, url)) = url {
            add_seed(part, url, scope, self.report, crawl);
        }
    }

    /// Reads a file with a URL in each line. A path of the container is that of a file beside this one.
    fn seed_file(&mut self, entry: &MappingEntry, crawl: &mut BrowsertrixCrawl) {
        let part = self.source.add_entry(entry, self.report);
        let path = entry.value.spelling().unwrap_or_default();
        if path.is_empty() {
            return self.report.unrelated(part, "no file");
        }
        if self.input.seeds.is_some() {
            return self.report.unrelated(part, "its URLs are those of --seeds");
        }
        let is_remote = path.starts_with("http://") || path.starts_with("https://");
        let name = path.rsplit('/').next().unwrap_or(path);
        let name = if path.starts_with('/') { name } else { path };
        match self.input.read_text(name, MAX_RULE_FILE) {
            Ok(text) if !is_remote => {
                self.report.unrelated(part, "its URLs follow");
                crawl.seeds_part = crawl.seeds_part.or(Some(part));
                add_seed_lines(name, &text.text, self.report, crawl);
            }
            Ok(_) | Err(_) => self.report.not_converted(
                part,
                "the file is not beside this one",
                MissingPart::KeepsOut,
                Some("give its URLs with --seeds FILE"),
            ),
        }
    }

    fn scope_type(&mut self, entry: &MappingEntry) -> (PartId, ScopeName) {
        let part = self.source.add_entry(entry, self.report);
        let name = entry.value.spelling().unwrap_or_default();
        let name = match ScopeType::from_name(name) {
            Some(known) => ScopeName::Known(known),
            None if name.is_empty() => {
                self.report.unrelated(part, "is not set");
                ScopeName::Unset
            }
            None => {
                let why = "Browsertrix does not know this type of scope, and does not start";
                let instead = Some("page, page-spa, prefix, host, domain, any or custom");
                self.report
                    .not_converted(part, why, MissingPart::KeepsOut, instead);
                ScopeName::Unknown
            }
        };
        (part, name)
    }

    /// Reads one expression or a list of them.
    fn expressions(&mut self, entry: &MappingEntry) -> Vec<ScopeExpression> {
        let part = self.source.add_entry(entry, self.report);
        let text = entry.value.spelling().unwrap_or_default();
        if !text.is_empty() {
            return vec![ScopeExpression {
                part,
                line: entry.value.place.line,
                text: text.to_owned(),
            }];
        }
        self.report.unrelated(part, "its expressions follow");
        let mut found = Vec::new();
        for item in items(&entry.value) {
            let part = self.source.add_item(item, self.report);
            let Some(text) = item.spelling() else {
                continue;
            };
            found.push(ScopeExpression {
                part,
                line: item.place.line,
                text: text.to_owned(),
            });
        }
        found
    }

    fn depth(&mut self, entry: &MappingEntry) -> Option<(PartId, Option<u32>)> {
        let part = self.source.add_entry(entry, self.report);
        let depth = entry
            .value
            .spelling()
            .and_then(|text| text.parse::<i64>().ok());
        match depth {
            Some(depth) if depth < 0 => {
                self.report.unrelated(part, "the default: no limit");
                Some((part, None))
            }
            Some(depth) => Some((part, Some(u32::try_from(depth).unwrap_or(u32::MAX)))),
            None => {
                let why = "not a number of links";
                let instead = Some("`max_depth`");
                self.report
                    .not_converted(part, why, MissingPart::LetsThrough, instead);
                None
            }
        }
    }

    fn extra_hops(&mut self, entry: &MappingEntry) {
        let part = self.source.add_entry(entry, self.report);
        let hops = entry.value.spelling().unwrap_or("0");
        match hops {
            "0" => self.report.unrelated(part, "the default"),
            _ => self.report.not_converted(
                part,
                "the number of links since a page in scope is not known",
                MissingPart::KeepsOut,
                Some("a rule for the hosts that are linked"),
            ),
        }
    }

    fn flag(&mut self, entry: &MappingEntry) -> (PartId, bool) {
        let part = self.source.add_entry(entry, self.report);
        (part, entry.value.spelling() == Some("true"))
    }

    fn sitemap(&mut self, entry: &MappingEntry) -> (PartId, SitemapSource) {
        let part = self.source.add_entry(entry, self.report);
        let source = match &entry.value.value {
            YamlValue::Bool(true) => SitemapSource::Detect,
            YamlValue::Text(url) if !url.is_empty() => SitemapSource::Url(url.to_string()),
            YamlValue::Null
            | YamlValue::Bool(false)
            | YamlValue::Int(..)
            | YamlValue::Float(..)
            | YamlValue::Text(_)
            | YamlValue::Sequence(_)
            | YamlValue::Mapping(_) => {
                self.report.unrelated(part, "no sitemap");
                SitemapSource::Off
            }
        };
        (part, source)
    }

    fn widening(&mut self, entry: &MappingEntry) {
        let (part, enabled) = self.flag(entry);
        if !enabled {
            return self.report.unrelated(part, "the default");
        }
        self.report.not_converted(
            part,
            "pages become known while they are loaded, which no file names",
            MissingPart::KeepsOut,
            Some("a rule for their hosts"),
        );
    }

    fn origin_override(&mut self, entry: &MappingEntry) {
        for part in self.source.add_all(entry, self.report) {
            if items(&entry.value).is_empty() {
                self.report.unrelated(part, "the default");
                continue;
            }
            self.report.not_converted(
                part,
                "requests for one origin are sent to another one",
                MissingPart::OtherSetting,
                Some("`replace` with `rewrite: true`"),
            );
        }
    }

    fn blocks(&mut self, entry: &MappingEntry, crawl: &mut BrowsertrixCrawl) {
        let part = self.source.add_entry(entry, self.report);
        self.report.unrelated(part, "its rules follow");
        let rules = match entry.value.spelling() {
            Some(_) => std::slice::from_ref(&entry.value),
            None => items(&entry.value),
        };
        for rule in rules {
            let mut block = ResourceRule {
                line: rule.place.line,
                parts: Vec::new(),
                url: rule.spelling().map(str::to_owned),
                kind: ResourceRuleKind::Block,
                in_frame: false,
                frame_text: false,
            };
            if entries(rule).is_empty() {
                block.parts.push(self.source.add_item(rule, self.report));
            }
            for entry in entries(rule) {
                block.parts.push(self.source.add_entry(entry, self.report));
                let text = entry.value.spelling().unwrap_or_default();
                match &*entry.key.text {
                    "url" => block.url = (!text.is_empty()).then(|| text.to_owned()),
                    "type" => block.kind = ResourceRuleKind::from_name(text),
                    "inFrameUrl" => block.in_frame = !text.is_empty(),
                    "frameTextMatch" => block.frame_text = !text.is_empty(),
                    _ => {
                        block.parts.pop();
                    }
                }
            }
            crawl.blocks.push(block);
        }
    }
}

impl ResourceRuleKind {
    fn from_name(name: &str) -> Self {
        match name {
            "" | "block" => Self::Block,
            "allowOnly" => Self::AllowOnly,
            _ => Self::Unknown,
        }
    }
}

/// Adds the seeds of a file, one a line.
fn add_seed_lines(file: &str, text: &str, report: &mut Report, crawl: &mut BrowsertrixCrawl) {
    for (line, url) in (1_u32..).zip(text.lines()) {
        if url.trim().is_empty() {
            continue;
        }
        let place = Place {
            line,
            ..Place::start(file)
        };
        let part = report.add(place, without_user(url));
        add_seed(part, url, SeedScope::default(), report, crawl);
    }
}

fn add_seed(
    part: PartId,
    url: &str,
    scope: SeedScope,
    report: &mut Report,
    crawl: &mut BrowsertrixCrawl,
) {
    match canonical_seed(url) {
        Some(url) => crawl.seeds.push(BrowsertrixSeed { part, url, scope }),
        None => report.dead(
            part,
            "no URL that begins with http:// or https://: Browsertrix skips it",
        ),
    }
}

/// Returns a URL in canonical form, without quotes, user, password and fragment.
fn canonical_seed(text: &str) -> Option<String> {
    let text = text.trim();
    let unquoted = ['"', '\''].iter().find_map(|quote| {
        let inner = text.strip_prefix(*quote)?;
        inner.strip_suffix(*quote)
    });
    let text = unquoted.unwrap_or(text);
    let (scheme, rest) = text.split_once("://")?;
    let rest = rest.split('#').next().unwrap_or(rest);
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(end)?;
    let host = authority.rsplit('@').next().unwrap_or(authority);
    let target = UrlTarget::parse(&format!("{scheme}://{host}{path}")).ok()?;
    Some(target.as_str().to_owned())
}

//! Scrapy: a request is made for a start page, or for a link that the extractor of a rule accepts, if its host
//! is one of the allowed domains.

use fancy_regex::{Regex, RegexBuilder};

use crate::reference::{SourceEvaluator, SourceRequest, SourceVerdict};
use crate::report::Report;
use crate::systems::scrapy::{LinkExpression, ScrapySetting, ScrapySource, Spider};

/// Evaluates the rules of spiders.
pub struct ScrapyEvaluator {
    spiders: Vec<SpiderScope>,
    max_length: Option<usize>,
    names_matter: bool,
}

struct SpiderScope {
    name: String,
    domains: Option<Vec<String>>,
    starts: Vec<String>,
    rules: Option<Vec<LinkFilter>>,
    max_length: Option<usize>,
}

/// `LinkExtractor`.
struct LinkFilter {
    allow: Option<Vec<Option<Regex>>>,
    deny: Vec<Option<Regex>>,
    allow_domains: Option<Vec<String>>,
    deny_domains: Vec<String>,
    deny_extensions: Vec<String>,
}

impl ScrapyEvaluator {
    /// Compiles the rules that were converted.
    pub fn new(source: &ScrapySource, report: &Report) -> Self {
        Self {
            spiders: source
                .spiders
                .iter()
                .map(|spider| scope(spider, source, report))
                .collect(),
            max_length: max_length(&source.settings).flatten(),
            names_matter: source.spiders.len() > 1,
        }
    }
}

/// Returns `URLLENGTH_LIMIT`, if it is set; `None` in it for no limit.
fn max_length(settings: &[ScrapySetting]) -> Option<Option<usize>> {
    let mut settings = settings.iter().rev();
    let length = settings.find(|setting| setting.name == "URLLENGTH_LIMIT")?;
    let limit = length.value.as_number()?;
    Some((limit >= 1.0).then(|| limit.trunc() as usize))
}

fn scope(spider: &Spider, source: &ScrapySource, report: &Report) -> SpiderScope {
    let domains = spider
        .allowed_domains
        .as_ref()
        .filter(|(_, domains)| !domains.is_empty());
    let rules = spider.rules.as_ref().map(|rules| {
        let rules = rules
            .iter()
            .filter(|rule| rule.part.is_some_and(|part| report.is_converted(part)));
        let rules = rules.map(|rule| {
            let deny = rule
                .deny
                .as_ref()
                .filter(|(part, _)| report.is_converted(*part));
            LinkFilter {
                allow: rule.allow.as_ref().map(|(_, found)| compile(found)),
                deny: deny.map(|(_, found)| compile(found)).unwrap_or_default(),
                allow_domains: rule.allow_domains.as_ref().map(|(_, found)| found.clone()),
                deny_domains: rule
                    .deny_domains
                    .as_ref()
                    .map(|(_, found)| found.clone())
                    .unwrap_or_default(),
                deny_extensions: match &rule.deny_extensions {
                    Some((_, found)) => found.clone(),
                    None => IGNORED_EXTENSIONS
                        .split_whitespace()
                        .map(str::to_owned)
                        .collect(),
                },
            }
        });
        rules.collect()
    });
    SpiderScope {
        name: spider.name.clone(),
        domains: domains.map(|(_, domains)| domains.clone()),
        starts: spider
            .start_urls
            .iter()
            .flat_map(|(_, urls)| urls.clone())
            .collect(),
        rules,
        max_length: max_length(&spider.settings)
            .or_else(|| max_length(&source.settings))
            .flatten(),
    }
}

fn compile(expressions: &[LinkExpression]) -> Vec<Option<Regex>> {
    let regexes = expressions.iter().map(|expression| {
        let mut builder = RegexBuilder::new(&expression.text);
        builder.case_insensitive(expression.ignore_case);
        builder.build().ok()
    });
    regexes.collect()
}

/// Returns `None` if an expression does not say.
fn is_found(regexes: &[Option<Regex>], url: &str) -> Option<bool> {
    for regex in regexes {
        if regex.as_ref()?.is_match(url).ok()? {
            return Some(true);
        }
    }
    Some(false)
}

/// `url_is_from_any_domain`, which compares with the host and its port.
fn is_from(authority: &str, domains: &[String]) -> bool {
    domains.iter().any(|domain| {
        let domain = domain.to_lowercase();
        authority == domain || authority.ends_with(&format!(".{domain}"))
    })
}

/// The expression of `OffsiteMiddleware`, which ignores URLs and names with a port.
fn is_on_site(host: &str, domains: &[String]) -> bool {
    domains.iter().any(|domain| {
        let is_ignored = domain.starts_with("http://")
            || domain.starts_with("https://")
            || domain
                .rsplit_once(':')
                .is_some_and(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()));
        !is_ignored && (host == domain.as_str() || host.ends_with(&format!(".{domain}")))
    })
}

impl LinkFilter {
    fn accepts(&self, url: &str, authority: &str, path: &str) -> Option<bool> {
        if let Some(allow) = &self.allow
            && !is_found(allow, url)?
        {
            return Some(false);
        }
        if is_found(&self.deny, url)? {
            return Some(false);
        }
        if self
            .allow_domains
            .as_ref()
            .is_some_and(|domains| !is_from(authority, domains))
            || is_from(authority, &self.deny_domains)
        {
            return Some(false);
        }
        let path = path.to_lowercase();
        Some(
            !self
                .deny_extensions
                .iter()
                .any(|extension| path.ends_with(&format!(".{extension}"))),
        )
    }
}

impl SpiderScope {
    fn allows(&self, url: &str) -> Option<bool> {
        if self.max_length.is_some_and(|max| url.chars().count() > max) {
            return Some(false);
        }
        let (_, rest) = url.split_once("://")?;
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at_checked(end)?;
        let host = authority.split(':').next().unwrap_or(authority);
        let path = rest.split(['?', '#']).next().unwrap_or(rest);
        // `urlparse` cuts the parameters of the last segment.
        let last = path.rfind('/').map_or(0, |at| at + 1);
        let cut = path
            .get(last..)
            .and_then(|segment| segment.find(';'))
            .map(|at| last + at);
        let path = cut.and_then(|cut| path.get(..cut)).unwrap_or(path);
        if self.starts.iter().any(|start| is_same(start, url)) {
            return Some(true);
        }
        if self
            .domains
            .as_ref()
            .is_some_and(|domains| !is_on_site(host, domains))
        {
            return Some(false);
        }
        let Some(rules) = &self.rules else {
            return Some(true);
        };
        let mut answer = Some(false);
        for rule in rules {
            match rule.accepts(url, authority, path) {
                Some(true) => return Some(true),
                Some(false) => {}
                None => answer = None,
            }
        }
        answer
    }
}

/// Compares a start page as the source has it with a URL that has a path and no fragment.
fn is_same(start: &str, url: &str) -> bool {
    let start = start.split('#').next().unwrap_or(start);
    if start == url {
        return true;
    }
    let authority = start.find("://").map_or(0, |at| at + 3);
    let slash = start.get(authority..).and_then(|rest| rest.find('/'));
    slash.is_none() && format!("{start}/") == url
}

impl SourceEvaluator for ScrapyEvaluator {
    fn decide(&self, request: &SourceRequest<'_>) -> SourceVerdict {
        let crawler = request.text("crawler").unwrap_or("anonymous");
        let is_its = |spider: &&SpiderScope| {
            !self.names_matter || crate::draft::to_slug(&spider.name) == crawler
        };
        let is_long = || {
            self.max_length
                .is_some_and(|max| request.url.chars().count() > max)
        };
        let allowed = match self.spiders.iter().find(is_its) {
            Some(spider) => spider.allows(request.url),
            None => Some(self.spiders.is_empty() && !is_long()),
        };
        match allowed {
            Some(true) => SourceVerdict::Allow,
            Some(false) => SourceVerdict::Refuse,
            None => SourceVerdict::Unknown,
        }
    }
}

/// `scrapy.linkextractors.IGNORED_EXTENSIONS` of Scrapy 2.18.
const IGNORED_EXTENSIONS: &str = "\
    7z 7zip bz2 rar tar tar.gz xz zip mng pct bmp gif jpg jpeg png pst psp tif tiff ai drw dxf eps ps \
    svg cdr ico webp mp3 wma ogg wav ra aac mid au aiff 3gp asf asx avi mov mp4 mpg qt rm swf wmv m4a \
    m4v flv webm xls xlsm xlsx xltm xltx potm potx ppt pptm pptx pps doc docb docm docx dotm dotx odt \
    ods odg odp css pdf exe bin rss dmg iso apk jar sh rb js hta bat cpl msi msp py";

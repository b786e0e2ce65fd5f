//! CloudView's rules: all that match are applied in order, and the last one that accepts or ignores decides.

use fancy_regex::Regex;

use crate::reference::requested::RequestedUrl;
use crate::reference::{SourceEvaluator, SourceRequest, SourceVerdict};
use crate::report::{PartId, Report};
use crate::systems::exalead::source::{
    CloudViewAction, CloudViewAtom, CloudViewCrawler, CloudViewField, CloudViewKind,
    CloudViewMatcher, CloudViewNorm,
};

/// Decides by the rules of several crawlers.
pub struct CloudViewEvaluator {
    crawlers: Vec<EvaluatedCrawler>,
}

struct EvaluatedCrawler {
    name: String,
    default_accept: bool,
    steps: Vec<(AtomCondition, bool)>,
}

enum AtomCondition {
    And(Vec<AtomCondition>),
    Or(Vec<AtomCondition>),
    Not(Box<AtomCondition>),
    Regex(CloudViewField, Option<Regex>),
    Length(CloudViewField, u64, u64),
    Site(String),
}

impl CloudViewEvaluator {
    /// Prepares the rules that were converted.
    pub fn new<'c>(
        crawlers: impl IntoIterator<Item = &'c CloudViewCrawler>,
        report: &Report,
    ) -> Self {
        let is_converted = |part: PartId| report.is_converted(part);
        let crawlers = crawlers.into_iter().map(|crawler| {
            let roots = crawler.roots.iter().filter(|root| is_converted(root.part));
            let mut steps: Vec<(AtomCondition, bool)> = roots
                .map(|root| (AtomCondition::Site(root.url.clone()), true))
                .collect();
            for rule in crawler.rules.iter().filter(|rule| is_converted(rule.part)) {
                for action in &rule.actions {
                    if let CloudViewAction::Accept(accepts) = action {
                        steps.push((AtomCondition::new(&rule.matcher), *accepts));
                    }
                }
            }
            EvaluatedCrawler {
                name: crate::draft::to_slug(&crawler.name),
                default_accept: crawler.default_accept,
                steps,
            }
        });
        Self {
            crawlers: crawlers.collect(),
        }
    }
}

impl SourceEvaluator for CloudViewEvaluator {
    fn decide(&self, request: &SourceRequest<'_>) -> SourceVerdict {
        let name = request.text("crawler").unwrap_or("anonymous");
        let crawler = match self.crawlers.as_slice() {
            [one] => Some(one),
            several => several.iter().find(|crawler| crawler.name == name),
        };
        let Some(crawler) = crawler else {
            return SourceVerdict::Unknown;
        };
        let url = RequestedUrl::new(request.url);
        let mut accepts = crawler.default_accept;
        for (test, value) in &crawler.steps {
            match test.fits(&url) {
                Some(true) => accepts = *value,
                Some(false) => {}
                None => return SourceVerdict::Unknown,
            }
        }
        match accepts {
            true => SourceVerdict::Allow,
            false => SourceVerdict::Refuse,
        }
    }
}

impl AtomCondition {
    fn new(matcher: &CloudViewMatcher) -> Self {
        match matcher {
            CloudViewMatcher::And(parts) => Self::And(parts.iter().map(Self::new).collect()),
            CloudViewMatcher::Or(parts) => Self::Or(parts.iter().map(Self::new).collect()),
            CloudViewMatcher::Not(part) => Self::Not(Box::new(Self::new(part))),
            CloudViewMatcher::Atom(atom) => Self::Regex(atom.field, regex(atom)),
            CloudViewMatcher::Length { field, min, max } => {
                Self::Length(*field, min.unwrap_or(0), max.unwrap_or(u64::MAX))
            }
        }
    }

    fn fits(&self, url: &RequestedUrl<'_>) -> Option<bool> {
        match self {
            Self::And(parts) => all(parts.iter().map(|part| part.fits(url)), true),
            Self::Or(parts) => all(parts.iter().map(|part| part.fits(url)), false),
            Self::Not(part) => part.fits(url).map(|fits| !fits),
            Self::Regex(field, regex) => regex.as_ref()?.is_match(text(*field, url)).ok(),
            Self::Length(field, min, max) => {
                let length = text(*field, url).chars().count() as u64;
                Some((*min..=*max).contains(&length))
            }
            Self::Site(root) => Some(is_in_site(url.url, root)),
        }
    }
}

/// Combines results: `wanted` if all are that, unknown if one is unknown.
fn all(parts: impl Iterator<Item = Option<bool>>, wanted: bool) -> Option<bool> {
    let mut result = wanted;
    for part in parts {
        if part? != wanted {
            result = !wanted;
        }
    }
    Some(result)
}

fn text<'u>(field: CloudViewField, url: &RequestedUrl<'u>) -> &'u str {
    match field {
        CloudViewField::Url => url.url,
        CloudViewField::Scheme => url.scheme,
        CloudViewField::Host => url.host,
        CloudViewField::Path => url.path,
        CloudViewField::Query => url.query,
    }
}

fn regex(atom: &CloudViewAtom) -> Option<Regex> {
    let value = &atom.pattern.expression;
    let anchored = match atom.kind {
        CloudViewKind::Exact => format!(r"\A(?:{value})\z"),
        CloudViewKind::Prefix => format!(r"\A(?:{value})"),
        CloudViewKind::Suffix => format!(r"(?:{value})\z"),
        CloudViewKind::Inside => value.clone(),
        CloudViewKind::Domain => format!(r"(?:\A|\.)(?:{value})\z"),
    };
    let ignores_case = atom.norm != CloudViewNorm::None
        || matches!(atom.field, CloudViewField::Host | CloudViewField::Scheme);
    let flags = if ignores_case { "(?i)" } else { "" };
    Regex::new(&format!("{flags}{anchored}")).ok()
}

/// The URLs that begin with the root; for a root without a path also those of the host with `www.` before it.
fn is_in_site(url: &str, root: &str) -> bool {
    let Some((scheme, rest)) = root.split_once("://") else {
        return false;
    };
    let host = rest.strip_suffix('/').unwrap_or(rest);
    if host.contains(['/', '?']) {
        return url.starts_with(root);
    }
    let host = host.to_ascii_lowercase();
    let twin = match host.strip_prefix("www.") {
        Some(bare) => bare.to_owned(),
        None => format!("www.{host}"),
    };
    [host, twin]
        .iter()
        .any(|host| url.starts_with(&format!("{scheme}://{host}/")))
}

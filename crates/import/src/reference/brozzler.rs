//! brozzler: `Site.accept_reject_or_neither` for each seed; warcprox's blocks before.

use fancy_regex::Regex;

use crate::reference::{SourceEvaluator, SourceRequest, SourceVerdict};
use crate::report::Report;
use crate::systems::brozzler::{BrozzlerJob, BrozzlerScope, MatchRule};

/// Evaluates the scopes of a job.
pub struct BrozzlerEvaluator {
    job: BrozzlerJob,
}

/// A URL in the forms that rules are compared with.
struct Forms<'a> {
    url: &'a str,
    host: String,
    surt: String,
    ssurt: String,
    referer: &'a str,
}

impl BrozzlerEvaluator {
    /// Keeps the rules that were converted.
    pub fn new(job: &BrozzlerJob, report: &Report) -> Self {
        let mut job = job.clone();
        let keep = |rules: &mut Vec<MatchRule>| {
            rules.retain(|rule| {
                rule.conditions
                    .first()
                    .is_some_and(|first| report.is_converted(first.part))
            });
        };
        keep(&mut job.warcprox_blocks);
        let keep_scope = |scope: &mut BrozzlerScope| {
            keep(&mut scope.accepts);
            keep(&mut scope.blocks);
        };
        keep_scope(&mut job.scope);
        job.seeds.retain(|seed| report.is_converted(seed.part));
        for seed in &mut job.seeds {
            keep_scope(&mut seed.scope);
        }
        Self { job }
    }

    fn allows(&self, forms: &Forms<'_>, is_page: bool) -> Option<bool> {
        if any(&self.job.warcprox_blocks, forms)? {
            return Some(false);
        }
        if !self.job.has_seeds || !is_page {
            return Some(true);
        }
        if any(&self.job.scope.blocks, forms)? {
            return Some(false);
        }
        for seed in &self.job.seeds {
            if any(&seed.scope.blocks, forms)? {
                continue;
            }
            let own = Forms::parse(seed.url.split(['?', '#']).next()?, "")?;
            if forms.ssurt.starts_with(&own.ssurt) || any(&seed.scope.accepts, forms)? {
                return Some(true);
            }
        }
        any(&self.job.scope.accepts, forms)
    }
}

fn any(rules: &[MatchRule], forms: &Forms<'_>) -> Option<bool> {
    for rule in rules {
        if applies(rule, forms)? {
            return Some(true);
        }
    }
    Some(false)
}

fn applies(rule: &MatchRule, forms: &Forms<'_>) -> Option<bool> {
    for condition in &rule.conditions {
        let value = condition.value.as_str();
        let fits = match condition.key.as_str() {
            "domain" => {
                let value = value.to_lowercase();
                forms.host == value || forms.host.ends_with(&format!(".{value}"))
            }
            "substring" => forms.url.contains(value),
            "regex" => whole(value, forms.url)?,
            "parent_url_regex" => whole(value, forms.referer)?,
            "surt" => forms.surt.starts_with(value),
            "ssurt" => forms.ssurt.starts_with(value),
            _ => return None,
        };
        if !fits {
            return Some(false);
        }
    }
    Some(true)
}

fn whole(expression: &str, text: &str) -> Option<bool> {
    Regex::new(&format!(r"\A(?:{expression})\z"))
        .ok()?
        .is_match(text)
        .ok()
}

impl<'a> Forms<'a> {
    fn parse(url: &'a str, referer: &'a str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at_checked(end)?;
        let authority = authority
            .rsplit_once('@')
            .map_or(authority, |(_, host)| host);
        let (host, port) = authority.split_once(':').unwrap_or((authority, ""));
        let host = host.to_lowercase();
        let port = match (scheme, port) {
            ("http", "80") | ("https", "443") => "",
            (_, port) => port,
        };
        let path = if path.is_empty() { "/" } else { path };
        let labels: String = host.rsplit('.').map(|label| format!("{label},")).collect();
        let colon = if port.is_empty() { "" } else { ":" };
        Some(Self {
            url,
            surt: format!("{scheme}://({labels}{colon}{port}){path}"),
            ssurt: format!("{labels}//{port}{colon}{scheme}:{path}"),
            host,
            referer,
        })
    }
}

impl SourceEvaluator for BrozzlerEvaluator {
    fn decide(&self, request: &SourceRequest<'_>) -> SourceVerdict {
        let referer = request.text("referer").unwrap_or("");
        let is_page = request.text("dest") != Some("embed");
        let allowed =
            Forms::parse(request.url, referer).and_then(|forms| self.allows(&forms, is_page));
        match allowed {
            Some(true) => SourceVerdict::Allow,
            Some(false) => SourceVerdict::Refuse,
            None => SourceVerdict::Unknown,
        }
    }
}

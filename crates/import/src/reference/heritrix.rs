//! Heritrix's scope: every rule is asked in turn, and the last answer that is not `NONE` counts.

use fancy_regex::Regex;

use crate::reference::{SourceEvaluator, SourceRequest, SourceVerdict};
use crate::systems::heritrix::scope::{PatternSet, ScopeDecision, ScopeRule, ScopeTest};
use crate::systems::heritrix::surts::SurtLine;

/// A `DecideRuleSequence` and the block lists of `Preselector`.
pub struct HeritrixScope {
    rules: Vec<DecideRule>,
    block: Option<Regex>,
    allow: Option<Regex>,
}

struct DecideRule {
    decision: ScopeDecision,
    test: DecideRuleTest,
}

enum DecideRuleTest {
    Always,
    Surts(Vec<String>),
    Regexes { patterns: Vec<Regex>, all: bool },
    Hops(u64),
    Slashes(usize),
    RepeatedPath(Option<Regex>),
    Embedded,
    Via,
    Urls(Vec<String>),
    Scheme(Vec<String>),
    Not(Box<DecideRuleTest>),
    Sequence(Vec<DecideRule>),
}

impl HeritrixScope {
    /// Prepares the rules that were converted.
    pub fn new(rules: &[ScopeRule], block: Option<&str>, allow: Option<&str>) -> Self {
        Self {
            rules: rules.iter().filter_map(prepare).collect(),
            block: block.and_then(whole),
            allow: allow.and_then(whole),
        }
    }
}

fn prepare(rule: &ScopeRule) -> Option<DecideRule> {
    if !rule.acts {
        return None;
    }
    let test = match &rule.test {
        ScopeTest::Always => DecideRuleTest::Always,
        ScopeTest::Surts(lines) => {
            let lines = lines.iter().filter_map(|line| SurtLine::read(line));
            DecideRuleTest::Surts(lines.map(surt_prefix).collect())
        }
        ScopeTest::Regexes(PatternSet { patterns, all }) => DecideRuleTest::Regexes {
            patterns: patterns.iter().filter_map(|text| whole(text)).collect(),
            all: *all,
        },
        ScopeTest::MoreHops(max) => DecideRuleTest::Hops(*max),
        ScopeTest::MoreSlashes(max) => DecideRuleTest::Slashes(*max),
        ScopeTest::RepeatedPath(max) => {
            let text = format!(".*?/(.*?/)\\1{{{max},}}.*");
            DecideRuleTest::RepeatedPath(whole(&text))
        }
        ScopeTest::Embedded => DecideRuleTest::Embedded,
        ScopeTest::Via => DecideRuleTest::Via,
        ScopeTest::Urls(urls) => DecideRuleTest::Urls(urls.clone()),
        ScopeTest::SchemeNotIn(schemes) => {
            DecideRuleTest::Not(Box::new(DecideRuleTest::Scheme(schemes.clone())))
        }
        ScopeTest::Sequence(rules) => {
            DecideRuleTest::Sequence(rules.iter().filter_map(prepare).collect())
        }
        ScopeTest::Unknown { .. } => return None,
    };
    let test = if rule.negated {
        DecideRuleTest::Not(Box::new(test))
    } else {
        test
    };
    Some(DecideRule {
        decision: rule.decision,
        test,
    })
}

fn whole(text: &str) -> Option<Regex> {
    Regex::new(&format!(r"\A(?:{text})\z")).ok()
}

/// `SurtPrefixSet.prefixFromPlainForceHttp` and `considerAsAddDirective`.
pub(super) fn surt_prefix(line: SurtLine<'_>) -> String {
    match line {
        SurtLine::Formal(text) => text.to_lowercase(),
        SurtLine::Plain(text) => {
            let url = match text.split_once("://") {
                Some((_, rest)) => format!("http://{rest}"),
                None => format!("http://{text}"),
            };
            let url = url.split('#').next().unwrap_or_default();
            let surt = to_surt(url);
            let path = surt.find(')').map_or(surt.len(), |at| at + 1);
            let (authority, path) = surt.split_at_checked(path).unwrap_or((&surt, ""));
            match path.rfind('/') {
                Some(slash) => format!("{authority}{}", path.get(..=slash).unwrap_or_default()),
                None => authority.trim_end_matches(')').to_owned(),
            }
        }
    }
}

/// `SURT.fromURI`, with https as http.
pub(super) fn to_surt(url: &str) -> String {
    let url = url.to_lowercase();
    let bare = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
    let end = bare.find(['/', '?']).unwrap_or(bare.len());
    let (authority, rest) = bare.split_at_checked(end).unwrap_or((bare, ""));
    let rest = match rest.strip_prefix('?') {
        Some(query) => format!("/?{query}"),
        None => rest.to_owned(),
    };
    let (host, port) = match authority.split_once(':') {
        Some((host, port)) if port != "80" && !host.is_empty() => (host, format!(":{port}")),
        Some((host, _)) => (host, String::new()),
        None => (authority, String::new()),
    };
    let is_number = host.chars().all(|c| c.is_ascii_digit() || c == '.');
    let mut labels = String::new();
    if is_number {
        labels.push_str(host);
    } else {
        for label in host.split('.').rev() {
            labels.push_str(label);
            labels.push(',');
        }
    }
    format!("http://({labels}{port}){rest}")
}

impl DecideRuleTest {
    fn holds(&self, request: &SourceRequest<'_>) -> bool {
        match self {
            Self::Always => true,
            Self::Surts(prefixes) => {
                let surt = to_surt(request.url);
                prefixes.iter().any(|prefix| surt.starts_with(prefix))
            }
            Self::Regexes { patterns, all } => {
                let fits = |regex: &Regex| regex.is_match(request.url).unwrap_or(false);
                match (patterns.is_empty(), all) {
                    (true, _) => false,
                    (false, true) => patterns.iter().all(fits),
                    (false, false) => patterns.iter().any(fits),
                }
            }
            Self::Hops(max) => request.number("depth").is_some_and(|hops| hops > *max),
            Self::Slashes(max) => {
                let path = request.url.splitn(4, '/').nth(3).unwrap_or_default();
                let path = path.split('?').next().unwrap_or_default();
                path.matches('/').count() + 1 > *max
            }
            Self::RepeatedPath(regex) => regex
                .as_ref()
                .is_some_and(|regex| regex.is_match(request.url).unwrap_or(false)),
            Self::Embedded => request.text("dest") == Some("embed"),
            Self::Via => request
                .text("referer")
                .is_some_and(|referer| !referer.is_empty()),
            Self::Urls(urls) => urls.iter().any(|url| url == request.url),
            Self::Scheme(schemes) => {
                let scheme = request.url.split(':').next().unwrap_or_default();
                schemes.iter().any(|known| known == scheme)
            }
            Self::Not(test) => !test.holds(request),
            Self::Sequence(rules) => last_decision(rules, request).is_some(),
        }
    }
}

fn last_decision(rules: &[DecideRule], request: &SourceRequest<'_>) -> Option<ScopeDecision> {
    let mut result = None;
    for rule in rules {
        let decision = if let DecideRuleTest::Sequence(inner) = &rule.test {
            last_decision(inner, request)
        } else {
            rule.test.holds(request).then_some(rule.decision)
        };
        result = decision.or(result);
    }
    result
}

impl SourceEvaluator for HeritrixScope {
    fn decide(&self, request: &SourceRequest<'_>) -> SourceVerdict {
        let fits = |regex: &Regex| regex.is_match(request.url).unwrap_or(false);
        let is_blocked = self.block.as_ref().is_some_and(fits)
            || self.allow.as_ref().is_some_and(|regex| !fits(regex));
        match last_decision(&self.rules, request) {
            Some(ScopeDecision::Accept) if !is_blocked => SourceVerdict::Allow,
            Some(ScopeDecision::Accept | ScopeDecision::Reject) | None => SourceVerdict::Refuse,
        }
    }
}

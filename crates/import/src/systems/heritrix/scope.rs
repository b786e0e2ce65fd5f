//! The rules of the scope as they are read.

use std::collections::BTreeSet;

use crawlgate_policy::UrlTarget;

use crate::input::{ImportError, ImportInput, MAX_RULE_FILE};
use crate::report::{MissingPart, PartId, Report};
use crate::xml::MAX_DEPTH;

use super::beans::{Bean, BeanValue, Beans, TextValue, ValueKind};
use super::seeds::Seeds;

/// A decision of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScopeDecision {
    Accept,
    Reject,
}

/// A rule of the scope.
#[derive(Clone, Debug)]
pub struct ScopeRule {
    /// The bean's id, or a name made of its class.
    pub name: String,
    pub about: Option<String>,
    /// The element of the bean.
    pub part: PartId,
    /// All parts of the rule, without those of nested rules.
    pub parts: Vec<PartId>,
    pub decision: ScopeDecision,
    pub test: ScopeTest,
    /// The test is to fail.
    pub negated: bool,
    /// It is part of the policy.
    pub acts: bool,
    /// The reason why it can never decide.
    pub dead: Option<String>,
    /// Parts of the rule that have an outcome of their own: items that are not converted.
    pub lines: Vec<(PartId, String)>,
}

/// A condition of a rule.
#[derive(Clone, Debug)]
pub enum ScopeTest {
    Always,
    /// One of the prefixes fits: lines of a SURT source in Heritrix's mixed form.
    Surts(Vec<String>),
    Regexes(PatternSet),
    MoreHops(u64),
    MoreSlashes(usize),
    /// A path segment or several are repeated more often than this, in a row.
    RepeatedPath(u64),
    /// The hops since the last link are few and lead to what belongs to a page.
    Embedded,
    /// The URL was found on a page.
    Via,
    Urls(Vec<String>),
    SchemeNotIn(Vec<String>),
    Sequence(Vec<ScopeRule>),
    Unknown {
        why: String,
        instead: Option<&'static str>,
    },
}

/// Expressions that must fit the whole URL.
#[derive(Clone, Debug, Default)]
pub struct PatternSet {
    pub patterns: Vec<String>,
    /// All must fit, not only one.
    pub all: bool,
}

/// The reader of the scope.
pub(super) struct ScopeReader<'a> {
    pub beans: &'a Beans,
    pub seeds: &'a Seeds,
    pub input: &'a ImportInput<'a>,
    pub report: &'a mut Report,
    /// The ids of the beans that are being read: a bean that contains itself is an error.
    pub open: Vec<String>,
    pub used: BTreeSet<PartId>,
}

impl ScopeReader<'_> {
    /// Reads a rule.
    pub(super) fn read(&mut self, bean: &Bean) -> Result<ScopeRule, ImportError> {
        let id = bean.id.clone().unwrap_or_default();
        let is_cycle = !id.is_empty() && self.open.contains(&id);
        if is_cycle || self.open.len() > MAX_DEPTH {
            let message = "a decide rule contains itself";
            let place = self.report.part(bean.part).map(|part| part.place.clone());
            let place = place.unwrap_or_else(|| crate::input::Place::start("crawler-beans.cxml"));
            return Err(ImportError::invalid(&place, message));
        }
        self.open.push(id);
        let rule = self.read_open(bean);
        self.open.pop();
        rule
    }

    fn read_open(&mut self, bean: &Bean) -> Result<ScopeRule, ImportError> {
        for part in self.beans.replaced_parts(bean) {
            self.report.dead(part, "an override replaces this value");
        }
        self.used.insert(bean.part);
        let mut rule = ScopeRule {
            name: rule_name(bean),
            about: bean.comment.clone(),
            part: bean.part,
            parts: bean.own_parts.clone(),
            decision: ScopeDecision::Accept,
            test: ScopeTest::Always,
            negated: false,
            acts: false,
            dead: None,
            lines: Vec::new(),
        };
        self.read_common(bean, &mut rule);
        let test = self.read_test(bean, &mut rule)?;
        if !matches!(rule.test, ScopeTest::Unknown { .. }) {
            rule.test = test;
        }
        self.close_properties(bean, &mut rule);
        Ok(rule)
    }

    /// Finds properties that were not read. Those of a rule that is not converted are not converted with it.
    fn close_properties(&mut self, bean: &Bean, rule: &mut ScopeRule) {
        for property in &bean.properties {
            let parts = property.value.all_parts();
            let is_read = parts.iter().any(|part| {
                self.report.is_set(*part)
                    || rule.parts.contains(part)
                    || rule.lines.iter().any(|(line, _)| line == part)
            });
            if matches!(rule.test, ScopeTest::Unknown { .. }) {
                let missing = parts.into_iter().filter(|part| !rule.parts.contains(part));
                rule.parts.extend(missing.collect::<Vec<_>>());
            } else if !is_read {
                for part in parts {
                    let why = format!("a property that is not known: {}", property.name);
                    let failure = failure_of(rule.decision);
                    self.report.not_converted(part, why, failure, None);
                }
            }
        }
    }

    /// Reads what all rules have: the decision, and that it is enabled.
    fn read_common(&mut self, bean: &Bean, rule: &mut ScopeRule) {
        // A rule of a class that is not known may refuse.
        if !bean.is_of_heritrix()
            || matches!(
                bean.class.as_str(),
                "RejectDecideRule"
                    | "TooManyHopsDecideRule"
                    | "TooManyPathSegmentsDecideRule"
                    | "SchemeNotInSetDecideRule"
                    | "PathologicalPathDecideRule"
            )
        {
            rule.decision = ScopeDecision::Reject;
        }
        if let Some(text) = self.take_text(bean, "decision", rule) {
            match text.as_str() {
                "ACCEPT" => rule.decision = ScopeDecision::Accept,
                "REJECT" => rule.decision = ScopeDecision::Reject,
                "NONE" => rule.dead = Some("its decision is NONE".to_owned()),
                other => rule.test = unknown(&format!("not a decision: {other}")),
            }
        }
        if let Some(text) = self.take_text(bean, "enabled", rule)
            && text.eq_ignore_ascii_case("false")
        {
            rule.dead = Some("it is disabled in the source".to_owned());
        }
        self.take(bean, "comment", rule);
    }

    fn read_test(&mut self, bean: &Bean, rule: &mut ScopeRule) -> Result<ScopeTest, ImportError> {
        if !bean.is_of_heritrix() {
            return Ok(unknown("a class that is not Heritrix's"));
        }
        Ok(match bean.class.as_str() {
            "AcceptDecideRule" | "RejectDecideRule" => ScopeTest::Always,
            "DecideRuleSequence" | "DecideRuleSequenceWithAMQPFeed" => {
                self.read_sequence(bean, rule)?
            }
            "SurtPrefixedDecideRule" => self.read_surts(bean, rule)?,
            "NotSurtPrefixedDecideRule" => {
                rule.negated = true;
                self.read_surts(bean, rule)?
            }
            "OnDomainsDecideRule"
            | "OnHostsDecideRule"
            | "NotOnDomainsDecideRule"
            | "NotOnHostsDecideRule" => {
                rule.negated = bean.class.starts_with("Not");
                let test = self.read_surts(bean, rule)?;
                reduce_to_hosts(test, bean.class.contains("Domains"))
            }
            "MatchesRegexDecideRule" | "NotMatchesRegexDecideRule" => {
                rule.negated = bean.class.starts_with("Not");
                let pattern = self.take_text(bean, "regex", rule);
                one_pattern(pattern.unwrap_or_else(|| ".".to_owned()))
            }
            "MatchesFilePatternDecideRule" | "NotMatchesFilePatternDecideRule" => {
                rule.negated = bean.class.starts_with("Not");
                self.read_file_pattern(bean, rule)
            }
            "MatchesListRegexDecideRule" | "NotMatchesListRegexDecideRule" => {
                rule.negated = bean.class.starts_with("Not");
                self.read_regex_list(bean, rule)
            }
            "TooManyHopsDecideRule" => {
                self.read_number(bean, "maxHops", 20, rule, ScopeTest::MoreHops)
            }
            "TooManyPathSegmentsDecideRule" => {
                self.read_number(bean, "maxPathDepth", 20, rule, |max| {
                    ScopeTest::MoreSlashes(usize::try_from(max).unwrap_or(usize::MAX))
                })
            }
            "PathologicalPathDecideRule" => {
                self.read_number(bean, "maxRepetitions", 2, rule, |max| match max {
                    0 => unknown("maxRepetitions is 0"),
                    max => ScopeTest::RepeatedPath(max),
                })
            }
            "TransclusionDecideRule" => self.read_transclusion(bean, rule),
            "SchemeNotInSetDecideRule" => self.read_schemes(bean, rule),
            "SeedAcceptDecideRule" => self.seed_urls(),
            "HasViaDecideRule" => ScopeTest::Via,
            "PrerequisiteAcceptDecideRule" => {
                rule.dead = Some(
                    "look-ups of names and robots.txt, which are prerequisites, are not subject to rules".to_owned(),
                );
                ScopeTest::Always
            }
            other => unknown_class(other),
        })
    }

    fn read_sequence(
        &mut self,
        bean: &Bean,
        rule: &mut ScopeRule,
    ) -> Result<ScopeTest, ImportError> {
        self.take(bean, "logToFile", rule);
        self.take(bean, "logExtraInfo", rule);
        let Some(value) = self.beans.property(bean, "rules") else {
            return Ok(ScopeTest::Sequence(Vec::new()));
        };
        rule.parts.extend(&value.parts);
        let ValueKind::List(items) = &value.kind else {
            return Ok(unknown("the rules are not a list"));
        };
        let mut rules = Vec::new();
        for item in items {
            rule.parts.extend(&item.parts);
            match self.beans.resolve(item) {
                Some(bean) => rules.push(self.read(bean)?),
                None => return Ok(unknown("it refers to a bean that does not exist")),
            }
        }
        Ok(ScopeTest::Sequence(rules))
    }

    /// Reads the prefixes of a rule: those of its source, and those that the seeds imply.
    fn read_surts(&mut self, bean: &Bean, rule: &mut ScopeRule) -> Result<ScopeTest, ImportError> {
        self.take(bean, "surtsDumpFile", rule);
        let via = self.take_text(bean, "alsoCheckVia", rule);
        let from_seeds = self.take_text(bean, "seedsAsSurtPrefixes", rule);
        let mut lines = Vec::new();
        for name in ["surtsSource", "surtsSourceFile"] {
            if let Some(value) = self.beans.property(bean, name) {
                match self.read_lines(value, rule)? {
                    Some(found) => lines.extend(found),
                    None => return Ok(unknown(&format!("the value of {name} is not known"))),
                }
            }
        }
        if from_seeds.is_none_or(|text| !text.eq_ignore_ascii_case("false")) {
            if self.seeds.is_unknown {
                let why = "the seeds are not in the file, and its scope comes from them";
                return Ok(ScopeTest::Unknown {
                    why: why.to_owned(),
                    instead: Some("give the seeds with --seeds FILE"),
                });
            }
            lines.extend(self.seeds.urls.iter().cloned());
        }
        let sign = if rule.decision == ScopeDecision::Accept {
            '+'
        } else {
            '-'
        };
        let directives = self.seeds.directives.iter();
        let directives = directives.filter_map(|line| line.strip_prefix(sign));
        lines.extend(directives.map(|line| format!("+{line}")));
        if via.is_some_and(|text| text.eq_ignore_ascii_case("true")) {
            let why = "alsoCheckVia looks at the SURT of the page that has the link";
            return Ok(ScopeTest::Unknown {
                why: why.to_owned(),
                instead: Some("a condition on `referer`"),
            });
        }
        Ok(ScopeTest::Surts(lines))
    }

    /// Returns the lines of a `ReadSource`, each a part.
    fn read_lines(
        &mut self,
        value: &BeanValue,
        rule: &mut ScopeRule,
    ) -> Result<Option<Vec<String>>, ImportError> {
        let lines = read_source_lines(self.beans, value, self.input, self.report, &mut rule.parts)?;
        let Some(lines) = lines else {
            return Ok(None);
        };
        rule.lines.extend(lines.iter().cloned());
        Ok(Some(lines.into_iter().map(|(_, text)| text).collect()))
    }

    fn read_regex_list(&mut self, bean: &Bean, rule: &mut ScopeRule) -> ScopeTest {
        self.take(bean, "timeoutPerRegexSeconds", rule);
        let any = self.take_text(bean, "listLogicalOr", rule);
        let all = any.is_some_and(|text| text.eq_ignore_ascii_case("false"));
        let mut set = PatternSet {
            patterns: Vec::new(),
            all,
        };
        let Some(value) = self.beans.property(bean, "regexList") else {
            return ScopeTest::Regexes(set);
        };
        rule.parts.extend(&value.parts);
        let items = match &value.kind {
            ValueKind::List(items) => items.as_slice(),
            ValueKind::Text(_) => std::slice::from_ref(value),
            ValueKind::Bean(_) | ValueKind::Reference(_) | ValueKind::Map(_) => {
                rule.parts.extend(value.all_parts());
                return unknown("the list of expressions is not in the file");
            }
        };
        for item in items {
            let Some(text) = item.text() else {
                rule.parts.extend(item.all_parts());
                return unknown("an item of the list is not an expression");
            };
            if let Some(why) = unresolved(text) {
                rule.parts.extend(&item.parts);
                return unknown(&why);
            }
            let pattern = text.text.trim().to_owned();
            rule.lines
                .extend(item.parts.iter().map(|part| (*part, pattern.clone())));
            set.patterns.push(pattern);
        }
        ScopeTest::Regexes(set)
    }

    fn read_file_pattern(&mut self, bean: &Bean, rule: &mut ScopeRule) -> ScopeTest {
        let preset = self.take_text(bean, "usePreset", rule);
        let own = self.take_text(bean, "regex", rule);
        let images = "bmp|gif|jpe?g|png|svg|tiff?";
        let audio = "aac|aiff?|m3u|m4a|midi?|mp2|mp3|mp4|mpa|ogg|ra|ram|wav|wma";
        let video = "asf|asx|avi|flv|mov|mp4|mpeg|mpg|qt|ram|rm|smil|wmv";
        let misc = "doc|pdf|ppt|swf";
        let extensions = match preset.as_deref().unwrap_or("ALL") {
            "CUSTOM" => return one_pattern(own.unwrap_or_else(|| ".".to_owned())),
            "IMAGES" => images.to_owned(),
            "AUDIO" => audio.to_owned(),
            "VIDEO" => video.to_owned(),
            "MISC" => misc.to_owned(),
            "ALL" => format!("{images}|{audio}|{video}|{misc}"),
            other => return unknown(&format!("not a preset: {other}")),
        };
        one_pattern(format!(".*(?i:\\.({extensions}))"))
    }

    fn read_transclusion(&mut self, bean: &Bean, rule: &mut ScopeRule) -> ScopeTest {
        let max = self.take_text(bean, "maxTransHops", rule);
        self.take(bean, "maxSpeculativeHops", rule);
        if max.is_some_and(|max| max == "0") {
            return unknown("with maxTransHops 0 it accepts the targets of redirects only");
        }
        ScopeTest::Embedded
    }

    fn read_schemes(&mut self, bean: &Bean, rule: &mut ScopeRule) -> ScopeTest {
        let Some(value) = self.beans.property(bean, "schemes") else {
            rule.dead = Some("only URLs of http and https are requested".to_owned());
            return ScopeTest::Always;
        };
        rule.parts.extend(value.all_parts());
        let ValueKind::List(items) = &value.kind else {
            return unknown("the schemes are not a list");
        };
        let schemes = items.iter().filter_map(BeanValue::text);
        let schemes: Vec<String> = schemes.map(|text| text.text.trim().to_owned()).collect();
        if ["http", "https"]
            .iter()
            .all(|scheme| schemes.iter().any(|known| known == scheme))
        {
            rule.dead = Some("only URLs of http and https are requested".to_owned());
        }
        ScopeTest::SchemeNotIn(schemes)
    }

    fn seed_urls(&self) -> ScopeTest {
        if self.seeds.is_unknown {
            return ScopeTest::Unknown {
                why: "the seeds are not in the file".to_owned(),
                instead: Some("give the seeds with --seeds FILE"),
            };
        }
        let urls = self.seeds.urls.iter().filter_map(|url| {
            let url = match url.contains("://") {
                true => url.clone(),
                false => format!("http://{url}"),
            };
            let url = UrlTarget::parse(&url).ok()?;
            Some(url.as_str().to_owned())
        });
        ScopeTest::Urls(urls.collect())
    }

    fn read_number(
        &mut self,
        bean: &Bean,
        name: &str,
        default: u64,
        rule: &mut ScopeRule,
        test: impl Fn(u64) -> ScopeTest,
    ) -> ScopeTest {
        let Some(text) = self.take_text(bean, name, rule) else {
            return test(default);
        };
        match text.parse() {
            Ok(number) => test(number),
            Err(_) => unknown(&format!("{name} is not a number: {text}")),
        }
    }

    /// Counts the parts of a property as parts of the rule.
    fn take(&mut self, bean: &Bean, name: &str, rule: &mut ScopeRule) {
        if let Some(value) = self.beans.property(bean, name) {
            rule.parts.extend(value.all_parts());
        }
    }

    /// Returns a property as text. One with a variable that is not known makes the rule unknown.
    fn take_text(&mut self, bean: &Bean, name: &str, rule: &mut ScopeRule) -> Option<String> {
        self.take(bean, name, rule);
        let text = self.beans.property(bean, name)?.text()?;
        if let Some(why) = unresolved(text) {
            rule.test = unknown(&why);
        }
        Some(text.text.trim().to_owned())
    }
}

/// Reads the lines of a `ConfigString` or `ConfigFile`; `None` if its text is not known.
pub(super) fn read_source_lines(
    beans: &Beans,
    value: &BeanValue,
    input: &ImportInput<'_>,
    report: &mut Report,
    parts: &mut Vec<PartId>,
) -> Result<Option<Vec<(PartId, String)>>, ImportError> {
    parts.extend(&value.parts);
    let Some(bean) = beans.resolve(value) else {
        // A path as text is converted to a file by Heritrix.
        let Some(text) = value.text() else {
            parts.extend(value.all_parts());
            return Ok(None);
        };
        return read_file_lines(text, input, report);
    };
    let replaced = beans.replaced_parts(bean);
    for part in bean.all_parts() {
        if replaced.contains(&part) {
            report.dead(part, "an override replaces this value");
        } else {
            parts.push(part);
        }
    }
    if let Some(value) = beans.property(bean, "value") {
        parts.extend(&value.parts);
        let Some(text) = value.text() else {
            return Ok(None);
        };
        if text.unresolved().is_some() {
            return Ok(None);
        }
        let lines = text.lines().filter(|(_, line)| !line.starts_with('#'));
        let lines = lines.map(|(place, line)| (report.add(place, line), line.to_owned()));
        return Ok(Some(lines.collect()));
    }
    match beans.property(bean, "path").and_then(BeanValue::text) {
        Some(path) => read_file_lines(path, input, report),
        None => Ok(None),
    }
}

fn read_file_lines(
    path: &TextValue,
    input: &ImportInput<'_>,
    report: &mut Report,
) -> Result<Option<Vec<(PartId, String)>>, ImportError> {
    let path = path.text.trim();
    if path.contains("${") || path.is_empty() {
        return Ok(None);
    }
    let source = input.read_text(path, MAX_RULE_FILE)?;
    let lines = source.lines().map(|(place, line)| (place, line.trim()));
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let lines = lines.map(|(place, line)| (report.add(place, line), line.to_owned()));
    Ok(Some(lines.collect()))
}

fn unresolved(text: &TextValue) -> Option<String> {
    let name = text.unresolved()?;
    Some(format!(
        "the value of {name} is not known: give it with --var"
    ))
}

pub(super) fn unknown(why: &str) -> ScopeTest {
    ScopeTest::Unknown {
        why: why.to_owned(),
        instead: None,
    }
}

fn one_pattern(pattern: String) -> ScopeTest {
    ScopeTest::Regexes(PatternSet {
        patterns: vec![pattern],
        all: false,
    })
}

fn unknown_class(class: &str) -> ScopeTest {
    let (why, instead) = match class {
        "HopsPathMatchesRegexDecideRule" => (
            "the proxy does not know by which kinds of links a URL was found",
            Some("conditions on `depth`, `dest` and `referer`"),
        ),
        "ScriptedDecideRule" | "ExpressionDecideRule" => ("a script decides", None),
        "ViaSurtPrefixedDecideRule" => (
            "it looks at the SURT of the page that has the link",
            Some("a condition on `referer`"),
        ),
        "AddRedirectFromRootServerToScope" => ("it makes the targets of redirects seeds", None),
        "SourceSeedDecideRule" => (
            "the proxy does not know from which seed a URL was found",
            None,
        ),
        "HopCrossesAssignmentLevelDomainDecideRule" => (
            "it compares the domain with that of the page that has the link",
            Some("a condition on `referer`"),
        ),
        "IpAddressSetDecideRule" => (
            "an address is known only after the rules of the URL were decided",
            Some("forbid: { address: … }, which no later rule undoes"),
        ),
        "ExternalGeoLocationDecideRule" => ("countries of addresses are not known", None),
        class
            if class.contains("Content")
                || class.contains("Resource")
                || class.contains("Status") =>
        {
            (
                "it looks at the response, which the scope does not know yet",
                Some("forbid: { content_type: … }, { size: … } or { status: … }"),
            )
        }
        _ => ("not known to this importer", None),
    };
    ScopeTest::Unknown {
        why: why.to_owned(),
        instead,
    }
}

/// Reduces each prefix to its host, or to its domain without `www`.
fn reduce_to_hosts(test: ScopeTest, to_domains: bool) -> ScopeTest {
    let ScopeTest::Surts(lines) = test else {
        return test;
    };
    let lines = lines.iter().filter_map(|line| {
        let host = super::surts::host_prefix(super::surts::SurtLine::read(line)?)?;
        Some(match to_domains {
            true => format!("+http://({}", host.strip_suffix("www,").unwrap_or(&host)),
            false => format!("+http://({host})"),
        })
    });
    ScopeTest::Surts(lines.collect())
}

/// Makes a name of a class: `TooManyHopsDecideRule` is `too-many-hops`.
fn rule_name(bean: &Bean) -> String {
    if let Some(id) = &bean.id {
        return id.clone();
    }
    let class = bean.class.strip_suffix("DecideRule").unwrap_or(&bean.class);
    let mut name = String::new();
    for c in class.chars() {
        if c.is_ascii_uppercase() && !name.is_empty() {
            name.push('-');
        }
        name.push(c.to_ascii_lowercase());
    }
    name
}

/// Returns the way in which a rule fails that is not converted.
pub(super) fn failure_of(decision: ScopeDecision) -> MissingPart {
    match decision {
        ScopeDecision::Accept => MissingPart::KeepsOut,
        ScopeDecision::Reject => MissingPart::LetsThrough,
    }
}

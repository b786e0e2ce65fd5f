//! The robots.txt of a host, for one product token.
//!
//! The host is given as `HOST=FILE`, possibly with scheme or port, the token as `--var agent=NAME`.

use crawlgate_policy::UrlTarget;

use crate::conversion::Conversion;
use crate::draft::{
    ConditionDraft, GroupDraft, GuardDraft, PolicyDraft, RuleDraft, RuleIds, RuleItem, to_slug,
};
use crate::input::{ImportError, ImportInput, Place};
use crate::reference::robots::RobotsEvaluator;
use crate::report::{AssumptionEffect, MissingPart, PartId, PartNeed, PartTarget, Report};
use crate::settings::SettingsDraft;

/// The maximum size of a robots.txt, in bytes.
const MAX_ROBOTS: usize = 512 << 10;

/// A line of a robots.txt.
#[derive(Clone, Debug)]
pub struct RobotsField {
    pub part: PartId,
    pub line: u32,
    /// The field in lower case.
    pub field: String,
    pub value: String,
}

/// A rule of the group that applies.
#[derive(Clone, Debug)]
struct PathRule {
    part: PartId,
    line: u32,
    allows: bool,
    pattern: RobotsPathPattern,
}

/// A pattern in normal form: escapes in upper case, without those of letters and digits.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RobotsPathPattern {
    text: String,
    is_anchored: bool,
}

/// The host that a file belongs to.
struct RobotsSite {
    scheme: Option<String>,
    authority: String,
}

pub(crate) fn recognize(beginning: &[u8]) -> bool {
    let text = String::from_utf8_lossy(beginning).to_ascii_lowercase();
    text.lines()
        .any(|line| line.trim_start().starts_with("user-agent:"))
}

pub(crate) fn convert(input: &ImportInput<'_>) -> Result<Conversion, ImportError> {
    let Some(path) = input.paths.first() else {
        return Err(ImportError::invalid(&Place::start("-"), "no file is named"));
    };
    let start = Place::start(&path.path);
    let host = path.crawler.as_deref().or_else(|| input.variable("host"));
    let Some(site) = host.and_then(RobotsSite::parse) else {
        let message = "the host is missing: write HOST=FILE, as in www.example.com=robots.txt";
        return Err(ImportError::invalid(&start, message));
    };
    let mut report = Report::default();
    let source = input.read_text(&path.path, MAX_ROBOTS)?;
    if is_page(&source.text) {
        let message = "an HTML page, and not a robots.txt: hosts without one often answer so. Without a robots.txt everything is allowed";
        return Err(ImportError::invalid(&start, message));
    }
    let lines: Vec<RobotsField> = source
        .lines()
        .filter_map(|(place, text)| read_line(&place, text, &mut report))
        .collect();
    let agent = input.variable("agent").unwrap_or("*");
    let groups = applying_lines(&lines, agent);
    close_others(&lines, &groups, agent, &mut report);
    let mut ids = RuleIds::default();
    let id = ids.next(&format!("robots-{}", site.authority));
    let mut import = RobotsImport {
        report,
        ids,
        group: id,
    };
    let group = import.group(&groups, &site);
    let name = input
        .name
        .clone()
        .unwrap_or_else(|| format!("robots-{}", site.authority));
    let mut policy = PolicyDraft {
        name: to_slug(&name),
        ..PolicyDraft::default()
    };
    policy.notes.push(format!(
        "The robots.txt of {}, as it was read for `{agent}`. The proxy obeys each host's robots.txt anyway, unless \
         `robots.obey` is false:\nthis policy keeps one state of it.",
        site.authority
    ));
    policy.options.set("disposition", "allow");
    policy
        .rules
        .push(RuleDraft::group(import.group.clone(), group).into());
    policy
        .examples
        .push((format!("{}/", site.origin()), serde_json::Map::new()));
    policy
        .examples
        .push(("http://other.example/".to_owned(), serde_json::Map::new()));
    let evaluator = RobotsEvaluator::new(&site.origin(), site.scheme.is_some(), &groups);
    Ok(Conversion {
        policy,
        report: import.report,
        settings: SettingsDraft::default(),
        evaluator: Box::new(evaluator),
    })
}

impl RobotsSite {
    fn parse(text: &str) -> Option<Self> {
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme @ ("http" | "https"), rest)) => (Some(scheme.to_owned()), rest),
            Some(_) => return None,
            None => (None, text),
        };
        let authority = rest.trim_end_matches('/').to_ascii_lowercase();
        let is_host = !authority.is_empty()
            && authority
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | ':'));
        let is_url = UrlTarget::parse(&format!("http://{authority}/")).is_ok();
        (is_host && is_url).then_some(Self { scheme, authority })
    }

    fn origin(&self) -> String {
        let scheme = self.scheme.as_deref().unwrap_or("http");
        format!("{scheme}://{}", self.authority)
    }

    fn condition(&self) -> ConditionDraft {
        let host = ConditionDraft::is("authority", [self.authority.as_str()]);
        match &self.scheme {
            Some(scheme) => {
                ConditionDraft::all(vec![ConditionDraft::is("scheme", [scheme.as_str()]), host])
            }
            None => host,
        }
    }
}

/// Returns `true` for HTML, which has no line of a robots.txt, or only in the text of a page.
fn is_page(text: &str) -> bool {
    let text = text.trim_start().to_ascii_lowercase();
    let has_tag = ["<!doctype", "<html", "<head", "<body"]
        .iter()
        .any(|tag| text.contains(tag));
    text.starts_with('<') && (has_tag || !recognize(text.as_bytes()))
}

fn read_line(place: &Place, text: &str, report: &mut Report) -> Option<RobotsField> {
    let content = text.split('#').next().unwrap_or_default().trim();
    if content.is_empty() {
        return None;
    }
    let part = report.add(place.clone(), text.trim());
    let Some((field, value)) = content.split_once(':') else {
        report.dead(part, "not a line of a robots.txt: it has no colon");
        return None;
    };
    Some(RobotsField {
        part,
        line: place.line,
        field: field.trim().to_ascii_lowercase(),
        value: value.trim().to_owned(),
    })
}

/// Returns the lines of the groups that apply to an agent: those that name it, or else those of `*`.
fn applying_lines(lines: &[RobotsField], agent: &str) -> Vec<RobotsField> {
    let own = lines_of(lines, agent);
    if own.is_empty() {
        lines_of(lines, "*")
    } else {
        own
    }
}

fn lines_of(lines: &[RobotsField], agent: &str) -> Vec<RobotsField> {
    let mut found = Vec::new();
    let mut applies = false;
    let mut in_agents = false;
    for line in lines {
        if line.field == "user-agent" {
            let fits = product(&line.value).eq_ignore_ascii_case(product(agent));
            applies = fits || in_agents && applies;
            in_agents = true;
            if fits {
                found.push(line.clone());
            }
        } else if is_of_group(&line.field) {
            in_agents = false;
            if applies {
                found.push(line.clone());
            }
        }
    }
    found
}

/// Returns `true` for fields that belong to a group and end its list of agents.
fn is_of_group(field: &str) -> bool {
    matches!(
        field,
        "allow"
            | "disallow"
            | "crawl-delay"
            | "request-rate"
            | "noindex"
            | "content-usage"
            | "content-signal"
    )
}

/// Returns the product token of a user agent: what follows it is a version.
fn product(agent: &str) -> &str {
    let end = agent.find(|c: char| !(c.is_ascii_alphabetic() || matches!(c, '-' | '_' | '*')));
    end.and_then(|end| agent.get(..end)).unwrap_or(agent)
}

fn close_others(lines: &[RobotsField], applying: &[RobotsField], agent: &str, report: &mut Report) {
    for line in lines {
        if applying.iter().any(|known| known.part == line.part) {
            continue;
        }
        match line.field.as_str() {
            "sitemap" | "host" => {
                report.unrelated(line.part, "not about which URLs may be requested")
            }
            "clean-param" => report.not_converted(
                line.part,
                "parameters that do not change a page",
                MissingPart::OtherSetting,
                Some("strip_params"),
            ),
            field if field == "user-agent" || is_of_group(field) => {
                let why = format!("it does not apply to `{agent}`");
                report.unrelated(line.part, why);
            }
            _ => report.unrelated(line.part, "not a field of a robots.txt"),
        }
    }
}

struct RobotsImport {
    report: Report,
    ids: RuleIds,
    group: String,
}

impl RobotsImport {
    fn group(&mut self, lines: &[RobotsField], site: &RobotsSite) -> GroupDraft {
        let mut rules = Vec::new();
        let mut delay: Option<f64> = None;
        for line in lines {
            match line.field.as_str() {
                "user-agent" => self
                    .report
                    .converted(line.part, &self.group, PartNeed::Host),
                "allow" | "disallow" => rules.extend(self.read_rule(line)),
                "crawl-delay" => {
                    if let Some(seconds) = self.read_delay(line) {
                        delay = Some(delay.map_or(seconds, |known| known.max(seconds)));
                    }
                }
                "request-rate" => {
                    self.not_converted(line, "politeness: { delay: … }", MissingPart::OtherSetting)
                }
                "content-usage" | "content-signal" => {
                    self.not_converted(line, "robots: { usage: [ … ] }", MissingPart::LetsThrough);
                }
                _ => self.not_converted(line, "noindex: reject", MissingPart::OtherSetting),
            }
        }
        let mut group = GroupDraft {
            guard: GuardDraft::When(site.condition()),
            first: true,
            rules: self.convert_rules(rules),
            ..GroupDraft::default()
        };
        if let Some(delay) = delay {
            let ms = (delay * 1_000.0).round();
            let text = if ms % 1_000.0 == 0.0 {
                format!("{}s", ms / 1_000.0)
            } else {
                format!("{ms}ms")
            };
            group.set.set("politeness.delay", text);
        }
        group
    }

    fn not_converted(&mut self, line: &RobotsField, instead: &str, failure: MissingPart) {
        let why = format!("{} has no counterpart in a rule", line.field);
        self.report
            .not_converted(line.part, why, failure, Some(instead));
    }

    fn read_delay(&mut self, line: &RobotsField) -> Option<f64> {
        let seconds = line.value.parse::<f64>().ok();
        let seconds = seconds.filter(|seconds| (0.0..=86_400.0).contains(seconds));
        match seconds {
            Some(_) => self
                .report
                .converted(line.part, &self.group, PartNeed::Host),
            None => self
                .report
                .dead(line.part, "not a number of seconds up to a day"),
        }
        seconds
    }

    fn read_rule(&mut self, line: &RobotsField) -> Option<PathRule> {
        if line.value.is_empty() {
            self.report
                .unrelated(line.part, "an empty pattern fits no URL");
            return None;
        }
        let Some(pattern) = RobotsPathPattern::parse(&line.value) else {
            self.report.dead(line.part, "a pattern begins with / or *");
            return None;
        };
        Some(PathRule {
            part: line.part,
            line: line.line,
            allows: line.field == "allow",
            pattern,
        })
    }

    /// Sorts the rules so that the first one that fits decides: the longest, and Allow before Disallow.
    fn convert_rules(&mut self, mut rules: Vec<PathRule>) -> Vec<RuleItem> {
        rules.sort_by_key(|rule| {
            (
                std::cmp::Reverse(rule.pattern.octets()),
                !rule.allows,
                rule.line,
            )
        });
        let mut items = Vec::new();
        let forbids_itself = rules
            .iter()
            .any(|rule| !rule.allows && rule.pattern.may_fit_robots_txt());
        if forbids_itself {
            let condition = ConditionDraft::test("path", "exact", ["/robots.txt"]);
            let rule = RuleDraft::when(self.ids.next("robots-txt"), condition, "allow");
            items.push(
                rule.with_about(Some("robots.txt itself is always allowed".to_owned()))
                    .into(),
            );
        }
        let mut known: Vec<&RobotsPathPattern> = Vec::new();
        for rule in &rules {
            if known.contains(&&rule.pattern) {
                let why = "another line with this pattern decides";
                self.report.dead(rule.part, why);
                items.push(RuleItem::Comment(format!(
                    "dead: line-{}: {why}",
                    rule.line
                )));
                continue;
            }
            known.push(&rule.pattern);
            let word = if rule.allows { "allow" } else { "disallow" };
            let id = self.ids.next(&format!("line-{}", rule.line));
            match rule.pattern.condition() {
                Pattern::Exact(_) => self.report.converted(rule.part, &id, PartNeed::Url),
                Pattern::Assumed(_) => {
                    let target = PartTarget {
                        name: id.clone(),
                        need: PartNeed::Url,
                    };
                    let assumption = "URLs escape the same characters as the line";
                    self.report
                        .assumed(rule.part, target, assumption, AssumptionEffect::Either);
                }
            }
            let (Pattern::Exact(condition) | Pattern::Assumed(condition)) =
                rule.pattern.condition();
            items.push(RuleDraft::when(id, condition, word).into());
        }
        items
    }
}

/// A pattern as a condition.
enum Pattern {
    Exact(ConditionDraft),
    Assumed(ConditionDraft),
}

impl RobotsPathPattern {
    fn parse(text: &str) -> Option<Self> {
        if !text.starts_with(['/', '*']) {
            return None;
        }
        let (text, is_anchored) = match text.strip_suffix('$') {
            Some(text) => (text, true),
            None => (text, false),
        };
        Some(Self {
            text: normal_form(text),
            is_anchored,
        })
    }

    /// The number of octets, by which the longest pattern is found.
    fn octets(&self) -> usize {
        self.text.len() + usize::from(self.is_anchored)
    }

    fn may_fit_robots_txt(&self) -> bool {
        let literal = self.text.split('*').next().unwrap_or_default();
        "/robots.txt".starts_with(literal) || literal.starts_with("/robots.txt?")
    }

    fn condition(&self) -> Pattern {
        let field = "path_and_query";
        let text = if self.is_anchored {
            self.text.as_str()
        } else {
            self.text.trim_end_matches('*')
        };
        if text.is_empty() || text == "/" && !self.is_anchored {
            return Pattern::Exact(ConditionDraft::Always);
        }
        // An escape may be written in small letters in a URL.
        if text.contains(['%', '\\']) {
            let condition = ConditionDraft::test(field, "regex", [self.to_regex(text)]);
            return if text.contains('\\') {
                Pattern::Assumed(condition)
            } else {
                Pattern::Exact(condition)
            };
        }
        Pattern::Exact(match (text.contains('*'), self.is_anchored) {
            (false, false) => ConditionDraft::is(field, [text]),
            (false, true) => ConditionDraft::test(field, "exact", [text]),
            (true, false) => ConditionDraft::test(field, "glob", [format!("{text}*")]),
            (true, true) => ConditionDraft::test(field, "glob", [text]),
        })
    }

    fn to_regex(&self, text: &str) -> String {
        let mut regex = String::from("^");
        let mut rest = text.chars();
        while let Some(c) = rest.next() {
            match c {
                '*' => regex.push_str(".*"),
                '%' => {
                    let digits: String = rest.by_ref().take(2).collect();
                    regex.push_str(&format!("(?i:%{digits})"));
                }
                c if c.is_alphanumeric()
                    || matches!(c, '/' | '-' | '_' | '=' | '&' | '~' | ',' | ':') =>
                {
                    regex.push(c)
                }
                c => {
                    regex.push('\\');
                    regex.push(c);
                }
            }
        }
        if self.is_anchored {
            regex.push('$');
        }
        regex
    }
}

/// Returns the form that is compared: escapes of unreserved characters decoded, others in upper case, and
/// characters beyond ASCII escaped.
fn normal_form(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = String::new();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let escape = bytes.get(at + 1..at + 3).filter(|_| *byte == b'%');
        let digits = escape.and_then(|digits| std::str::from_utf8(digits).ok());
        let value = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match value {
            Some(value) => {
                push_byte(&mut out, value, true);
                at += 3;
            }
            None => {
                push_byte(&mut out, *byte, false);
                at += 1;
            }
        }
    }
    out
}

fn push_byte(out: &mut String, byte: u8, was_escaped: bool) {
    let is_unreserved = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
    let is_literal =
        byte.is_ascii_graphic() && !was_escaped && !matches!(byte, b'"' | b'<' | b'>' | b'%');
    if is_unreserved || is_literal {
        out.push(char::from(byte));
    } else {
        out.push_str(&format!("%{byte:02X}"));
    }
}

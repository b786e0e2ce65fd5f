//! The rules of a robots.txt as a table, and the one that decides a URL (RFC 9309 section 2.2.2).
//!
//! The rules of each section stand under their literal beginning, sorted; each beginning knows the next shorter one
//! that it starts with. A look-up is one binary search and a walk along beginnings that the path really has.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::ops::Range;
use std::time::Duration;

use super::escape::{decode_query_delimiters, normal_form};
use super::file::RobotsFile;
use super::pattern::{PatternEnd, RobotsPattern, UrlForm, matches_rest};
use super::request_rate::RequestRate;

/// What a rule says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RobotsAccess {
    /// It may be fetched.
    Allow,
    /// It may not.
    Disallow,
}

/// What a robots.txt says of one URL to one crawler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RobotsDecision<'a> {
    /// Whether it may be fetched.
    pub access: RobotsAccess,
    /// The line that decided; none if no rule matches, or the URL is `/robots.txt`.
    pub deciding_line: Option<DecidingLine<'a>>,
    /// The user agent whose group was asked, as the file writes it; none if no group is for the crawler.
    pub group: Option<Cow<'a, str>>,
}

/// The line that decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecidingLine<'a> {
    /// Its number, from 1.
    pub line: u32,
    /// The line, without white space around it and without a comment; bytes that are not UTF-8 are replaced.
    pub text: Cow<'a, str>,
}

impl RobotsFile {
    /// Judges a URL for a crawler.
    ///
    /// `agent` is the crawler's product token, compared without regard to case; `path_and_query` starts with `/`.
    /// The groups for the token count as one; without any, those for `*`. The longest pattern wins, Allow among
    /// equals, and the first line among equal rules. `/robots.txt` is always allowed.
    pub fn decide(&self, agent: &str, path_and_query: &str) -> RobotsDecision<'_> {
        let group = self.table.group(&self.text, agent);
        let url = Some(path_and_query).filter(|url| !is_robots_txt(url));
        let rule = url.and_then(|url| self.table.best_match(group, url.as_bytes()));
        let text =
            |span: TextSpan| String::from_utf8_lossy(span.slice(&self.text).unwrap_or_default());
        RobotsDecision {
            access: rule.map_or(RobotsAccess::Allow, |rule| rule.access),
            deciding_line: rule.map(|rule| DecidingLine {
                line: rule.line,
                text: text(rule.source),
            }),
            group: group.first().map(|agent| text(agent.token)),
        }
    }

    /// The Crawl-delay of a crawler's group: the longest if there are several.
    pub fn crawl_delay(&self, agent: &str) -> Option<Duration> {
        let group = self.table.group(&self.text, agent);
        group
            .iter()
            .filter_map(|agent| self.table.section(agent)?.delay)
            .max()
    }

    /// The Request-rate lines of a crawler's group.
    pub(super) fn request_rates(&self, agent: &str) -> impl Iterator<Item = RequestRate> {
        let sections = self
            .table
            .group(&self.text, agent)
            .iter()
            .map(|agent| agent.section);
        let rates = &*self.table.rates;
        sections.flat_map(move |section| {
            let start = rates.partition_point(|(of, _)| *of < section);
            let rest = rates.get(start..).unwrap_or_default();
            rest.iter()
                .take_while(move |(of, _)| *of == section)
                .map(|(_, rate)| *rate)
        })
    }
}

/// Whether a path and query is `/robots.txt`, with whatever query.
pub fn is_robots_txt(path_and_query: &str) -> bool {
    path_and_query
        .strip_prefix("/robots.txt")
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('?'))
}

/// Where something stands in a text. Files are below 4 GiB, cut long before that.
#[derive(Clone, Copy, Debug)]
pub(super) struct TextSpan {
    start: u32,
    length: u32,
}

impl TextSpan {
    pub(super) fn new(range: &Range<usize>) -> Self {
        let short = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Self {
            start: short(range.start),
            length: short(range.len()),
        }
    }

    pub(super) fn is_empty(self) -> bool {
        self.length == 0
    }

    pub(super) fn slice(self, text: &[u8]) -> Option<&[u8]> {
        let start = self.start as usize;
        text.get(start..start + self.length as usize)
    }
}

/// One Allow or Disallow.
#[derive(Debug)]
struct RobotsRule {
    line: u32,
    source: TextSpan,
    /// In the table's patterns.
    pattern: TextSpan,
    prefix: u32,
    octets: u32,
    access: RobotsAccess,
    end: PatternEnd,
    form: UrlForm,
}

/// Rules with the same literal beginning; the longest comes first, Allow among equals.
#[derive(Debug)]
struct PrefixGroup {
    prefix: TextSpan,
    rules: TextSpan,
    /// The next shorter beginning of the section that this one starts with.
    shorter: Option<u32>,
}

/// What follows a list of user agents, up to the next list.
#[derive(Debug, Default)]
struct RuleSection {
    prefix_groups: Range<u32>,
    delay: Option<Duration>,
}

/// A user-agent line.
#[derive(Clone, Copy, Debug)]
pub(super) struct AgentLine {
    pub(super) token: TextSpan,
    pub(super) section: u32,
}

/// The user-agent lines with a token, of those that [`sort_agents`] made.
pub(super) fn agents_with_token<'a>(
    agents: &'a [AgentLine],
    text: &[u8],
    token: &[u8],
) -> &'a [AgentLine] {
    let have = |agent: &AgentLine| agent.token.slice(text).unwrap_or_default();
    let start = agents.partition_point(|a| lowercase_bytes(have(a)).lt(lowercase_bytes(token)));
    let rest = agents.get(start..).unwrap_or_default();
    let length = rest.partition_point(|a| have(a).eq_ignore_ascii_case(token));
    rest.get(..length).unwrap_or_default()
}

/// By token without regard to case, then in the order of the file; each once a section.
pub(super) fn sort_agents(mut agents: Vec<AgentLine>, text: &[u8]) -> Box<[AgentLine]> {
    let token = |agent: &AgentLine| agent.token.slice(text).unwrap_or_default();
    agents.sort_by(|a, b| lowercase_bytes(token(a)).cmp(lowercase_bytes(token(b))));
    agents.dedup_by(|a, b| a.section == b.section && token(a).eq_ignore_ascii_case(token(b)));
    agents.into()
}

/// All that rules are looked up in.
#[derive(Debug, Default)]
pub(super) struct RuleTable {
    patterns: Box<[u8]>,
    rules: Box<[RobotsRule]>,
    prefix_groups: Box<[PrefixGroup]>,
    sections: Box<[RuleSection]>,
    /// Sorted by token without regard to case, then in the order of the file.
    agents: Box<[AgentLine]>,
    /// The Request-rate lines, each with its section, in the order of the sections.
    pub(super) rates: Box<[(u32, RequestRate)]>,
}

impl RuleTable {
    /// The user-agent lines for a crawler, else those for everybody.
    fn group(&self, text: &[u8], agent: &str) -> &[AgentLine] {
        match agents_with_token(&self.agents, text, agent.as_bytes()) {
            [] => agents_with_token(&self.agents, text, b"*"),
            own => own,
        }
    }

    fn section(&self, agent: &AgentLine) -> Option<&RuleSection> {
        self.sections.get(agent.section as usize)
    }

    fn best_match(&self, group: &[AgentLine], path_and_query: &[u8]) -> Option<&RobotsRule> {
        if group.is_empty() {
            return None;
        }
        let written = normal_form(path_and_query);
        let url = RuleUrlForms {
            query_decoded: decode_query_delimiters(&written),
            normal: &written,
        };
        let mut best = None;
        for section in group.iter().filter_map(|agent| self.section(agent)) {
            best = self.best_in_section(best, section, &url);
        }
        best
    }

    /// The best of what is found so far and of a section.
    fn best_in_section<'a>(
        &'a self,
        mut best: Option<&'a RobotsRule>,
        section: &RuleSection,
        url: &RuleUrlForms<'_>,
    ) -> Option<&'a RobotsRule> {
        let mut at = self.last_prefix_group(section, url);
        while let Some(beginning) = at {
            if url.normal.starts_with(self.prefix(beginning)) {
                best = self.best_in_prefix_group(best, beginning, url);
            }
            at = beginning
                .shorter
                .and_then(|n| self.prefix_groups.get(n as usize));
        }
        best
    }

    /// The last beginning that does not sort behind the path: itself or one that it starts with begins the path, if
    /// any does.
    fn last_prefix_group(
        &self,
        section: &RuleSection,
        url: &RuleUrlForms<'_>,
    ) -> Option<&PrefixGroup> {
        let range = section.prefix_groups.start as usize..section.prefix_groups.end as usize;
        let all = self.prefix_groups.get(range)?;
        let behind = all.partition_point(|b| self.prefix(b) <= url.normal);
        all.get(behind.checked_sub(1)?)
    }

    fn best_in_prefix_group<'a>(
        &'a self,
        best: Option<&'a RobotsRule>,
        at: &PrefixGroup,
        url: &RuleUrlForms<'_>,
    ) -> Option<&'a RobotsRule> {
        let range = at.rules.start as usize..(at.rules.start + at.rules.length) as usize;
        let rules = self.rules.get(range).unwrap_or_default();
        let longer = |rule: &&RobotsRule| best.is_none_or(|best| rule.rank() > best.rank());
        rules
            .iter()
            .take_while(longer)
            .find(|rule| self.matches(rule, url))
            .or(best)
    }

    fn matches(&self, rule: &RobotsRule, url: &RuleUrlForms<'_>) -> bool {
        let text: &[u8] = match rule.form {
            UrlForm::Normal => url.normal,
            UrlForm::QueryDecoded => &url.query_decoded,
        };
        let prefix = rule.prefix as usize;
        let pattern = rule
            .pattern
            .slice(&self.patterns)
            .and_then(|p| p.get(prefix..));
        let (Some(pattern), Some(text)) = (pattern, text.get(prefix..)) else {
            return false;
        };
        matches_rest(pattern, rule.end, text)
    }

    fn prefix(&self, beginning: &PrefixGroup) -> &[u8] {
        beginning.prefix.slice(&self.patterns).unwrap_or_default()
    }

    pub(super) fn memory_size(&self) -> usize {
        self.patterns.len()
            + size_of_val(&*self.rules)
            + size_of_val(&*self.prefix_groups)
            + size_of_val(&*self.sections)
            + size_of_val(&*self.agents)
            + size_of_val(&*self.rates)
    }
}

/// A URL in the two forms that patterns look at.
struct RuleUrlForms<'a> {
    normal: &'a [u8],
    query_decoded: Cow<'a, [u8]>,
}

impl RobotsRule {
    /// What decides between two rules that match: octets, then Allow, then the earlier line.
    fn rank(&self) -> (u32, Reverse<RobotsAccess>, Reverse<u32>) {
        (self.octets, Reverse(self.access), Reverse(self.line))
    }
}

/// Collects the lines of a file, then makes the table.
#[derive(Debug, Default)]
pub(super) struct RuleTableBuilder {
    patterns: Vec<u8>,
    /// Rules, each with its section.
    rules: Vec<(u32, RobotsRule)>,
    delays: Vec<Option<Duration>>,
    agents: Vec<AgentLine>,
    rates: Vec<(u32, RequestRate)>,
    agent_list: AgentList,
}

/// What the next user-agent line does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum AgentList {
    /// It begins a list.
    #[default]
    Closed,
    /// It continues the list.
    Open,
}

impl RuleTableBuilder {
    /// A user-agent line; one without a token continues or begins a list that nobody is on.
    pub(super) fn add_agent(&mut self, token: TextSpan) {
        if self.agent_list == AgentList::Closed {
            self.delays.push(None);
            self.agent_list = AgentList::Open;
        }
        if !token.is_empty() {
            self.agents.push(AgentLine {
                token,
                section: self.current_section(),
            });
        }
    }

    /// An Allow or Disallow line; it ends the list of user agents. Before the first list it is ignored.
    pub(super) fn add_rule(
        &mut self,
        line: u32,
        whole: TextSpan,
        access: RobotsAccess,
        pattern: &[u8],
    ) {
        if self.delays.is_empty() {
            return;
        }
        self.agent_list = AgentList::Closed;
        let Some(compiled) = RobotsPattern::compile(pattern) else {
            return;
        };
        let start = self.patterns.len();
        self.patterns.extend_from_slice(&compiled.bytes);
        let short = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let rule = RobotsRule {
            line,
            source: whole,
            pattern: TextSpan::new(&(start..self.patterns.len())),
            prefix: short(compiled.prefix),
            octets: short(compiled.octets),
            access,
            end: compiled.end,
            form: compiled.form,
        };
        self.rules.push((self.current_section(), rule));
    }

    /// A Crawl-delay line: the longest of a section counts. Before the first list it is ignored.
    pub(super) fn add_delay(&mut self, delay: Duration) {
        if let Some(last) = self.delays.last_mut() {
            *last = (*last).max(Some(delay));
        }
    }

    /// A Request-rate line that was understood. Before the first list it is ignored.
    pub(super) fn add_rate(&mut self, rate: Option<RequestRate>) {
        if let Some(rate) = rate.filter(|_| !self.delays.is_empty()) {
            self.rates.push((self.current_section(), rate));
        }
    }

    fn current_section(&self) -> u32 {
        u32::try_from(self.delays.len().saturating_sub(1)).unwrap_or(u32::MAX)
    }

    /// Sorts everything. `text` is the file that the spans point into.
    pub(super) fn finish(mut self, text: &[u8]) -> RuleTable {
        let patterns = self.patterns.into_boxed_slice();
        let whole = |rule: &RobotsRule| rule.pattern.slice(&patterns).unwrap_or_default();
        let prefix =
            |rule: &RobotsRule| whole(rule).get(..rule.prefix as usize).unwrap_or_default();
        self.rules.sort_by(|(s, a), (t, b)| {
            s.cmp(t)
                .then_with(|| prefix(a).cmp(prefix(b)))
                .then_with(|| b.rank().cmp(&a.rank()))
        });
        let mut layout = TableLayout {
            patterns: &patterns,
            prefix_groups: vec![],
            sections: vec![],
            open_groups: vec![],
        };
        layout
            .sections
            .extend(self.delays.into_iter().map(|delay| RuleSection {
                delay,
                ..RuleSection::default()
            }));
        for (n, (section, rule)) in self.rules.iter().enumerate() {
            layout.add(n, *section as usize, rule);
        }
        let (beginnings, sections) = (layout.prefix_groups.into(), layout.sections.into());
        let rules = self.rules.into_iter().map(|(_, rule)| rule).collect();
        let (agents, rates) = (sort_agents(self.agents, text), self.rates.into());
        RuleTable {
            patterns,
            rules,
            prefix_groups: beginnings,
            sections,
            agents,
            rates,
        }
    }
}

/// Puts sorted rules under their beginnings.
struct TableLayout<'a> {
    patterns: &'a [u8],
    prefix_groups: Vec<PrefixGroup>,
    sections: Vec<RuleSection>,
    /// The beginnings of this section that the last one starts with, the shortest first, and the last one.
    open_groups: Vec<u32>,
}

impl TableLayout<'_> {
    fn add(&mut self, n: usize, section: usize, rule: &RobotsRule) {
        let prefix = TextSpan {
            length: rule.prefix,
            ..rule.pattern
        };
        let here = u32::try_from(self.prefix_groups.len()).unwrap_or(u32::MAX);
        let Some(of) = self.sections.get_mut(section) else {
            return;
        };
        if of.prefix_groups.is_empty() {
            of.prefix_groups = here..here;
            self.open_groups.clear();
        }
        let end = of.prefix_groups.end;
        if end > of.prefix_groups.start && self.has_prefix(end - 1, prefix) {
            if let Some(last) = self.prefix_groups.last_mut() {
                last.rules.length += 1;
            }
            return;
        }
        if let Some(of) = self.sections.get_mut(section) {
            of.prefix_groups.end = here + 1;
        }
        let shorter = self.find_shorter(prefix);
        self.open_groups.push(here);
        let rules = TextSpan::new(&(n..n + 1));
        self.prefix_groups.push(PrefixGroup {
            prefix,
            rules,
            shorter,
        });
    }

    fn has_prefix(&self, beginning: u32, prefix: TextSpan) -> bool {
        self.prefix_text(beginning) == prefix.slice(self.patterns)
    }

    /// The longest open beginning that a prefix starts with; those that it does not start with are closed.
    fn find_shorter(&mut self, prefix: TextSpan) -> Option<u32> {
        let text = prefix.slice(self.patterns).unwrap_or_default();
        while let Some(&last) = self.open_groups.last() {
            if self
                .prefix_text(last)
                .is_some_and(|shorter| text.starts_with(shorter))
            {
                return Some(last);
            }
            self.open_groups.pop();
        }
        None
    }

    fn prefix_text(&self, beginning: u32) -> Option<&[u8]> {
        self.prefix_groups
            .get(beginning as usize)?
            .prefix
            .slice(self.patterns)
    }
}

fn lowercase_bytes(token: &[u8]) -> impl Iterator<Item = u8> {
    token.iter().map(u8::to_ascii_lowercase)
}

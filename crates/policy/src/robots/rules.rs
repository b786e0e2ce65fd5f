//! The rule table of a robots.txt, and the search for the rule that decides a URL (RFC 9309 section
//! 2.2.2).
//!
//! The rules of each section are grouped by their literal prefix and sorted; each prefix links to
//! the next shorter one that it starts with. A lookup is one binary search and a walk along
//! prefixes of the path.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::ops::Range;

use crate::model::number::saturating_u32;

use super::agent::RobotsAgent;
use super::escape::{decode_query_delimiters, normal_form};
use super::file::RobotsFile;
use super::pattern::{PatternEnd, RobotsPattern, UrlForm, WILDCARD, matches_rest};

/// The effect of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RobotsAccess {
    /// The URL may be fetched.
    Allow,
    /// The URL must not be fetched.
    Disallow,
}

/// The decision of a robots.txt on one URL for one crawler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RobotsDecision<'a> {
    /// The effect of the deciding rule.
    pub access: RobotsAccess,
    /// The line that decided; `None` if no rule matches, or the URL is `/robots.txt`.
    pub deciding_line: Option<DecidingLine<'a>>,
    /// The user agent of the crawler's group, as written in the file; `None` if no group applies.
    pub group: Option<Cow<'a, str>>,
}

/// The line that decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecidingLine<'a> {
    /// The number of the line, from 1.
    pub line: u32,
    /// The line without comment and surrounding white space. Invalid UTF-8 is replaced.
    pub text: Cow<'a, str>,
}

impl RobotsDecision<'_> {
    /// Returns the decision without references to the file.
    pub fn into_owned(self) -> RobotsDecision<'static> {
        let own = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        RobotsDecision {
            access: self.access,
            deciding_line: self.deciding_line.map(|line| DecidingLine {
                line: line.line,
                text: own(line.text),
            }),
            group: self.group.map(own),
        }
    }
}

impl RobotsFile {
    /// Returns an estimate of the work of [`Self::decide`] for a URL of this length, in nanoseconds
    /// at worst. Rules with wildcards are compared one by one; the search for the others costs next
    /// to nothing.
    pub fn decision_work(&self, url_length: usize) -> usize {
        let compared = &self.table.compared;
        WILDCARD_WORK * compared.wildcards + compared.rules.saturating_mul(url_length)
    }

    /// Decides a URL for a crawler.
    ///
    /// `agent` has the crawler's product token, compared regardless of case; `path_and_query` starts
    /// with `/`. All groups for the token count as one; without any, those for `*` apply. The
    /// longest pattern wins, Allow among equals, and the first line among equal rules. If the agent
    /// has a second token with groups, the stricter decision counts. `/robots.txt` is always
    /// allowed.
    pub fn decide<'a>(
        &self,
        agent: impl Into<RobotsAgent<'a>>,
        path_and_query: &str,
    ) -> RobotsDecision<'_> {
        self.decide_by_rules(agent.into(), path_and_query, CountedRules::All)
    }

    /// Decides a reading of a URL by lax servers, for a URL that is allowed as written; `None` if that
    /// does not forbid it. A rule for the whole site does not count, since an Allow may name the URL
    /// as it is written.
    pub fn refusal_of_reading<'a>(
        &self,
        agent: impl Into<RobotsAgent<'a>>,
        path_and_query: &str,
    ) -> Option<RobotsDecision<'_>> {
        let decision =
            self.decide_by_rules(agent.into(), path_and_query, CountedRules::PartsOfTheSite);
        Some(decision).filter(|decision| decision.access == RobotsAccess::Disallow)
    }

    fn decide_by_rules(
        &self,
        agent: RobotsAgent<'_>,
        path_and_query: &str,
        rules: CountedRules,
    ) -> RobotsDecision<'_> {
        let groups = agent_groups(&self.table.agents, &self.text, agent);
        let decision = self.decide_for_group(groups.own, path_and_query, rules);
        if decision.access == RobotsAccess::Disallow || groups.first_product.is_empty() {
            return decision;
        }
        let second = self.decide_for_group(groups.first_product, path_and_query, rules);
        match second.access {
            RobotsAccess::Allow => decision,
            RobotsAccess::Disallow => second,
        }
    }

    fn decide_for_group(
        &self,
        group: &[AgentLine],
        path_and_query: &str,
        rules: CountedRules,
    ) -> RobotsDecision<'_> {
        let url = Some(path_and_query).filter(|url| !is_robots_txt(url));
        let rule = url
            .and_then(|url| self.table.best_match(group, url.as_bytes()))
            .filter(|rule| rules == CountedRules::All || rule.octets > 1);
        RobotsDecision {
            access: rule.map_or(RobotsAccess::Allow, |rule| rule.access),
            deciding_line: rule.map(|rule| DecidingLine {
                line: rule.line,
                text: self.text_at(rule.source),
            }),
            group: group.first().map(|agent| self.text_at(agent.token)),
        }
    }
}

/// The work of starting a search for the text after a wildcard.
const WILDCARD_WORK: usize = 64;

/// The rules that may decide.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CountedRules {
    All,
    /// Those whose pattern is longer than `/`.
    PartsOfTheSite,
}

/// Returns `true` for the path `/robots.txt`, with or without a query.
pub fn is_robots_txt(path_and_query: &str) -> bool {
    path_and_query
        .strip_prefix("/robots.txt")
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('?'))
}

/// A range of a text. Files are far smaller than 4 GiB.
#[derive(Clone, Copy, Debug)]
pub(super) struct TextSpan {
    start: u32,
    length: u32,
}

impl TextSpan {
    pub(super) fn new(range: &Range<usize>) -> Self {
        Self {
            start: saturating_u32(range.start),
            length: saturating_u32(range.len()),
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

/// An Allow or Disallow line.
#[derive(Debug)]
struct RobotsRule {
    line: u32,
    source: TextSpan,
    /// The pattern's range in [`RuleTable::patterns`].
    pattern: TextSpan,
    prefix: u32,
    octets: u32,
    access: RobotsAccess,
    end: PatternEnd,
    form: UrlForm,
}

/// The rules with the same literal prefix, the longest first, Allow among equals.
#[derive(Debug)]
struct PrefixGroup {
    prefix: TextSpan,
    rules: TextSpan,
    /// The index of the next shorter prefix in the section that this one starts with.
    shorter: Option<u32>,
}

/// The rules between two lists of user agents.
#[derive(Debug, Default)]
struct RuleSection {
    prefix_groups: Range<u32>,
}

/// A user-agent line.
#[derive(Clone, Copy, Debug)]
pub(super) struct AgentLine {
    pub(super) token: TextSpan,
    pub(super) section: u32,
}

impl AgentLine {
    fn token_text(self, text: &[u8]) -> &[u8] {
        self.token.slice(text).unwrap_or_default()
    }
}

/// Returns the user-agent lines with a token, from lines sorted by [`AgentListsBuilder::finish`].
fn agents_with_token<'a>(agents: &'a [AgentLine], text: &[u8], token: &[u8]) -> &'a [AgentLine] {
    let start = agents.partition_point(|agent| {
        lowercase_bytes(agent.token_text(text)).lt(lowercase_bytes(token))
    });
    let rest = agents.get(start..).unwrap_or_default();
    let length = rest.partition_point(|agent| agent.token_text(text).eq_ignore_ascii_case(token));
    rest.get(..length).unwrap_or_default()
}

/// The user-agent lines for a crawler.
#[derive(Clone, Copy)]
pub(super) struct AgentGroups<'a> {
    /// Those for its token, else those for `*`.
    pub(super) own: &'a [AgentLine],
    /// Those for its first product, if that is another one.
    pub(super) first_product: &'a [AgentLine],
}

/// Returns the user-agent lines for a crawler, from sorted lines.
pub(super) fn agent_groups<'a>(
    agents: &'a [AgentLine],
    text: &[u8],
    agent: RobotsAgent<'_>,
) -> AgentGroups<'a> {
    let own = match agents_with_token(agents, text, agent.token().as_bytes()) {
        [] => agents_with_token(agents, text, b"*"),
        own => own,
    };
    let first_product = agent.first_product().map_or(&[][..], |product| {
        agents_with_token(agents, text, product.as_bytes())
    });
    AgentGroups { own, first_product }
}

/// Collects the user-agent lines of a file. Each list of user agents begins a section.
#[derive(Debug, Default)]
pub(super) struct AgentListsBuilder {
    agents: Vec<AgentLine>,
    /// The number of lists so far.
    sections: u32,
    state: AgentListState,
}

/// The state of the last list of user agents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum AgentListState {
    /// The next user-agent line begins a list.
    #[default]
    Closed,
    /// The next user-agent line continues the list.
    Open,
}

impl AgentListsBuilder {
    /// Adds a user-agent line. One without a token begins or continues a list without adding an
    /// agent.
    pub(super) fn add_agent(&mut self, token: TextSpan) {
        if self.state == AgentListState::Closed {
            self.sections = self.sections.saturating_add(1);
            self.state = AgentListState::Open;
        }
        if let Some(section) = self.section().filter(|_| !token.is_empty()) {
            self.agents.push(AgentLine { token, section });
        }
    }

    /// Ends the list of user agents.
    pub(super) fn end_list(&mut self) {
        self.state = AgentListState::Closed;
    }

    /// Returns the section of a line at this position; `None` before the first list.
    pub(super) fn section(&self) -> Option<u32> {
        self.sections.checked_sub(1)
    }

    /// Returns the lines sorted by token regardless of case, then by position. Duplicates in a
    /// section are removed. `text` is the file that the spans point into.
    pub(super) fn finish(mut self, text: &[u8]) -> Box<[AgentLine]> {
        self.agents.sort_by(|a, b| {
            lowercase_bytes(a.token_text(text)).cmp(lowercase_bytes(b.token_text(text)))
        });
        self.agents.dedup_by(|a, b| {
            a.section == b.section && a.token_text(text).eq_ignore_ascii_case(b.token_text(text))
        });
        self.agents.into()
    }
}

/// The rules that have wildcards, whose patterns a lookup may have to compare.
#[derive(Debug, Default)]
struct ComparedRules {
    rules: usize,
    /// The number of wildcards in all of them.
    wildcards: usize,
}

impl ComparedRules {
    fn count<'r>(rules: impl Iterator<Item = &'r RobotsRule>, patterns: &[u8]) -> Self {
        let mut compared = Self::default();
        for rule in rules {
            let pattern = rule.pattern.slice(patterns).unwrap_or_default();
            let wildcards = memchr::memchr_iter(WILDCARD, pattern).count();
            compared.rules += usize::from(wildcards > 0);
            compared.wildcards += wildcards;
        }
        compared
    }
}

/// The tables for lookups.
#[derive(Debug, Default)]
pub(super) struct RuleTable {
    patterns: Box<[u8]>,
    rules: Box<[RobotsRule]>,
    compared: ComparedRules,
    prefix_groups: Box<[PrefixGroup]>,
    sections: Box<[RuleSection]>,
    /// Sorted by token regardless of case, then by position.
    agents: Box<[AgentLine]>,
}

impl RuleTable {
    fn section(&self, agent: &AgentLine) -> Option<&RuleSection> {
        self.sections.get(agent.section as usize)
    }

    fn best_match(&self, group: &[AgentLine], path_and_query: &[u8]) -> Option<&RobotsRule> {
        if group.is_empty() {
            return None;
        }
        let normal = normal_form(path_and_query);
        let url = RuleUrlForms {
            query_decoded: decode_query_delimiters(&normal),
            normal: &normal,
        };
        let mut best = None;
        for section in group.iter().filter_map(|agent| self.section(agent)) {
            best = self.best_in_section(best, section, &url);
        }
        best
    }

    /// Returns the best of `best` and the matching rules of a section.
    fn best_in_section<'a>(
        &'a self,
        mut best: Option<&'a RobotsRule>,
        section: &RuleSection,
        url: &RuleUrlForms<'_>,
    ) -> Option<&'a RobotsRule> {
        let mut at = self.last_prefix_group(section, url);
        while let Some(group) = at {
            if url.normal.starts_with(self.prefix(group)) {
                best = self.best_in_prefix_group(best, group, url);
            }
            at = group
                .shorter
                .and_then(|index| self.prefix_groups.get(index as usize));
        }
        best
    }

    /// Returns the last prefix that does not sort after the path. If any prefix matches, it is this
    /// one or one that it links to.
    fn last_prefix_group(
        &self,
        section: &RuleSection,
        url: &RuleUrlForms<'_>,
    ) -> Option<&PrefixGroup> {
        let range = section.prefix_groups.start as usize..section.prefix_groups.end as usize;
        let groups = self.prefix_groups.get(range)?;
        let after = groups.partition_point(|group| self.prefix(group) <= url.normal);
        groups.get(after.checked_sub(1)?)
    }

    fn best_in_prefix_group<'a>(
        &'a self,
        best: Option<&'a RobotsRule>,
        group: &PrefixGroup,
        url: &RuleUrlForms<'_>,
    ) -> Option<&'a RobotsRule> {
        let range = group.rules.start as usize..(group.rules.start + group.rules.length) as usize;
        let rules = self.rules.get(range).unwrap_or_default();
        rules
            .iter()
            .take_while(|rule| best.is_none_or(|best| rule.rank() > best.rank()))
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

    fn prefix(&self, group: &PrefixGroup) -> &[u8] {
        group.prefix.slice(&self.patterns).unwrap_or_default()
    }

    pub(super) fn memory_size(&self) -> usize {
        self.patterns.len()
            + size_of_val(&*self.rules)
            + size_of_val(&*self.prefix_groups)
            + size_of_val(&*self.sections)
            + size_of_val(&*self.agents)
    }
}

/// A URL in the two forms that patterns match.
struct RuleUrlForms<'a> {
    normal: &'a [u8],
    query_decoded: Cow<'a, [u8]>,
}

impl RobotsRule {
    fn prefix_text<'t>(&self, patterns: &'t [u8]) -> &'t [u8] {
        let pattern = self.pattern.slice(patterns).unwrap_or_default();
        pattern.get(..self.prefix as usize).unwrap_or_default()
    }

    /// The precedence among matching rules: octets, then Allow, then the earlier line.
    fn rank(&self) -> (u32, Reverse<RobotsAccess>, Reverse<u32>) {
        (self.octets, Reverse(self.access), Reverse(self.line))
    }
}

/// Collects the lines of a file and builds the table.
#[derive(Debug, Default)]
pub(super) struct RuleTableBuilder {
    patterns: Vec<u8>,
    /// The rules with their sections.
    rules: Vec<(u32, RobotsRule)>,
    agent_lists: AgentListsBuilder,
}

impl RuleTableBuilder {
    pub(super) fn add_agent(&mut self, token: TextSpan) {
        self.agent_lists.add_agent(token);
    }

    /// Adds an Allow or Disallow line, which ends the list of user agents. Before the first list it
    /// is ignored.
    pub(super) fn add_rule(
        &mut self,
        line: u32,
        source: TextSpan,
        access: RobotsAccess,
        pattern: &[u8],
    ) {
        let Some(section) = self.agent_lists.section() else {
            return;
        };
        self.agent_lists.end_list();
        let Some(compiled) = RobotsPattern::compile(pattern) else {
            return;
        };
        let start = self.patterns.len();
        self.patterns.extend_from_slice(&compiled.bytes);
        let rule = RobotsRule {
            line,
            source,
            pattern: TextSpan::new(&(start..self.patterns.len())),
            prefix: saturating_u32(compiled.prefix),
            octets: saturating_u32(compiled.octets),
            access,
            end: compiled.end,
            form: compiled.form,
        };
        self.rules.push((section, rule));
    }

    /// Builds the table. `text` is the file that the spans point into.
    pub(super) fn finish(mut self, text: &[u8]) -> RuleTable {
        let patterns = self.patterns.into_boxed_slice();
        self.rules
            .sort_by(|(section, rule), (other_section, other)| {
                section
                    .cmp(other_section)
                    .then_with(|| {
                        rule.prefix_text(&patterns)
                            .cmp(other.prefix_text(&patterns))
                    })
                    .then_with(|| other.rank().cmp(&rule.rank()))
            });
        let mut layout = TableLayout {
            patterns: &patterns,
            prefix_groups: vec![],
            sections: std::iter::repeat_with(RuleSection::default)
                .take(self.agent_lists.sections as usize)
                .collect(),
            open_groups: vec![],
        };
        for (n, (section, rule)) in self.rules.iter().enumerate() {
            layout.add(n, *section as usize, rule);
        }
        RuleTable {
            prefix_groups: layout.prefix_groups.into(),
            sections: layout.sections.into(),
            compared: ComparedRules::count(self.rules.iter().map(|(_, rule)| rule), &patterns),
            rules: self.rules.into_iter().map(|(_, rule)| rule).collect(),
            agents: self.agent_lists.finish(text),
            patterns,
        }
    }
}

/// Groups sorted rules by their prefixes.
struct TableLayout<'a> {
    patterns: &'a [u8],
    prefix_groups: Vec<PrefixGroup>,
    sections: Vec<RuleSection>,
    /// The prefixes of the current section that the last one starts with, the shortest first, and
    /// the last one itself.
    open_groups: Vec<u32>,
}

impl TableLayout<'_> {
    fn add(&mut self, n: usize, section: usize, rule: &RobotsRule) {
        let prefix = TextSpan {
            length: rule.prefix,
            ..rule.pattern
        };
        let index = saturating_u32(self.prefix_groups.len());
        let Some(groups) = self.sections.get_mut(section).map(|s| &mut s.prefix_groups) else {
            return;
        };
        if groups.start == groups.end {
            *groups = index..index;
            self.open_groups.clear();
        } else if self
            .prefix_groups
            .last()
            .is_some_and(|last| last.prefix.slice(self.patterns) == prefix.slice(self.patterns))
        {
            if let Some(last) = self.prefix_groups.last_mut() {
                last.rules.length += 1;
            }
            return;
        }
        groups.end = index + 1;
        let shorter = self.find_shorter(prefix);
        self.open_groups.push(index);
        let rules = TextSpan::new(&(n..n + 1));
        self.prefix_groups.push(PrefixGroup {
            prefix,
            rules,
            shorter,
        });
    }

    /// Returns the longest open prefix that a prefix starts with, and closes those that it does not
    /// start with.
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

    fn prefix_text(&self, group: u32) -> Option<&[u8]> {
        self.prefix_groups
            .get(group as usize)?
            .prefix
            .slice(self.patterns)
    }
}

fn lowercase_bytes(token: &[u8]) -> impl Iterator<Item = u8> {
    token.iter().map(u8::to_ascii_lowercase)
}

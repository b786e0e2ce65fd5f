//! The rules of a robots.txt as a table, and the one that decides a URL (RFC 9309 section 2.2.2).
//!
//! The rules of each section stand under their literal beginning, sorted; each beginning knows the next shorter one
//! that it starts with. A look-up is one binary search and a walk along beginnings that the path really has.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::ops::Range;
use std::time::Duration;

use super::escape::{normal_form, query_decoded};
use super::parse::Parsed;
use super::pattern::{Compiled, End, Form, matches_rest};
use super::request_rate::RequestRate;

/// What a rule says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// It may be fetched.
    Allow,
    /// It may not.
    Disallow,
}

/// What a robots.txt says of one URL to one crawler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ruling<'a> {
    /// Whether it may be fetched.
    pub access: Access,
    /// The line that decided; none if no rule matches, or the URL is `/robots.txt`.
    pub cause: Option<Cause<'a>>,
    /// The user agent whose group was asked, as the file writes it; none if no group is for the crawler.
    pub group: Option<Cow<'a, str>>,
}

/// The line that decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause<'a> {
    /// Its number, from 1.
    pub line: u32,
    /// The line, without white space around it and without a comment; bytes that are not UTF-8 are replaced.
    pub rule: Cow<'a, str>,
}

impl Parsed {
    /// Judges a URL for a crawler.
    ///
    /// `agent` is the crawler's product token, compared without regard to case; `path_and_query` starts with `/`.
    /// The groups for the token count as one; without any, those for `*`. The longest pattern wins, Allow among
    /// equals, and the first line among equal rules. `/robots.txt` is always allowed.
    pub fn ruling(&self, agent: &str, path_and_query: &str) -> Ruling<'_> {
        let group = self.table.group(&self.text, agent);
        let url = Some(path_and_query).filter(|url| !is_robots_txt(url));
        let rule = url.and_then(|url| self.table.best(group, url.as_bytes()));
        let text = |span: Span| String::from_utf8_lossy(span.of(&self.text).unwrap_or_default());
        Ruling {
            access: rule.map_or(Access::Allow, |rule| rule.access),
            cause: rule.map(|rule| Cause {
                line: rule.line,
                rule: text(rule.whole),
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
    pub(super) fn rates_of(&self, agent: &str) -> impl Iterator<Item = RequestRate> {
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
pub(super) struct Span {
    start: u32,
    length: u32,
}

impl Span {
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

    pub(super) fn of(self, text: &[u8]) -> Option<&[u8]> {
        let start = self.start as usize;
        text.get(start..start + self.length as usize)
    }
}

/// One Allow or Disallow.
#[derive(Debug)]
struct Rule {
    line: u32,
    whole: Span,
    /// In the table's patterns.
    pattern: Span,
    prefix: u32,
    octets: u32,
    access: Access,
    end: End,
    form: Form,
}

/// Rules with the same literal beginning; the longest comes first, Allow among equals.
#[derive(Debug)]
struct Beginning {
    prefix: Span,
    rules: Span,
    /// The next shorter beginning of the section that this one starts with.
    shorter: Option<u32>,
}

/// What follows a list of user agents, up to the next list.
#[derive(Debug, Default)]
struct Section {
    beginnings: Range<u32>,
    delay: Option<Duration>,
}

/// A user-agent line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Agent {
    pub(super) token: Span,
    pub(super) section: u32,
}

/// The user-agent lines with a token, of those that [`sorted`] made.
pub(super) fn named<'a>(agents: &'a [Agent], text: &[u8], token: &[u8]) -> &'a [Agent] {
    let have = |agent: &Agent| agent.token.of(text).unwrap_or_default();
    let start = agents.partition_point(|a| lower(have(a)).lt(lower(token)));
    let rest = agents.get(start..).unwrap_or_default();
    let length = rest.partition_point(|a| have(a).eq_ignore_ascii_case(token));
    rest.get(..length).unwrap_or_default()
}

/// By token without regard to case, then in the order of the file; each once a section.
pub(super) fn sorted(mut agents: Vec<Agent>, text: &[u8]) -> Box<[Agent]> {
    let token = |agent: &Agent| agent.token.of(text).unwrap_or_default();
    agents.sort_by(|a, b| lower(token(a)).cmp(lower(token(b))));
    agents.dedup_by(|a, b| a.section == b.section && token(a).eq_ignore_ascii_case(token(b)));
    agents.into()
}

/// All that rules are looked up in.
#[derive(Debug, Default)]
pub(super) struct Table {
    patterns: Box<[u8]>,
    rules: Box<[Rule]>,
    beginnings: Box<[Beginning]>,
    sections: Box<[Section]>,
    /// Sorted by token without regard to case, then in the order of the file.
    agents: Box<[Agent]>,
    /// The Request-rate lines, each with its section, in the order of the sections.
    pub(super) rates: Box<[(u32, RequestRate)]>,
}

impl Table {
    /// The user-agent lines for a crawler, else those for everybody.
    fn group(&self, text: &[u8], agent: &str) -> &[Agent] {
        match named(&self.agents, text, agent.as_bytes()) {
            [] => named(&self.agents, text, b"*"),
            own => own,
        }
    }

    fn section(&self, agent: &Agent) -> Option<&Section> {
        self.sections.get(agent.section as usize)
    }

    fn best(&self, group: &[Agent], path_and_query: &[u8]) -> Option<&Rule> {
        if group.is_empty() {
            return None;
        }
        let written = normal_form(path_and_query);
        let url = Url {
            query: query_decoded(&written),
            written: &written,
        };
        let mut best = None;
        for section in group.iter().filter_map(|agent| self.section(agent)) {
            best = self.better(best, section, &url);
        }
        best
    }

    /// The best of what is found so far and of a section.
    fn better<'a>(
        &'a self,
        mut best: Option<&'a Rule>,
        section: &Section,
        url: &Url<'_>,
    ) -> Option<&'a Rule> {
        let mut at = self.nearest(section, url);
        while let Some(beginning) = at {
            if url.written.starts_with(self.prefix(beginning)) {
                best = self.better_of(best, beginning, url);
            }
            at = beginning
                .shorter
                .and_then(|n| self.beginnings.get(n as usize));
        }
        best
    }

    /// The last beginning that does not sort behind the path: itself or one that it starts with begins the path, if
    /// any does.
    fn nearest(&self, section: &Section, url: &Url<'_>) -> Option<&Beginning> {
        let range = section.beginnings.start as usize..section.beginnings.end as usize;
        let all = self.beginnings.get(range)?;
        let behind = all.partition_point(|b| self.prefix(b) <= url.written);
        all.get(behind.checked_sub(1)?)
    }

    fn better_of<'a>(
        &'a self,
        best: Option<&'a Rule>,
        at: &Beginning,
        url: &Url<'_>,
    ) -> Option<&'a Rule> {
        let range = at.rules.start as usize..(at.rules.start + at.rules.length) as usize;
        let rules = self.rules.get(range).unwrap_or_default();
        let longer = |rule: &&Rule| best.is_none_or(|best| rule.rank() > best.rank());
        rules
            .iter()
            .take_while(longer)
            .find(|rule| self.matches(rule, url))
            .or(best)
    }

    fn matches(&self, rule: &Rule, url: &Url<'_>) -> bool {
        let text: &[u8] = match rule.form {
            Form::Written => url.written,
            Form::Query => &url.query,
        };
        let prefix = rule.prefix as usize;
        let pattern = rule
            .pattern
            .of(&self.patterns)
            .and_then(|p| p.get(prefix..));
        let (Some(pattern), Some(text)) = (pattern, text.get(prefix..)) else {
            return false;
        };
        matches_rest(pattern, rule.end, text)
    }

    fn prefix(&self, beginning: &Beginning) -> &[u8] {
        beginning.prefix.of(&self.patterns).unwrap_or_default()
    }

    pub(super) fn bytes(&self) -> usize {
        self.patterns.len()
            + size_of_val(&*self.rules)
            + size_of_val(&*self.beginnings)
            + size_of_val(&*self.sections)
            + size_of_val(&*self.agents)
            + size_of_val(&*self.rates)
    }
}

/// A URL in the two forms that patterns look at.
struct Url<'a> {
    written: &'a [u8],
    query: Cow<'a, [u8]>,
}

impl Rule {
    /// What decides between two rules that match: octets, then Allow, then the earlier line.
    fn rank(&self) -> (u32, Reverse<Access>, Reverse<u32>) {
        (self.octets, Reverse(self.access), Reverse(self.line))
    }
}

/// Collects the lines of a file, then makes the table.
#[derive(Debug, Default)]
pub(super) struct Builder {
    patterns: Vec<u8>,
    /// Rules, each with its section.
    rules: Vec<(u32, Rule)>,
    delays: Vec<Option<Duration>>,
    agents: Vec<Agent>,
    rates: Vec<(u32, RequestRate)>,
    list: List,
}

/// What the next user-agent line does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum List {
    /// It begins a list.
    #[default]
    Closed,
    /// It continues the list.
    Open,
}

impl Builder {
    /// A user-agent line; one without a token continues or begins a list that nobody is on.
    pub(super) fn agent(&mut self, token: Span) {
        if self.list == List::Closed {
            self.delays.push(None);
            self.list = List::Open;
        }
        if !token.is_empty() {
            self.agents.push(Agent {
                token,
                section: self.section(),
            });
        }
    }

    /// An Allow or Disallow line; it ends the list of user agents. Before the first list it is ignored.
    pub(super) fn rule(&mut self, line: u32, whole: Span, access: Access, pattern: &[u8]) {
        if self.delays.is_empty() {
            return;
        }
        self.list = List::Closed;
        let Some(compiled) = Compiled::new(pattern) else {
            return;
        };
        let start = self.patterns.len();
        self.patterns.extend_from_slice(&compiled.bytes);
        let short = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let rule = Rule {
            line,
            whole,
            pattern: Span::new(&(start..self.patterns.len())),
            prefix: short(compiled.prefix),
            octets: short(compiled.octets),
            access,
            end: compiled.end,
            form: compiled.form,
        };
        self.rules.push((self.section(), rule));
    }

    /// A Crawl-delay line: the longest of a section counts. Before the first list it is ignored.
    pub(super) fn delay(&mut self, delay: Duration) {
        if let Some(last) = self.delays.last_mut() {
            *last = (*last).max(Some(delay));
        }
    }

    /// A Request-rate line that was understood. Before the first list it is ignored.
    pub(super) fn rate(&mut self, rate: Option<RequestRate>) {
        if let Some(rate) = rate.filter(|_| !self.delays.is_empty()) {
            self.rates.push((self.section(), rate));
        }
    }

    fn section(&self) -> u32 {
        u32::try_from(self.delays.len().saturating_sub(1)).unwrap_or(u32::MAX)
    }

    /// Sorts everything. `text` is the file that the spans point into.
    pub(super) fn finish(mut self, text: &[u8]) -> Table {
        let patterns = self.patterns.into_boxed_slice();
        let whole = |rule: &Rule| rule.pattern.of(&patterns).unwrap_or_default();
        let prefix = |rule: &Rule| whole(rule).get(..rule.prefix as usize).unwrap_or_default();
        self.rules.sort_by(|(s, a), (t, b)| {
            s.cmp(t)
                .then_with(|| prefix(a).cmp(prefix(b)))
                .then_with(|| b.rank().cmp(&a.rank()))
        });
        let mut layout = Layout {
            patterns: &patterns,
            beginnings: vec![],
            sections: vec![],
            open: vec![],
        };
        layout
            .sections
            .extend(self.delays.into_iter().map(|delay| Section {
                delay,
                ..Section::default()
            }));
        for (n, (section, rule)) in self.rules.iter().enumerate() {
            layout.add(n, *section as usize, rule);
        }
        let (beginnings, sections) = (layout.beginnings.into(), layout.sections.into());
        let rules = self.rules.into_iter().map(|(_, rule)| rule).collect();
        let (agents, rates) = (sorted(self.agents, text), self.rates.into());
        Table {
            patterns,
            rules,
            beginnings,
            sections,
            agents,
            rates,
        }
    }
}

/// Puts sorted rules under their beginnings.
struct Layout<'a> {
    patterns: &'a [u8],
    beginnings: Vec<Beginning>,
    sections: Vec<Section>,
    /// The beginnings of this section that the last one starts with, the shortest first, and the last one.
    open: Vec<u32>,
}

impl Layout<'_> {
    fn add(&mut self, n: usize, section: usize, rule: &Rule) {
        let prefix = Span {
            length: rule.prefix,
            ..rule.pattern
        };
        let here = u32::try_from(self.beginnings.len()).unwrap_or(u32::MAX);
        let Some(of) = self.sections.get_mut(section) else {
            return;
        };
        if of.beginnings.is_empty() {
            of.beginnings = here..here;
            self.open.clear();
        }
        let end = of.beginnings.end;
        if end > of.beginnings.start && self.is_same(end - 1, prefix) {
            if let Some(last) = self.beginnings.last_mut() {
                last.rules.length += 1;
            }
            return;
        }
        if let Some(of) = self.sections.get_mut(section) {
            of.beginnings.end = here + 1;
        }
        let shorter = self.shorter(prefix);
        self.open.push(here);
        let rules = Span::new(&(n..n + 1));
        self.beginnings.push(Beginning {
            prefix,
            rules,
            shorter,
        });
    }

    fn is_same(&self, beginning: u32, prefix: Span) -> bool {
        self.text(beginning) == prefix.of(self.patterns)
    }

    /// The longest open beginning that a prefix starts with; those that it does not start with are closed.
    fn shorter(&mut self, prefix: Span) -> Option<u32> {
        let text = prefix.of(self.patterns).unwrap_or_default();
        while let Some(&last) = self.open.last() {
            if self
                .text(last)
                .is_some_and(|shorter| text.starts_with(shorter))
            {
                return Some(last);
            }
            self.open.pop();
        }
        None
    }

    fn text(&self, beginning: u32) -> Option<&[u8]> {
        self.beginnings
            .get(beginning as usize)?
            .prefix
            .of(self.patterns)
    }
}

fn lower(token: &[u8]) -> impl Iterator<Item = u8> {
    token.iter().map(u8::to_ascii_lowercase)
}

//! Collection of extension lines while a robots.txt is parsed, with a limit on their number.

use crate::robots::line::RobotsLine;
use crate::robots::pattern::RobotsPattern;
use crate::robots::rules::{AgentLine, TextSpan, sort_agents};

use super::{ExtensionKind, ExtensionLine, Extensions, MAX_LINES};

/// Collects the extension lines of a file.
#[derive(Debug, Default)]
pub(crate) struct ExtensionsBuilder {
    lines: Vec<ExtensionLine>,
    /// The number of usage lines.
    usage_count: usize,
    agents: Vec<AgentLine>,
    sections: u32,
    agent_list: ExtensionAgentList,
}

/// The state of the current list of user agents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ExtensionAgentList {
    #[default]
    Closed,
    Open,
}

/// The result of adding a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineAcceptance {
    Accepted,
    Ignored,
}

impl ExtensionsBuilder {
    /// Adds a user-agent line.
    pub(crate) fn add_agent(&mut self, token: TextSpan) {
        if self.agent_list == ExtensionAgentList::Closed {
            self.sections = self.sections.saturating_add(1);
            self.agent_list = ExtensionAgentList::Open;
        }
        if !token.is_empty() {
            self.agents.push(AgentLine {
                token,
                section: self.sections,
            });
        }
    }

    /// Ends the list of user agents at an Allow or Disallow line.
    pub(crate) fn end_agent_list(&mut self) {
        self.agent_list = ExtensionAgentList::Closed;
    }

    /// Adds an extension line.
    pub(crate) fn add(
        &mut self,
        extension: ExtensionKind,
        line: &RobotsLine,
        text: &[u8],
    ) -> LineAcceptance {
        let section = (self.sections > 0).then_some(self.sections);
        let value = text.get(line.value.clone()).unwrap_or_default();
        let (path, skipped) = match extension.usage_syntax() {
            Some(_) => {
                self.agent_list = ExtensionAgentList::Closed;
                parse_path(value)
            }
            None => (PathScope::All, 0),
        };
        let path = match path {
            PathScope::All => None,
            PathScope::Pattern(pattern) => Some(Box::new(pattern)),
        };
        if !self.reserve_line(extension) {
            return LineAcceptance::Ignored;
        }
        let value = TextSpan::new(&(line.value.start + skipped..line.value.end));
        self.lines.push(ExtensionLine {
            extension,
            line: line.number,
            section,
            source: TextSpan::new(&line.source),
            value,
            path,
        });
        LineAcceptance::Accepted
    }

    /// Counts usage lines and reported lines separately, so that many reported lines do not hide a
    /// denial.
    fn reserve_line(&mut self, extension: ExtensionKind) -> bool {
        let reported = self.lines.len() - self.usage_count;
        if extension.usage_syntax().is_none() {
            return reported < MAX_LINES;
        }
        let room = self.usage_count < MAX_LINES;
        self.usage_count += usize::from(room);
        room
    }

    /// Finishes the collection; `None` if there are no extension lines. `text` is the file that the
    /// spans point into.
    pub(crate) fn finish(self, text: &[u8]) -> Option<Box<Extensions>> {
        if self.lines.is_empty() {
            return None;
        }
        Some(Box::new(Extensions {
            lines: self.lines.into(),
            agents: sort_agents(self.agents, text),
        }))
    }
}

/// The URLs to which a preference applies.
enum PathScope {
    All,
    Pattern(RobotsPattern),
}

/// Parses the path at the beginning of a value. Returns it with its length in bytes.
fn parse_path(value: &[u8]) -> (PathScope, usize) {
    if !matches!(value.first(), Some(b'/' | b'*')) {
        return (PathScope::All, 0);
    }
    let length = value
        .iter()
        .position(u8::is_ascii_whitespace)
        .unwrap_or(value.len());
    let pattern = value.get(..length).unwrap_or_default();
    let path = match RobotsPattern::compile(pattern) {
        Some(compiled) if pattern != b"/" => PathScope::Pattern(compiled),
        Some(_) | None => PathScope::All,
    };
    (path, length)
}

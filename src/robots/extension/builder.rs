//! Collects the lines beyond RFC 9309 while a robots.txt is read, and bounds how many are kept. What they mean to a crawler
//! is asked of what this makes.

use crate::robots::line::Line;
use crate::robots::pattern::Compiled;
use crate::robots::rules::{Agent, Span, sorted};

use super::{Extension, Extensions, MAX_LINES, Statement};

/// Collects such lines of a file.
#[derive(Debug, Default)]
pub(in crate::robots) struct Builder {
    statements: Vec<Statement>,
    /// How many of them are on uses.
    on_uses: usize,
    agents: Vec<Agent>,
    sections: u32,
    list: List,
}

/// What the next user-agent line does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum List {
    #[default]
    Closed,
    Open,
}

/// Whether a line was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::robots) enum Kept {
    Yes,
    No,
}

impl Builder {
    /// A user-agent line.
    pub(in crate::robots) fn agent(&mut self, token: Span) {
        if self.list == List::Closed {
            self.sections = self.sections.saturating_add(1);
            self.list = List::Open;
        }
        if !token.is_empty() {
            self.agents.push(Agent {
                token,
                section: self.sections,
            });
        }
    }

    /// An Allow or Disallow line.
    pub(in crate::robots) fn rule(&mut self) {
        self.list = List::Closed;
    }

    /// A line of its own.
    pub(in crate::robots) fn add(
        &mut self,
        extension: Extension,
        line: &Line,
        text: &[u8],
    ) -> Kept {
        let section = (self.sections > 0).then_some(self.sections);
        let value = text.get(line.value.clone()).unwrap_or_default();
        let (path, skipped) = match extension.spelling() {
            Some(_) => {
                self.list = List::Closed;
                path(value)
            }
            None => (Path::All, 0),
        };
        let path = match path {
            Path::All => None,
            Path::Pattern(pattern) => Some(Box::new(pattern)),
        };
        if !self.has_room(extension) {
            return Kept::No;
        }
        let value = Span::new(&(line.value.start + skipped..line.value.end));
        let whole = Span::new(&line.whole);
        self.statements.push(Statement {
            extension,
            line: line.number,
            section,
            whole,
            value,
            path,
        });
        Kept::Yes
    }

    /// What a site denies is not lost behind lines that are only reported, so the two are counted apart.
    fn has_room(&mut self, extension: Extension) -> bool {
        let reported = self.statements.len() - self.on_uses;
        if extension.spelling().is_none() {
            return reported < MAX_LINES;
        }
        let room = self.on_uses < MAX_LINES;
        self.on_uses += usize::from(room);
        room
    }

    /// `text` is the file that the spans point into. `None` if there is no such line.
    pub(in crate::robots) fn finish(self, text: &[u8]) -> Option<Box<Extensions>> {
        if self.statements.is_empty() {
            return None;
        }
        Some(Box::new(Extensions {
            statements: self.statements.into(),
            agents: sorted(self.agents, text),
        }))
    }
}

/// Where a preference holds.
enum Path {
    All,
    Pattern(Compiled),
}

/// The path that a value begins with, and how many bytes of the value it takes.
fn path(value: &[u8]) -> (Path, usize) {
    if !matches!(value.first(), Some(b'/' | b'*')) {
        return (Path::All, 0);
    }
    let length = value
        .iter()
        .position(u8::is_ascii_whitespace)
        .unwrap_or(value.len());
    let pattern = value.get(..length).unwrap_or_default();
    let path = match Compiled::new(pattern) {
        Some(compiled) if pattern != b"/" => Path::Pattern(compiled),
        Some(_) | None => Path::All,
    };
    (path, length)
}

//! Lines of the log on their way: read, sifted, handed on; and what of them cannot be read.

use std::io::{self, Read};

use super::lines::{Lines, Next};
use crate::cli::out::warn;
use crate::metrics::log::entry::{Entry, Field, Wanted};
use crate::metrics::log::filter::Filter;

/// Where decisions go that pass.
pub(super) trait Sink {
    /// The fields that it looks at.
    fn fields(&self) -> Vec<Field>;

    /// Takes a decision; `line` is as it was read.
    fn take(&mut self, line: &[u8], entry: &Entry<'_>) -> io::Result<()>;

    /// The next decision may be long in coming.
    fn pause(&mut self) -> io::Result<()>;
}

/// Reads one log after another, and keeps count.
#[derive(Debug)]
pub(super) struct Reading<'f, S> {
    pub(super) sink: S,
    filters: &'f [Filter],
    since: Option<String>,
    wanted: Wanted,
    /// Lines, but for blank ones.
    lines: u64,
    unread: u64,
    first_unread: Option<String>,
    telling: Telling,
    file: String,
    /// The number of the last line; none in a file that is not read from its first.
    line: Option<u64>,
}

/// When it is told that a line cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Telling {
    AtTheEnd,
    AtOnce,
}

/// What the end of an input means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Nothing follows: what stands behind the last line feed is a line, or torn.
    Final,
    /// Somebody may be about to write the rest of the last line.
    Growing,
}

impl<'f, S: Sink> Reading<'f, S> {
    /// What comes before `since`, or does not pass every filter, is left out.
    pub(super) fn new(sink: S, filters: &'f [Filter], since: Option<String>) -> Self {
        let wanted = Wanted::of(
            sink.fields()
                .into_iter()
                .chain(filters.iter().map(Filter::field)),
        );
        let (lines, unread, line) = (0, 0, Some(0));
        let (first_unread, telling, file) = (None, Telling::AtTheEnd, String::new());
        Self {
            sink,
            filters,
            since,
            wanted,
            lines,
            unread,
            first_unread,
            telling,
            file,
            line,
        }
    }

    /// There will be no end: the first line that cannot be read is told when it comes.
    pub(super) fn has_no_end(&mut self) {
        self.telling = Telling::AtOnce;
    }

    /// From here on lines are those of this file, counted from its first.
    pub(super) fn begin(&mut self, file: impl Into<String>) {
        (self.file, self.line) = (file.into(), Some(0));
    }

    /// From here on lines are those of this file, from a place in it: their numbers are not known.
    pub(super) fn begin_within(&mut self, file: impl Into<String>) {
        (self.file, self.line) = (file.into(), None);
    }

    /// Reads to the end.
    pub(super) fn rest<R: Read>(&mut self, lines: &mut Lines<R>, ending: Ending) -> io::Result<()> {
        loop {
            match lines.next(|| self.sink.pause())? {
                Next::Line(range) => self.line(lines.at(&range))?,
                Next::TooLong => self.broken("the line is longer than any of the log"),
                Next::End(range) => return self.end(lines.at(&range), ending),
            }
        }
    }

    /// How many lines there were, and of those that are no decisions how many and which was the first.
    pub(super) fn unread(&self) -> Option<String> {
        let first = self.first_unread.as_ref()?;
        let (unread, lines) = (self.unread, self.lines);
        Some(format!(
            "{unread} of {lines} lines cannot be read; the first is {first}"
        ))
    }

    fn end(&mut self, rest: &[u8], ending: Ending) -> io::Result<()> {
        match ending {
            Ending::Growing => Ok(()),
            Ending::Final => self.line(rest),
        }
    }

    fn line(&mut self, line: &[u8]) -> io::Result<()> {
        if line.trim_ascii().is_empty() {
            self.count_line();
            return Ok(());
        }
        let entry = match Entry::read(line, self.wanted) {
            Ok(entry) => entry,
            Err(error) => {
                self.broken(&error.to_string());
                return Ok(());
            }
        };
        self.count_line();
        self.lines += 1;
        let early = self
            .since
            .as_ref()
            .is_some_and(|since| *entry.text(Field::Ts) < **since);
        if early || !self.filters.iter().all(|filter| filter.holds(&entry)) {
            return Ok(());
        }
        self.sink.take(line, &entry)
    }

    fn count_line(&mut self) {
        self.line = self.line.map(|line| line + 1);
    }

    fn broken(&mut self, why: &str) {
        self.count_line();
        (self.lines, self.unread) = (self.lines + 1, self.unread + 1);
        // serde_json tells a line of its own, which is always the first.
        let why = why.split(" at line ").next().unwrap_or(why);
        if self.first_unread.is_some() {
            return;
        }
        let line = self.line.map(|line| format!(":{line}")).unwrap_or_default();
        let first = format!("{}{line}: {why}", self.file);
        if self.telling == Telling::AtOnce {
            warn(&format!(
                "{first}; lines that cannot be read are passed over"
            ));
        }
        self.first_unread = Some(first);
    }
}

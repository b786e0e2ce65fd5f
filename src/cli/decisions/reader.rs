//! Lines of the log on their way: read, sifted, handed on; and what of them cannot be read.

use std::io::{self, Read};

use super::line_reader::{LogLineReader, NextLogLine};
use crate::cli::console::warn;
use crate::metrics::log::entry::{LogEntry, LogField, LogFieldSet};
use crate::metrics::log::filter::LogFilter;

/// Where decisions go that pass.
pub(super) trait DecisionConsumer {
    /// The fields that it looks at.
    fn fields(&self) -> Vec<LogField>;

    /// Takes a decision; `line` is as it was read.
    fn accept(&mut self, line: &[u8], entry: &LogEntry<'_>) -> io::Result<()>;

    /// The next decision may be long in coming.
    fn flush(&mut self) -> io::Result<()>;
}

/// Reads one log after another, and keeps count.
#[derive(Debug)]
pub(super) struct DecisionLogReader<'f, S> {
    pub(super) consumer: S,
    filters: &'f [LogFilter],
    since: Option<String>,
    wanted_fields: LogFieldSet,
    /// Lines, but for blank ones.
    lines: u64,
    unreadable: u64,
    first_unreadable: Option<String>,
    warning: UnreadableLineWarning,
    file: String,
    /// The number of the last line; none in a file that is not read from its first.
    line: Option<u64>,
}

/// When it is told that a line cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnreadableLineWarning {
    AtTheEnd,
    AtOnce,
}

/// What the end of an input means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogInputEnd {
    /// Nothing follows: what stands behind the last line feed is a line, or torn.
    Final,
    /// Somebody may be about to write the rest of the last line.
    Growing,
}

impl<'f, S: DecisionConsumer> DecisionLogReader<'f, S> {
    /// What comes before `since`, or does not pass every filter, is left out.
    pub(super) fn new(sink: S, filters: &'f [LogFilter], since: Option<String>) -> Self {
        let wanted = LogFieldSet::from_fields(
            sink.fields()
                .into_iter()
                .chain(filters.iter().map(LogFilter::field)),
        );
        let (lines, unread, line) = (0, 0, Some(0));
        let (first_unread, telling, file) = (None, UnreadableLineWarning::AtTheEnd, String::new());
        Self {
            consumer: sink,
            filters,
            since,
            wanted_fields: wanted,
            lines,
            unreadable: unread,
            first_unreadable: first_unread,
            warning: telling,
            file,
            line,
        }
    }

    /// There will be no end: the first line that cannot be read is told when it comes.
    pub(super) fn set_endless(&mut self) {
        self.warning = UnreadableLineWarning::AtOnce;
    }

    /// From here on lines are those of this file, counted from its first.
    pub(super) fn begin_file(&mut self, file: impl Into<String>) {
        (self.file, self.line) = (file.into(), Some(0));
    }

    /// From here on lines are those of this file, from a place in it: their numbers are not known.
    pub(super) fn begin_mid_file(&mut self, file: impl Into<String>) {
        (self.file, self.line) = (file.into(), None);
    }

    /// Reads to the end.
    pub(super) fn read_rest<R: Read>(
        &mut self,
        lines: &mut LogLineReader<R>,
        ending: LogInputEnd,
    ) -> io::Result<()> {
        loop {
            match lines.next_line(|| self.consumer.flush())? {
                NextLogLine::Line(range) => self.read_line(lines.bytes(&range))?,
                NextLogLine::TooLong => {
                    self.record_unreadable("the line is longer than any of the log")
                }
                NextLogLine::End(range) => return self.finish(lines.bytes(&range), ending),
            }
        }
    }

    /// How many lines there were, and of those that are no decisions how many and which was the first.
    pub(super) fn unreadable_summary(&self) -> Option<String> {
        let first = self.first_unreadable.as_ref()?;
        let (unread, lines) = (self.unreadable, self.lines);
        Some(format!(
            "{unread} of {lines} lines cannot be read; the first is {first}"
        ))
    }

    fn finish(&mut self, rest: &[u8], ending: LogInputEnd) -> io::Result<()> {
        match ending {
            LogInputEnd::Growing => Ok(()),
            LogInputEnd::Final => self.read_line(rest),
        }
    }

    fn read_line(&mut self, line: &[u8]) -> io::Result<()> {
        if line.trim_ascii().is_empty() {
            self.count_line();
            return Ok(());
        }
        let entry = match LogEntry::parse(line, self.wanted_fields) {
            Ok(entry) => entry,
            Err(error) => {
                self.record_unreadable(&error.to_string());
                return Ok(());
            }
        };
        self.count_line();
        self.lines += 1;
        let early = self
            .since
            .as_ref()
            .is_some_and(|since| *entry.text(LogField::Ts) < **since);
        if early || !self.filters.iter().all(|filter| filter.matches(&entry)) {
            return Ok(());
        }
        self.consumer.accept(line, &entry)
    }

    fn count_line(&mut self) {
        self.line = self.line.map(|line| line + 1);
    }

    fn record_unreadable(&mut self, why: &str) {
        self.count_line();
        (self.lines, self.unreadable) = (self.lines + 1, self.unreadable + 1);
        // serde_json tells a line of its own, which is always the first.
        let why = why.split(" at line ").next().unwrap_or(why);
        if self.first_unreadable.is_some() {
            return;
        }
        let line = self.line.map(|line| format!(":{line}")).unwrap_or_default();
        let first = format!("{}{line}: {why}", self.file);
        if self.warning == UnreadableLineWarning::AtOnce {
            warn(&format!(
                "{first}; lines that cannot be read are passed over"
            ));
        }
        self.first_unreadable = Some(first);
    }
}

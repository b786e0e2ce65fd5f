//! Reads the lines of the log, filters them, passes them to a consumer, and counts the lines that cannot be read.

use std::io::{self, Read};

use super::line_reader::{LogLineReader, NextLogLine};
use crate::cli::console::warn;
use crate::metrics::log::entry::{LogEntry, LogField, LogFieldSet, LogValue};
use crate::metrics::log::filter::LogFilter;

/// A consumer of the decisions that match the filters.
pub(in crate::cli) trait DecisionConsumer {
    /// Returns the fields that the consumer needs; none, unless it reads entries.
    fn fields(&self) -> Vec<LogField> {
        Vec::new()
    }

    /// Accepts a decision outside of `--since` and `--until`, or one that does not match the filters.
    fn pass_over(&mut self, _entry: &LogEntry<'_>) {}

    /// Accepts a decision, and its line in the log.
    fn accept(&mut self, line: &[u8], entry: &LogEntry<'_>) -> io::Result<()>;

    /// Flushes the output, if there is one, since the next read may block.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A reader of one or several log files.
#[derive(Debug)]
pub(in crate::cli) struct DecisionLogReader<'f, S> {
    pub(in crate::cli) consumer: S,
    filters: &'f [LogFilter],
    since: Option<String>,
    until: Option<String>,
    wanted_fields: LogFieldSet,
    /// The number of lines that are not blank.
    lines: u64,
    /// The number of decisions that were passed to the consumer.
    accepted: u64,
    /// The number of decisions that match all filters but those on the URL, which they do not have.
    without_url: u64,
    /// The time of the first decision.
    begins_at: Option<String>,
    unreadable: u64,
    first_unreadable: Option<String>,
    warning: UnreadableLineWarning,
    file: String,
    /// The number of the last line; `None` in a file that is not read from its beginning.
    line: Option<u64>,
}

/// The time at which the first line that cannot be read is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnreadableLineWarning {
    AtTheEnd,
    AtOnce,
}

/// The meaning of the end of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogInputEnd {
    /// The end is final: the text after the last line feed is a complete or a truncated line.
    Final,
    /// The rest of the last line may still be written.
    Growing,
}

impl<'f, S: DecisionConsumer> DecisionLogReader<'f, S> {
    /// Creates a reader of the decisions that are not older than `since` and match all filters.
    pub(in crate::cli) fn new(
        consumer: S,
        filters: &'f [LogFilter],
        since: Option<String>,
    ) -> Self {
        let wanted_fields = LogFieldSet::from_fields(
            consumer
                .fields()
                .into_iter()
                .chain(filters.iter().map(LogFilter::field)),
        );
        Self {
            consumer,
            filters,
            since,
            until: None,
            wanted_fields,
            lines: 0,
            accepted: 0,
            without_url: 0,
            begins_at: None,
            unreadable: 0,
            first_unreadable: None,
            warning: UnreadableLineWarning::AtTheEnd,
            file: String::new(),
            line: Some(0),
        }
    }

    /// Passes over the decisions of this time and later ones.
    pub(super) fn set_until(&mut self, until: Option<String>) {
        self.until = until;
    }

    /// Reports the first line that cannot be read at once, since reading does not end.
    pub(super) fn set_endless(&mut self) {
        self.warning = UnreadableLineWarning::AtOnce;
    }

    /// Starts a file at its beginning.
    pub(super) fn begin_file(&mut self, file: impl Into<String>) {
        self.file = file.into();
        self.line = Some(0);
    }

    /// Starts a file at a later position, so that the line numbers are unknown.
    pub(super) fn begin_mid_file(&mut self, file: impl Into<String>) {
        self.file = file.into();
        self.line = None;
    }

    /// Reads an input to its end.
    pub(super) fn read_rest<R: Read>(
        &mut self,
        lines: &mut LogLineReader<R>,
        ending: LogInputEnd,
    ) -> io::Result<()> {
        loop {
            match lines.next_line(|| self.consumer.flush())? {
                NextLogLine::Line(range) => self.read_line(lines.bytes(&range))?,
                NextLogLine::TooLong => {
                    self.record_unreadable("the line is longer than any line of a decision log")
                }
                NextLogLine::End(range) => return self.finish(lines.bytes(&range), ending),
            }
        }
    }

    /// Returns a summary of the lines that cannot be read, or `None` if there are none.
    pub(in crate::cli) fn unreadable_summary(&self) -> Option<String> {
        let first = self.first_unreadable.as_ref()?;
        Some(format!(
            "{} of {} lines cannot be read; the first is {first}",
            self.unreadable, self.lines
        ))
    }

    /// Returns a note that no decision was found, or `None` if one was.
    pub(super) fn nothing_found(&self) -> Option<String> {
        match (self.accepted, self.lines) {
            (1.., _) => None,
            (0, 0) => Some("there are no decisions in the log".to_owned()),
            (0, 1) => Some("the only decision in the log does not match".to_owned()),
            (0, lines) => Some(format!("none of the {lines} decisions in the log matches")),
        }
    }

    /// Returns a note on the decisions that a search by URL cannot find, or `None` if there are none.
    pub(super) fn hidden_urls(&self) -> Option<String> {
        (self.without_url > 0).then(|| {
            format!(
                "{} of the decisions that match otherwise have no URL (the option `record`, or a tunnel): search by --host",
                self.without_url
            )
        })
    }

    /// Returns the time of the first decision, if it is later than `--since`.
    pub(super) fn late_beginning(&self) -> Option<&str> {
        let since = self.since.as_deref()?;
        self.begins_at.as_deref().filter(|begins| *begins > since)
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
        if let Some(lost) = lost_lines(line) {
            warn(&format!(
                "{lost} decisions are missing here: this reader is too slow"
            ));
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
        if self.since.is_some() && self.begins_at.is_none() {
            self.begins_at = Some(entry.text(LogField::Ts).to_string());
        }
        let ts = entry.text(LogField::Ts);
        let too_old = self.since.as_ref().is_some_and(|since| *ts < **since);
        let too_new = self.until.as_ref().is_some_and(|until| *ts >= **until);
        if too_old || too_new {
            self.consumer.pass_over(&entry);
            return Ok(());
        }
        if !self.filters.iter().all(|filter| filter.matches(&entry)) {
            self.without_url += u64::from(self.may_be_hidden(&entry));
            self.consumer.pass_over(&entry);
            return Ok(());
        }
        self.accepted += 1;
        self.consumer.accept(line, &entry)
    }

    /// Returns `true` if a decision may be one that the filters look for, but does not have its URL.
    fn may_be_hidden(&self, entry: &LogEntry<'_>) -> bool {
        let is_by_url = |filter: &LogFilter| filter.field() == LogField::Url;
        self.filters.iter().any(is_by_url)
            && *entry.value(LogField::Url) == LogValue::Null
            && self
                .filters
                .iter()
                .all(|filter| is_by_url(filter) || filter.matches(entry))
    }

    fn count_line(&mut self) {
        self.line = self.line.map(|line| line + 1);
    }

    fn record_unreadable(&mut self, error: &str) {
        self.count_line();
        self.lines += 1;
        self.unreadable += 1;
        if self.first_unreadable.is_some() {
            return;
        }
        // The line number of serde_json is always 1, since it parses a single line.
        let error = error.split(" at line ").next().unwrap_or(error);
        let line = self.line.map(|line| format!(":{line}")).unwrap_or_default();
        let first = format!("{}{line}: {error}", self.file);
        if self.warning == UnreadableLineWarning::AtOnce {
            warn(&format!("{first}; lines that cannot be read are skipped"));
        }
        self.first_unreadable = Some(first);
    }
}

/// Returns the number in `{"lost":7}`, by which the admin API reports lines that it could not send.
fn lost_lines(line: &[u8]) -> Option<&str> {
    let number = line.strip_prefix(b"{\"lost\":")?.strip_suffix(b"}")?;
    std::str::from_utf8(number).ok()
}

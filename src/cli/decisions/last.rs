//! The last decisions of a log that match: `crawlgate decisions --limit N`, and `crawlgate explain --decision ID`.

use std::collections::VecDeque;
use std::io;
use std::path::Path;

use super::follow::{self, FollowStart, FollowUntil};
use super::reader::{DecisionConsumer, DecisionLogReader};
use crate::metrics::log::entry::{LogEntry, LogField, LogFieldSet};
use crate::metrics::log::filter::LogFilter;

/// A consumer that passes only the last decisions on to another one.
#[derive(Debug)]
pub(super) struct LastDecisions<S> {
    consumer: S,
    limit: usize,
    lines: VecDeque<Box<[u8]>>,
}

impl<S: DecisionConsumer> LastDecisions<S> {
    pub(super) fn new(consumer: S, limit: usize) -> Self {
        Self {
            consumer,
            limit,
            lines: VecDeque::new(),
        }
    }

    /// Passes the decisions on, at the end of the log.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        let wanted = LogFieldSet::from_fields(self.consumer.fields());
        for line in &self.lines {
            // Every line was parsed before.
            if let Ok(entry) = LogEntry::parse(line, wanted) {
                self.consumer.accept(line, &entry)?;
            }
        }
        self.consumer.flush()
    }
}

impl<S: DecisionConsumer> DecisionConsumer for LastDecisions<S> {
    fn accept(&mut self, line: &[u8], _: &LogEntry<'_>) -> io::Result<()> {
        if self.lines.len() == self.limit {
            self.lines.pop_front();
        }
        self.lines.push_back(line.into());
        Ok(())
    }
}

/// A consumer that discards everything.
struct NoOutput;

impl DecisionConsumer for NoOutput {
    fn accept(&mut self, _: &[u8], _: &LogEntry<'_>) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the line of a decision, or the last one of a trace, from a log and its rotated files.
///
/// # Errors
/// If a file cannot be read.
pub(in crate::cli) fn find_decision(log: &Path, id: &str) -> io::Result<Option<Box<[u8]>>> {
    let field = if id.contains('-') {
        LogField::Decision
    } else {
        LogField::Trace
    };
    let filters = [LogFilter::equals(field, id)];
    let mut reader = DecisionLogReader::new(LastDecisions::new(NoOutput, 1), &filters, None);
    follow::read(log, FollowStart::Oldest, FollowUntil::End, &mut reader)?;
    Ok(reader.consumer.lines.pop_back())
}

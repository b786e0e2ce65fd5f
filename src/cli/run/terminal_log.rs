//! The decision log on a terminal: each line as text for people, as `crawlgate decisions` shows it.

use std::io::{self, Write};

use crate::cli::decisions::reader::DecisionConsumer as _;
use crate::cli::decisions::writers::DecisionTextWriter;
use crate::console::ConsoleColors;
use crate::metrics::log::entry::{LogEntry, LogFieldSet};

/// Receives lines of JSON from the log's writer thread, and writes them as text.
pub(super) struct TerminalLog<W> {
    output: W,
    text: DecisionTextWriter<Vec<u8>>,
    fields: LogFieldSet,
}

impl<W: Write> TerminalLog<W> {
    pub(super) fn new(output: W, colors: ConsoleColors) -> Self {
        let text = DecisionTextWriter::new(Vec::new(), colors);
        Self {
            output,
            fields: LogFieldSet::from_fields(text.fields()),
            text,
        }
    }

    /// Writes the text of the lines so far; what cannot be written is kept for the next call.
    fn write_text(&mut self) -> io::Result<()> {
        let text = self.text.output_mut();
        while !text.is_empty() {
            match self.output.write(text) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => drop(text.drain(..count.min(text.len()))),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl<W: Write> Write for TerminalLog<W> {
    /// Accepts whole lines. An error means that none of them was accepted.
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        self.write_text()?;
        let end = memchr::memrchr(b'\n', lines).map_or(lines.len(), |at| at + 1);
        let whole = lines.get(..end).unwrap_or_default();
        for line in whole
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
        {
            if let Ok(entry) = LogEntry::parse(line, self.fields) {
                self.text.accept(line, &entry)?;
            }
        }
        Ok(end)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.write_text()?;
        self.output.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A terminal that accepts a few bytes at a time, and is full at first.
    struct SlowTerminal {
        shown: Vec<u8>,
        full: bool,
    }

    impl Write for SlowTerminal {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.full = !self.full;
            if self.full {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let count = bytes.len().min(7);
            self.shown
                .extend_from_slice(bytes.get(..count).unwrap_or_default());
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_become_text_and_none_is_lost_or_shown_twice() {
        let line = |host: &str| {
            format!(
                "{{\"ts\":\"2026-11-23T08:00:00.000Z\",\"crawler\":\"news\",\"method\":\"GET\",\"url\":null,\
                 \"host\":\"{host}\",\"verdict\":\"reject\",\"reason\":\"rule\",\"rule\":\"no-cgi\",\"sent_status\":451}}\n"
            )
        };
        let mut log = TerminalLog::new(
            SlowTerminal {
                shown: vec![],
                full: false,
            },
            ConsoleColors::Plain,
        );
        for host in ["a.test", "b\\u001b.test"] {
            let text = line(host);
            while log.write(text.as_bytes()).is_err() {}
        }
        while log.flush().is_err() {}
        let shown = String::from_utf8(log.output.shown).unwrap();
        let lines: Vec<&str> = shown.lines().collect();
        let [first, second] = lines.as_slice() else {
            panic!("{shown}")
        };
        assert!(
            first.starts_with("2026-11-23T08:00:00.000Z  news") && first.ends_with("GET a.test"),
            "{first}"
        );
        assert!(
            second.contains("b") && !second.contains('\u{1b}'),
            "{second}"
        );
    }
}

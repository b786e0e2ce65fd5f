//! Output of decisions: an aligned line of text, or the line of the log for programs.
//!
//! Clients and origins control much of the text in a log, so control characters are escaped.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

use super::reader::DecisionConsumer;
use crate::cli::text::{is_harmful, sanitize_text};
use crate::console::{ConsoleColors, Tone};
use crate::metrics::log::entry::{LogEntry, LogField, LogValue};

/// The width up to which a column grows with its values; longer values are not cut.
const MAX_COLUMN_WIDTH: usize = 24;

/// A writer of decisions as text.
#[derive(Debug)]
pub(in crate::cli) struct DecisionTextWriter<W> {
    output: W,
    colors: ConsoleColors,
    /// The widths of the columns crawler, reason and rule.
    widths: [usize; 3],
    line: String,
}

impl<W: Write> DecisionTextWriter<W> {
    pub(in crate::cli) fn new(output: W, colors: ConsoleColors) -> Self {
        Self {
            output,
            colors,
            widths: [9, 10, 10],
            line: String::new(),
        }
    }

    pub(in crate::cli) fn output_mut(&mut self) -> &mut W {
        &mut self.output
    }

    fn push_faint(&mut self, text: &str) {
        match self.colors {
            ConsoleColors::Plain => self.line.push_str(text),
            ConsoleColors::Ansi => self.line.push_str(&self.colors.paint(Tone::Faint, text)),
        }
    }

    fn push_columns(&mut self, entry: &LogEntry<'_>) {
        for (field, width) in [LogField::Crawler, LogField::Reason, LogField::Rule]
            .into_iter()
            .zip(&mut self.widths)
        {
            let text = cell_text(entry, field);
            *width = text
                .chars()
                .count()
                .clamp(*width, MAX_COLUMN_WIDTH.max(*width));
            let _ = write!(self.line, "  {text:<width$}", width = *width);
            if field == LogField::Crawler {
                push_verdict(&mut self.line, entry, self.colors);
            }
        }
    }

    fn push_remarks(&mut self, entry: &LogEntry<'_>) {
        if let Some(held) = entry
            .value(LogField::HeldMs)
            .number()
            .filter(|held| *held > 0.0)
        {
            self.push_faint(&format!("  held {}", format_duration(held)));
        }
        for (field, label) in [
            (LogField::Error, ""),
            (LogField::Cause, ""),
            (LogField::RepeatOf, "repeats "),
        ] {
            if let Some(text) = entry.value(field).text() {
                let text = sanitize_text(&text).into_owned();
                self.push_faint(&format!("  {label}{text}"));
            }
        }
    }
}

impl<W: Write> DecisionConsumer for DecisionTextWriter<W> {
    fn fields(&self) -> Vec<LogField> {
        vec![
            LogField::Decision,
            LogField::Crawler,
            LogField::Method,
            LogField::Url,
            LogField::Host,
            LogField::Reason,
            LogField::Rule,
            LogField::HeldMs,
            LogField::SentStatus,
            LogField::Error,
            LogField::Cause,
            LogField::RepeatOf,
        ]
    }

    fn accept(&mut self, _: &[u8], entry: &LogEntry<'_>) -> io::Result<()> {
        self.line.clear();
        self.push_faint(&sanitize_text(&entry.text(LogField::Ts)));
        self.push_columns(entry);
        let subject = match entry.value(LogField::Url) {
            LogValue::Null => cell_text(entry, LogField::Host),
            LogValue::Text(_) | LogValue::Number(_) | LogValue::List(_) => {
                cell_text(entry, LogField::Url)
            }
        };
        let _ = write!(
            self.line,
            "  {} {subject}",
            cell_text(entry, LogField::Method)
        );
        self.push_remarks(entry);
        // For `explain --decision`.
        let id = entry.text(LogField::Decision);
        if &*entry.text(LogField::Verdict) != "allow" && !id.is_empty() {
            self.push_faint(&format!("  {}", sanitize_text(&id)));
        }
        self.line.push('\n');
        self.output.write_all(self.line.as_bytes())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

/// Adds the verdict and the status, such as `allow   200`.
fn push_verdict(line: &mut String, entry: &LogEntry<'_>, colors: ConsoleColors) {
    let (tone, word) = match &*entry.text(LogField::Verdict) {
        "allow" => (Tone::Good, Cow::Borrowed("allow")),
        "reject" => (Tone::Bad, "reject".into()),
        "shadow_reject" => (Tone::Warning, "shadow".into()),
        other => (Tone::Warning, sanitize_text(other).into_owned().into()),
    };
    let word = format!("{word:<6}");
    let _ = write!(
        line,
        "  {}  {:<3}",
        colors.paint(tone, word),
        cell_text(entry, LogField::SentStatus)
    );
}

fn cell_text(entry: &LogEntry<'_>, field: LogField) -> String {
    let text = entry.text(field);
    if text.is_empty() {
        "-".to_owned()
    } else {
        sanitize_text(&text).into_owned()
    }
}

/// Formats milliseconds, such as `35 ms` or `1.25 s`.
fn format_duration(ms: f64) -> String {
    if ms < 1_000.0 {
        format!("{ms:.0} ms")
    } else {
        format!("{:.2} s", ms / 1_000.0)
    }
}

/// A writer of the lines of the log.
#[derive(Debug)]
pub(super) struct DecisionLineWriter<W>(pub(super) W);

impl<W: Write> DecisionConsumer for DecisionLineWriter<W> {
    fn accept(&mut self, line: &[u8], _: &LogEntry<'_>) -> io::Result<()> {
        if line.iter().all(|byte| matches!(byte, 0x20..=0x7e)) {
            self.0.write_all(line)?;
        } else {
            self.0.write_all(escape_harmful(line).as_bytes())?;
        }
        self.0.write_all(b"\n")
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Returns equivalent JSON without harmful characters: control characters between values become spaces, harmful
/// characters in text become escapes.
fn escape_harmful(line: &[u8]) -> String {
    let mut clean = String::with_capacity(line.len());
    for character in String::from_utf8_lossy(line).chars() {
        match character {
            '\0'..='\x1f' => clean.push(' '),
            harmful if is_harmful(harmful) => drop(write!(clean, "\\u{:04x}", u32::from(harmful))),
            _ => clean.push(character),
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_changes_a_terminal_is_escaped() {
        let line = "{\"a\":\t\"\u{9b}\u{e9}\"}\r";
        let clean = escape_harmful(line.as_bytes());
        assert_eq!(clean, "{\"a\": \"\\u009b\u{e9}\"} ");
        let original: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&clean).unwrap(),
            original
        );
    }

    #[test]
    fn durations_are_short() {
        assert_eq!(
            (
                format_duration(0.4),
                format_duration(35.0),
                format_duration(1_250.0)
            ),
            ("0 ms".into(), "35 ms".into(), "1.25 s".into())
        );
    }
}

//! Decisions as they are shown: one aligned line each for people, or the line of the log for programs.
//!
//! What a log holds may come from anybody: no control character of it reaches a terminal.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

use super::reading::Sink;
use crate::cli::harmless::{harmless, is_harmful};
use crate::cli::paint::{Paint, Tone};
use crate::metrics::log::entry::{Cell, Entry, Field};

/// Columns grow with what they hold, up to here; what is longer is not cut.
const WIDEST: usize = 24;

/// Shows decisions to people.
#[derive(Debug)]
pub(super) struct ForPeople<W> {
    output: W,
    paint: Paint,
    /// Of the columns crawler, reason and rule.
    widths: [usize; 3],
    line: String,
}

impl<W: Write> ForPeople<W> {
    pub(super) fn new(output: W, paint: Paint) -> Self {
        Self {
            output,
            paint,
            widths: [9, 10, 10],
            line: String::new(),
        }
    }

    fn faint(&mut self, text: &str) {
        match self.paint {
            Paint::Plain => self.line.push_str(text),
            Paint::Colours => self.line.push_str(&self.paint.paint(Tone::Faint, text)),
        }
    }

    fn columns(&mut self, entry: &Entry<'_>) {
        for (field, width) in [Field::Crawler, Field::Reason, Field::Rule]
            .into_iter()
            .zip(&mut self.widths)
        {
            let text = shown(entry, field);
            *width = text.chars().count().clamp(*width, WIDEST.max(*width));
            let _ = write!(self.line, "  {text:<width$}", width = *width);
            if field == Field::Crawler {
                verdict(&mut self.line, entry, self.paint);
            }
        }
    }

    fn remarks(&mut self, entry: &Entry<'_>) {
        if let Some(held) = entry
            .cell(Field::HeldMs)
            .number()
            .filter(|held| *held > 0.0)
        {
            self.faint(&format!("  held {}", duration(held)));
        }
        if let Some(error) = entry.cell(Field::Error).text() {
            let error = harmless(&error).into_owned();
            self.faint(&format!("  {error}"));
        }
    }
}

impl<W: Write> Sink for ForPeople<W> {
    fn fields(&self) -> Vec<Field> {
        vec![
            Field::Crawler,
            Field::Method,
            Field::Url,
            Field::Host,
            Field::Reason,
            Field::Rule,
            Field::HeldMs,
            Field::SentStatus,
            Field::Error,
        ]
    }

    fn take(&mut self, _: &[u8], entry: &Entry<'_>) -> io::Result<()> {
        self.line.clear();
        self.faint(&harmless(&entry.text(Field::Ts)));
        self.columns(entry);
        let subject = match entry.cell(Field::Url) {
            Cell::Null => shown(entry, Field::Host),
            Cell::Text(_) | Cell::Number(_) | Cell::Many(_) => shown(entry, Field::Url),
        };
        let _ = write!(self.line, "  {} {subject}", shown(entry, Field::Method));
        self.remarks(entry);
        self.line.push('\n');
        self.output.write_all(self.line.as_bytes())
    }

    fn pause(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

/// `allow   200`.
fn verdict(line: &mut String, entry: &Entry<'_>, paint: Paint) {
    let (tone, word) = match &*entry.text(Field::Verdict) {
        "allow" => (Tone::Good, Cow::Borrowed("allow")),
        "reject" => (Tone::Bad, "reject".into()),
        "shadow_reject" => (Tone::Doubt, "shadow".into()),
        other => (Tone::Doubt, harmless(other).into_owned().into()),
    };
    let word = format!("{word:<6}");
    let _ = write!(
        line,
        "  {}  {:<3}",
        paint.paint(tone, word),
        shown(entry, Field::SentStatus)
    );
}

fn shown(entry: &Entry<'_>, field: Field) -> String {
    let text = entry.text(field);
    if text.is_empty() {
        "-".to_owned()
    } else {
        harmless(&text).into_owned()
    }
}

/// `35 ms`, `1.25 s`.
fn duration(ms: f64) -> String {
    if ms < 1_000.0 {
        format!("{ms:.0} ms")
    } else {
        format!("{:.2} s", ms / 1_000.0)
    }
}

/// Shows the lines of the log.
#[derive(Debug)]
pub(super) struct ForPrograms<W>(pub(super) W);

impl<W: Write> Sink for ForPrograms<W> {
    fn fields(&self) -> Vec<Field> {
        Vec::new()
    }

    fn take(&mut self, line: &[u8], _: &Entry<'_>) -> io::Result<()> {
        if line.iter().all(|byte| matches!(byte, 0x20..=0x7e)) {
            self.0.write_all(line)?;
        } else {
            self.0.write_all(same_value(line).as_bytes())?;
        }
        self.0.write_all(b"\n")
    }

    fn pause(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// The same JSON without what is harmful: controls between values become blanks, within text there are escapes.
fn same_value(line: &[u8]) -> String {
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
    fn nothing_reaches_a_terminal_that_changes_it() {
        let line = "{\"a\":\t\"\u{9b}\u{e9}\"}\r";
        let clean = same_value(line.as_bytes());
        assert_eq!(clean, "{\"a\": \"\\u009b\u{e9}\"} ");
        let (a, b): (serde_json::Value, serde_json::Value) = (
            serde_json::from_str(line).unwrap(),
            serde_json::from_str(&clean).unwrap(),
        );
        assert_eq!(a, b);
    }

    #[test]
    fn durations_are_short() {
        assert_eq!(
            (duration(0.4), duration(35.0), duration(1_250.0)),
            ("0 ms".into(), "35 ms".into(), "1.25 s".into())
        );
    }
}

//! Text for terminals: sanitized, counted, truncated, wrapped, and collected line by line.
//!
//! Output for programs keeps text from policies, URLs and logs unchanged.

use std::borrow::Cow;

use crate::console::{ConsoleColors, Tone};

const DEFAULT_WIDTH: usize = 100;

/// Returns the number of columns for text: `COLUMNS`, else the width of the terminal, else [`DEFAULT_WIDTH`].
pub(super) fn output_width() -> usize {
    std::env::var("COLUMNS")
        .ok()
        .and_then(|columns| columns.trim().parse().ok())
        .filter(|columns| *columns > 0)
        .or_else(terminal_width)
        .unwrap_or(DEFAULT_WIDTH)
}

fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    (size.ws_col > 0).then(|| usize::from(size.ws_col))
}

/// A text report under construction.
pub(super) struct ReportText {
    text: String,
    pub(super) colors: ConsoleColors,
    /// The number of columns of the output.
    pub(super) width: usize,
}

impl ReportText {
    /// Creates an empty report.
    pub(super) fn new(colors: ConsoleColors, width: usize) -> Self {
        Self {
            text: String::new(),
            colors,
            width,
        }
    }

    /// Adds a line, without its trailing spaces.
    pub(super) fn push_line(&mut self, line: &str) {
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    /// Adds an empty line and a headline.
    pub(super) fn push_headline(&mut self, headline: &str) {
        let headline = self.colors.paint(Tone::Strong, headline);
        self.push_line("");
        self.push_line(&headline);
    }

    pub(super) fn into_string(self) -> String {
        self.text
    }
}

/// Escapes the characters that change a terminal or the direction of its text.
pub(super) fn sanitize_text(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|byte| matches!(byte, 0x20..=0x7e)) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len());
    for character in text.chars() {
        if is_harmful(character) {
            clean.extend(character.escape_unicode());
        } else {
            clean.push(character);
        }
    }
    Cow::Owned(clean)
}

/// Returns `true` for control characters, and for marks that hide text or change its direction.
pub(super) fn is_harmful(character: char) -> bool {
    matches!(
        character,
        '\0'..='\x1f'
            | '\x7f'..='\u{9f}'
            | '\u{61c}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
    )
}

/// Replaces each harmful character with a space, so that neither a policy nor a URL can control the terminal.
pub(super) fn replace_controls(text: &str) -> String {
    text.replace(is_harmful, " ")
}

/// Cuts a text to a number of columns, with `…` at the end if it was longer.
pub(super) fn truncate(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars()
        .take(width.saturating_sub(1))
        .chain(['…'])
        .collect()
}

/// Wraps a text at spaces into lines of at most `width` columns; a longer word gets a line of its own.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) | None => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Formats a count with its noun, such as `1 line` or `10,000 lines`.
pub(super) fn pluralize(number: usize, noun: &str) -> String {
    if number == 1 {
        format!("1 {noun}")
    } else {
        format!("{} {noun}s", group_digits(number))
    }
}

/// Formats a number with thousands separators, such as `10,000`.
pub(super) fn group_digits(number: usize) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_changes_a_terminal_is_escaped() {
        for (text, clean) in [
            ("http://a/b?c=d", "http://a/b?c=d"),
            ("\u{1b}[2J\r\n", "\\u{1b}[2J\\u{d}\\u{a}"),
            ("a\u{9b}31m\u{7f}", "a\\u{9b}31m\\u{7f}"),
            ("caf\u{e9} \u{202e}gpj.exe", "caf\u{e9} \\u{202e}gpj.exe"),
        ] {
            assert_eq!(sanitize_text(text), clean);
        }
        assert_eq!(replace_controls("a\x1b[31m\nb"), "a [31m b");
    }

    #[test]
    fn texts_are_cut_by_characters() {
        assert_eq!(truncate("äöü", 3), "äöü");
        assert_eq!(truncate("äöüß", 3), "äö…");
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
    }

    #[test]
    fn large_numbers_are_grouped() {
        for (number, expected) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(group_digits(number), expected);
        }
    }
}

//! Colours for people: only on a terminal, and not if `NO_COLOR` is set (no-color.org).

use std::fmt::Display;
use std::io::IsTerminal;

use crate::diagnostics::snippet::ColourMode;

/// What a piece of text means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    /// Allowed, passed.
    Good,
    /// Refused, failed, an error.
    Bad,
    /// A warning, undecided.
    Warning,
    /// Of less interest.
    Faint,
    /// A headline.
    Strong,
}

/// Whether colours are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConsoleColors {
    Ansi,
    Plain,
}

impl ConsoleColors {
    /// What suits standard output.
    pub(super) fn for_stdout() -> Self {
        Self::for_terminal(std::io::stdout().is_terminal())
    }

    /// What suits standard error.
    pub(super) fn for_stderr() -> Self {
        Self::for_terminal(std::io::stderr().is_terminal())
    }

    fn for_terminal(terminal: bool) -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        if terminal && !refused {
            Self::Ansi
        } else {
            Self::Plain
        }
    }

    /// The text in the colour of its meaning.
    pub(super) fn paint(self, tone: Tone, text: impl Display) -> String {
        match self {
            Self::Plain => text.to_string(),
            Self::Ansi => format!("\x1b[{}m{text}\x1b[0m", tone.code()),
        }
    }
}

impl From<ConsoleColors> for ColourMode {
    fn from(paint: ConsoleColors) -> Self {
        match paint {
            ConsoleColors::Ansi => Self::Coloured,
            ConsoleColors::Plain => Self::Plain,
        }
    }
}

impl Tone {
    fn code(self) -> &'static str {
        match self {
            Self::Good => "32",
            Self::Bad => "31",
            Self::Warning => "33",
            Self::Faint => "2",
            Self::Strong => "1",
        }
    }
}

/// How many columns a text may have: `COLUMNS`, else the terminal's, else 100.
pub(super) fn output_width() -> usize {
    let given = std::env::var("COLUMNS")
        .ok()
        .and_then(|columns| columns.trim().parse().ok());
    given
        .filter(|columns| *columns > 0)
        .or_else(terminal_width)
        .unwrap_or(DEFAULT_WIDTH)
}

/// The width where nothing says another.
const DEFAULT_WIDTH: usize = 100;

fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    (size.ws_col > 0).then(|| usize::from(size.ws_col))
}

/// A text cut to a width, with `…` where something is missing.
pub(super) fn truncate(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars()
        .take(width.saturating_sub(1))
        .chain(['…'])
        .collect()
}

/// A text in lines of at most so many columns, broken at spaces; a word that is longer stands alone.
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

/// A text without control characters: neither a policy nor a URL writes to the operator's terminal.
pub(super) fn replace_controls(text: &str) -> String {
    text.replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_has_no_escapes() {
        assert_eq!(ConsoleColors::Plain.paint(Tone::Bad, "no"), "no");
        assert_eq!(
            ConsoleColors::Ansi.paint(Tone::Bad, "no"),
            "\x1b[31mno\x1b[0m"
        );
    }

    #[test]
    fn texts_are_cut_by_characters() {
        assert_eq!(truncate("äöü", 3), "äöü");
        assert_eq!(truncate("äöüß", 3), "äö…");
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(replace_controls("a\x1b[31m\nb"), "a [31m b");
    }
}

//! Colours for people: only on a terminal, and not if `NO_COLOR` is set (no-color.org).

use std::fmt::Display;
use std::io::IsTerminal;

use crate::vocab::snippet::Ink;

/// What a piece of text means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    /// Allowed, passed.
    Good,
    /// Refused, failed, an error.
    Bad,
    /// A warning, undecided.
    Doubt,
    /// Of less interest.
    Faint,
    /// A headline.
    Strong,
}

/// Whether colours are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Paint {
    Colours,
    Plain,
}

impl Paint {
    /// What suits standard output.
    pub(super) fn for_stdout() -> Self {
        Self::when(std::io::stdout().is_terminal())
    }

    /// What suits standard error.
    pub(super) fn for_stderr() -> Self {
        Self::when(std::io::stderr().is_terminal())
    }

    fn when(terminal: bool) -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        if terminal && !refused { Self::Colours } else { Self::Plain }
    }

    /// The text in the colour of its meaning.
    pub(super) fn paint(self, tone: Tone, text: impl Display) -> String {
        match self {
            Self::Plain => text.to_string(),
            Self::Colours => format!("\x1b[{}m{text}\x1b[0m", tone.code()),
        }
    }
}

impl From<Paint> for Ink {
    fn from(paint: Paint) -> Self {
        match paint {
            Paint::Colours => Self::Colours,
            Paint::Plain => Self::Plain,
        }
    }
}

impl Tone {
    fn code(self) -> &'static str {
        match self {
            Self::Good => "32",
            Self::Bad => "31",
            Self::Doubt => "33",
            Self::Faint => "2",
            Self::Strong => "1",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_has_no_escapes() {
        assert_eq!(Paint::Plain.paint(Tone::Bad, "no"), "no");
        assert_eq!(Paint::Colours.paint(Tone::Bad, "no"), "\x1b[31mno\x1b[0m");
    }
}

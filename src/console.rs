//! Messages on standard error for the operator, in colour on a terminal.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use crate::diagnostics::problem::{Problem, Severity};
use crate::diagnostics::snippet::{self, ColourMode};

/// The meaning of a piece of text, which selects its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
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

/// Selects between coloured and plain text: colour only on a terminal, and not if `NO_COLOR` is set (no-color.org).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConsoleColors {
    Ansi,
    Plain,
}

impl ConsoleColors {
    /// Returns the mode for standard output.
    pub(crate) fn for_stdout() -> Self {
        Self::for_terminal(io::stdout().is_terminal())
    }

    /// Returns the mode for standard error.
    pub(crate) fn for_stderr() -> Self {
        Self::for_terminal(io::stderr().is_terminal())
    }

    fn for_terminal(terminal: bool) -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        if terminal && !refused {
            Self::Ansi
        } else {
            Self::Plain
        }
    }

    /// Returns the text in the colour of its tone.
    pub(crate) fn paint(self, tone: Tone, text: impl Display) -> String {
        match self {
            Self::Plain => text.to_string(),
            Self::Ansi => format!("\x1b[{}m{text}\x1b[0m", tone.code()),
        }
    }
}

impl From<ConsoleColors> for ColourMode {
    fn from(colors: ConsoleColors) -> Self {
        match colors {
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

/// Prints an error.
pub(crate) fn error(message: &dyn Display) {
    print_labeled(Tone::Bad, "error", message);
}

/// Prints a warning.
pub(crate) fn warn(message: &dyn Display) {
    print_labeled(Tone::Warning, "warning", message);
}

/// Prints a remark that is neither a result nor a problem, such as the policy that a command used.
pub(crate) fn note(message: &dyn Display) {
    print_labeled(Tone::Faint, "note", message);
}

/// Prints problems, each with the line of the file that it is in.
pub(crate) fn print_problems(problems: &[Problem]) {
    let colors = ConsoleColors::for_stderr();
    let mut output = io::stderr().lock();
    for problem in problems {
        let _ = writeln!(output, "{}", render_problem(problem, colors));
    }
}

fn render_problem(problem: &Problem, colors: ConsoleColors) -> String {
    let tone = match problem.severity {
        Severity::Error => Tone::Bad,
        Severity::Warning => Tone::Warning,
        Severity::Advice => Tone::Faint,
    };
    let label = problem.severity.as_str();
    snippet::render(problem, colors.into()).replacen(
        &format!(": {label}: "),
        &format!(": {}: ", colors.paint(tone, label)),
        1,
    )
}

fn print_labeled(tone: Tone, label: &str, message: &dyn Display) {
    let label = ConsoleColors::for_stderr().paint(tone, label);
    let _ = writeln!(io::stderr().lock(), "{label}: {message}");
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
}

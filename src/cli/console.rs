//! Writing to standard output and standard error.

use std::fmt::Display;
use std::io::{self, Write};

use crate::diagnostics::problem::{Problem, Severity};
use crate::diagnostics::snippet;

use super::Exit;
use super::color::{ConsoleColors, Tone};

/// Writes an answer to standard output; `exit` if that works.
pub(super) fn print(text: &str, exit: Exit) -> Exit {
    let mut output = io::stdout().lock();
    match output
        .write_all(text.as_bytes())
        .and_then(|()| output.flush())
    {
        Ok(()) => exit,
        Err(error) => report_io_error(&error),
    }
}

/// Reading or writing failed. A reader that has left (`| head`) is an end, not a failure: nobody is there to be told.
pub(super) fn report_io_error(error: &io::Error) -> Exit {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return Exit::Success;
    }
    print_labeled(Tone::Bad, "error", error);
    Exit::CannotRun
}

/// Tells on standard error why the command cannot run.
pub(super) fn report_cannot_run(mistake: &dyn Display) -> Exit {
    print_labeled(Tone::Bad, "error", mistake);
    Exit::CannotRun
}

/// Tells on standard error why the command was not done.
pub(super) fn report_invalid(mistake: &dyn Display) -> Exit {
    print_labeled(Tone::Bad, "error", mistake);
    Exit::Invalid
}

/// Tells on standard error what is doubtful; the command goes on.
pub(super) fn warn(doubt: &dyn Display) {
    print_labeled(Tone::Warning, "warning", doubt);
}

/// Tells problems on standard error, each with the line it is in.
pub(super) fn print_problems(problems: &[Problem]) {
    let paint = ConsoleColors::for_stderr();
    let mut output = io::stderr().lock();
    for problem in problems {
        let _ = writeln!(output, "{}", render_problem(problem, paint));
    }
}

fn render_problem(problem: &Problem, paint: ConsoleColors) -> String {
    let tone = match problem.severity {
        Severity::Error => Tone::Bad,
        Severity::Warning => Tone::Warning,
        Severity::Advice => Tone::Faint,
    };
    let word = problem.severity.as_str();
    let shown = snippet::render(problem, paint.into());
    shown.replacen(
        &format!(": {word}: "),
        &format!(": {}: ", paint.paint(tone, word)),
        1,
    )
}

fn print_labeled(tone: Tone, word: &str, what: &dyn Display) {
    let word = ConsoleColors::for_stderr().paint(tone, word);
    let _ = writeln!(io::stderr().lock(), "{word}: {what}");
}

//! Writing to standard output and standard error.

use std::fmt::Display;
use std::io::{self, Write};

use crate::vocab::problem::{Problem, Severity};
use crate::vocab::snippet;

use super::Exit;
use super::paint::{Paint, Tone};

/// Writes an answer to standard output; `exit` if that works.
pub(super) fn write(text: &str, exit: Exit) -> Exit {
    let mut output = io::stdout().lock();
    match output
        .write_all(text.as_bytes())
        .and_then(|()| output.flush())
    {
        Ok(()) => exit,
        Err(error) => failed(&error),
    }
}

/// Reading or writing failed. A reader that has left (`| head`) is an end, not a failure: nobody is there to be told.
pub(super) fn failed(error: &io::Error) -> Exit {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return Exit::Success;
    }
    say(Tone::Bad, "error", error);
    Exit::CannotRun
}

/// Tells on standard error why the command cannot run.
pub(super) fn say_and_fail(mistake: &dyn Display) -> Exit {
    say(Tone::Bad, "error", mistake);
    Exit::CannotRun
}

/// Tells on standard error why the command was not done.
pub(super) fn complain(mistake: &dyn Display) -> Exit {
    say(Tone::Bad, "error", mistake);
    Exit::Invalid
}

/// Tells on standard error what is doubtful; the command goes on.
pub(super) fn warn(doubt: &dyn Display) {
    say(Tone::Doubt, "warning", doubt);
}

/// Tells problems on standard error, each with the line it is in.
pub(super) fn tell(problems: &[Problem]) {
    let paint = Paint::for_stderr();
    let mut output = io::stderr().lock();
    for problem in problems {
        let _ = writeln!(output, "{}", painted(problem, paint));
    }
}

fn painted(problem: &Problem, paint: Paint) -> String {
    let tone = match problem.severity {
        Severity::Error => Tone::Bad,
        Severity::Warning => Tone::Doubt,
        Severity::Advice => Tone::Faint,
    };
    let word = problem.severity.as_str();
    let shown = snippet::rendered(problem, paint.into());
    shown.replacen(
        &format!(": {word}: "),
        &format!(": {}: ", paint.paint(tone, word)),
        1,
    )
}

fn say(tone: Tone, word: &str, what: &dyn Display) {
    let word = Paint::for_stderr().paint(tone, word);
    let _ = writeln!(io::stderr().lock(), "{word}: {what}");
}

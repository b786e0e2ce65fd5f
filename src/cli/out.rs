//! Writing to standard output and standard error.

use std::fmt::Display;
use std::io::Write;

use super::Exit;
use super::paint::{Paint, Tone};

/// Writes to standard output.
///
/// A reader that has left (`| head`) is no error: nobody is there to be told.
pub(super) fn write(text: &str) {
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}

/// Tells what is wrong on standard error.
pub(super) fn complain(mistake: &dyn Display) -> Exit {
    say(Tone::Bad, "error", mistake);
    Exit::Invalid
}

/// Tells on standard error what is doubtful.
pub(super) fn warn(doubt: &dyn Display) {
    say(Tone::Doubt, "warning", doubt);
}

fn say(tone: Tone, word: &str, what: &dyn Display) {
    let word = Paint::for_stderr().paint(tone, word);
    let _ = writeln!(std::io::stderr().lock(), "{word}: {what}");
}

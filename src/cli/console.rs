//! Writing to standard output and standard error.

use std::fmt::Display;
use std::io::{self, Write};

pub(super) use crate::console::{print_problems, warn};

use super::Exit;

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
    report_cannot_run(error)
}

/// Tells on standard error why the command cannot run.
pub(super) fn report_cannot_run(mistake: &dyn Display) -> Exit {
    crate::console::error(mistake);
    Exit::CannotRun
}

/// Tells on standard error why the command was not done.
pub(super) fn report_invalid(mistake: &dyn Display) -> Exit {
    crate::console::error(mistake);
    Exit::Invalid
}

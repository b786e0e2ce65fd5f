//! Output to standard output and standard error.

use std::fmt::Display;
use std::io::{self, Write};

pub(super) use crate::console::{note, print_problems, warn};

use super::Exit;

/// Writes a result to standard output, and returns `exit` if that succeeds.
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

/// Reports a failed read or write on standard error.
///
/// A broken pipe is not a failure: the reader of the output (`| head`) has seen enough.
pub(super) fn report_io_error(error: &io::Error) -> Exit {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return Exit::Success;
    }
    report_cannot_run(error)
}

/// Reports on standard error that the command cannot run.
pub(super) fn report_cannot_run(error: &dyn Display) -> Exit {
    crate::console::error(error);
    Exit::CannotRun
}

/// Reports wrong usage or invalid input on standard error.
pub(super) fn report_invalid(error: &dyn Display) -> Exit {
    crate::console::error(error);
    Exit::Invalid
}

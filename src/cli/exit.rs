//! Exit codes: one enum for all commands (operations.md, "Commands").

use std::process::{ExitCode, Termination};

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// It did what it was asked.
    Success = 0,
    /// The answer is no: a failing case, a rejected URL with `--exit-code`, warnings under `--strict`, an input
    /// line that cannot be read.
    Negative = 1,
    /// Wrong usage, or a file that is missing or has mistakes.
    Invalid = 2,
    /// It cannot run: a port is taken, there is no certificate authority.
    CannotRun = 3,
}

impl Termination for Exit {
    fn report(self) -> ExitCode {
        ExitCode::from(self as u8)
    }
}

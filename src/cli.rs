//! The command line: arguments in, exit code out.
//!
//! One file a command. A command prints its answer on standard output and its mistakes on standard error, and
//! says with its [`Exit`] what a script needs to know.

pub mod args;
mod given;
mod judged;
mod out;
mod decide;
mod exit;
mod explain;
mod open;
mod paint;



use std::ffi::OsString;

use clap::Parser;

use args::{Arguments, Command};
pub use exit::Exit;

/// Runs the command that the arguments name (the first of them is the program's own name).
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> Exit {
    match Arguments::try_parse_from(arguments) {
        Ok(arguments) => dispatch(arguments.command),
        Err(asked) => usage(&asked),
    }
}

fn dispatch(command: Command) -> Exit {
    match command {

        Command::Explain(args) => explain::run(&args),
        Command::Decide(args) => decide::run(&args),

    }
}

/// Prints what clap has to say: help and version on standard output, mistakes on standard error.
fn usage(asked: &clap::Error) -> Exit {
    // Nothing is left to do when even this cannot be written.
    let _ = asked.print();
    if asked.use_stderr() { Exit::Invalid } else { Exit::Success }
}

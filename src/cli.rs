//! The command line.
//!
//! Each command has a file of its own. A command writes its result to standard output and errors to standard error,
//! and returns an [`Exit`] code for scripts.

mod admin_client;
pub mod args;
mod ca;
mod check;
mod color;
mod completions;
mod console;
mod decide;
pub mod decisions;
mod demo;
mod diff;
mod env;
mod exit;
mod explain;
mod inputs;
mod ledger;
mod logging;
mod password;
mod progress;
pub mod robots;
mod run;
mod sanitize;
mod schema;
mod shadow;
mod stop;
pub mod target;
mod test;

use std::ffi::OsString;

use clap::Parser;

use args::{Arguments, Command, OutputFormat, TargetArgs};
pub use exit::Exit;

/// Parses the arguments, of which the first is the program's name, and runs the command.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> Exit {
    match Arguments::try_parse_from(arguments) {
        Ok(arguments) => dispatch(arguments.command),
        Err(error) => print_usage(&error),
    }
}

fn dispatch(command: Command) -> Exit {
    match command {
        Command::Run(args) => run::run(&args),
        Command::Demo => demo::run(),
        Command::Check(args) => check::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Decide(args) => decide::run(&args),
        Command::Decisions(args) => decisions::run(&args),
        Command::Test(args) => test::run(&args),
        Command::Diff(args) => diff::run(&args),
        Command::Robots(args) => robots::run(&args),
        Command::Target(args) => show_targets(&args),
        Command::Ca(args) => ca::run(&args),
        Command::Env(args) => env::run(&args),
        Command::Schema(args) => schema::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::Password => password::run(),
        Command::Shadow(args) => shadow::run(&args),
        Command::Ledger(args) => ledger::run(&args.command),
        Command::Stop(args) => stop::run(&args),
    }
}

/// Runs `target`. Exits with 1 if any input is not a URL, as `decide` does.
fn show_targets(args: &TargetArgs) -> Exit {
    let format = match args.format {
        OutputFormat::Text => target::TargetFormat::Text,
        OutputFormat::Json => target::TargetFormat::Json,
    };
    let mut input = std::io::stdin().lock();
    let mut output = std::io::stdout().lock();
    match target::run(&args.urls, format, &mut input, &mut output) {
        Ok(0) => Exit::Success,
        Ok(_) => Exit::Negative,
        Err(error) => console::report_io_error(&error),
    }
}

/// Prints clap's output: help and version on standard output, usage errors on standard error.
fn print_usage(error: &clap::Error) -> Exit {
    // If this cannot be written, no channel is left to report it on.
    let _ = error.print();
    if error.use_stderr() {
        Exit::Invalid
    } else {
        Exit::Success
    }
}

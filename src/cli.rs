//! The command line: arguments in, exit code out.
//!
//! One file a command. A command prints its answer on standard output and its mistakes on standard error, and
//! says with its [`Exit`] what a script needs to know.

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

/// Runs the command that the arguments name (the first of them is the program's own name).
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> Exit {
    match Arguments::try_parse_from(arguments) {
        Ok(arguments) => dispatch(arguments.command),
        Err(asked) => print_usage(&asked),
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

/// Exit 1 if any input is no URL, as for `decide`.
fn show_targets(args: &TargetArgs) -> Exit {
    let format = match args.format {
        OutputFormat::Text => target::TargetFormat::Text,
        OutputFormat::Json => target::TargetFormat::Json,
    };
    let (mut input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
    match target::run(&args.urls, format, &mut input, &mut output) {
        Ok(0) => Exit::Success,
        Ok(_) => Exit::Negative,
        Err(error) => console::report_io_error(&error),
    }
}

/// Prints what clap has to say: help and version on standard output, mistakes on standard error.
fn print_usage(error: &clap::Error) -> Exit {
    // Nothing is left to do when even this cannot be written.
    let _ = error.print();
    if error.use_stderr() {
        Exit::Invalid
    } else {
        Exit::Success
    }
}

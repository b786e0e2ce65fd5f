//! The command line.
//!
//! Each command has a file of its own. A command writes its result to standard output and errors to standard error,
//! and returns an [`Exit`] code for scripts.

mod admin_client;
mod annotation;
mod args;
mod ca;
mod check;
mod console;
mod decide;
mod decisions;
mod demo;
mod diff;
mod env;
mod explain;
mod find;
mod fleet;
mod generate;
mod health;
mod identity;
mod import;
mod init;
mod inputs;
mod ledger;
mod logging;
mod password;
mod policy;
mod progress;
mod reload;
mod robots;
mod rollout;
mod run;
mod running_proxy;
mod shadow;
mod status;
mod stop;
mod target;
mod test;
mod text;

use std::ffi::OsString;
use std::process::{ExitCode, Termination};

use clap::Parser;

use args::{Arguments, Command};

/// The exit code of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// The command succeeded.
    Success = 0,
    /// The result is negative: a failing case, a rejected URL with `--exit-code`, warnings with `--strict`, an input
    /// line that cannot be read.
    Negative = 1,
    /// The usage is wrong, or a file is missing or invalid.
    Invalid = 2,
    /// The command cannot run: a port is in use, there is no certificate authority.
    CannotRun = 3,
}

impl Termination for Exit {
    fn report(self) -> ExitCode {
        ExitCode::from(self as u8)
    }
}

/// Parses the arguments, of which the first is the program's name, and runs the command.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> Exit {
    match Arguments::try_parse_from(arguments) {
        Ok(arguments) => dispatch(arguments.command).unwrap_or_else(|exit| exit),
        Err(error) => print_usage(&error),
    }
}

/// Runs a command. The error is the exit code of a command that ended early; its cause is reported.
fn dispatch(command: Command) -> Result<Exit, Exit> {
    match command {
        Command::Init(args) => Ok(init::run(&args)),
        Command::Import(args) => Ok(import::run(&args)),
        Command::Run(args) => run::run(&args),
        Command::Demo => demo::run(),
        Command::Check(args) => Ok(check::run(&args)),
        Command::Explain(args) => explain::run(&args),
        Command::Decide(args) => decide::run(&args),
        Command::Decisions(args) => decisions::run(&args),
        Command::Test(args) => test::run(&args),
        Command::Diff(args) => diff::run(&args),
        Command::Find(args) => find::run(&args),
        Command::Robots(args) => robots::run(&args),
        Command::Target(args) => Ok(target::run(&args)),
        Command::Ca(args) => ca::run(&args),
        Command::Identity(args) => identity::run(&args),
        Command::Fleet(args) => fleet::run(&args),
        Command::Env(args) => env::run(&args),
        Command::Schema(args) => Ok(generate::print_schema(&args)),
        Command::Completions(args) => Ok(generate::print_completions(&args)),
        Command::Man(args) => Ok(generate::write_manual(&args)),
        Command::Password => password::run(),
        Command::Status(args) => status::run(&args),
        Command::Health(args) => health::run(&args),
        Command::Reload(args) => reload::run(&args),
        Command::Shadow(args) => shadow::run(&args),
        Command::Policy(args) => policy::run(&args.command),
        Command::Ledger(args) => ledger::run(&args.command),
        Command::Stop(args) => stop::run(&args),
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

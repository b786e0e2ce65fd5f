//! `crawlgate schema`, `crawlgate completions` and `crawlgate man`: generated files for editors, shells and packages.

use std::fs;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::config::file;
use crate::policy::source;

use super::Exit;
use super::args::{Arguments, CompletionShell, CompletionsArgs, ManArgs, SchemaArgs, SchemaKind};
use super::console;

/// Prints the JSON Schema of policies or configurations.
pub(super) fn print_schema(args: &SchemaArgs) -> Exit {
    let schema = match args.of {
        SchemaKind::Policy => source::json_schema(),
        SchemaKind::Config => file::json_schema(),
    };
    console::print(&format!("{schema:#}\n"), Exit::Success)
}

/// Prints the completion script of a shell.
pub(super) fn print_completions(args: &CompletionsArgs) -> Exit {
    let shell = match args.shell {
        CompletionShell::Bash => Shell::Bash,
        CompletionShell::Zsh => Shell::Zsh,
        CompletionShell::Fish => Shell::Fish,
        CompletionShell::Powershell => Shell::PowerShell,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "crawlgate", &mut script);
    console::print(&String::from_utf8_lossy(&script), Exit::Success)
}

/// Writes `crawlgate.1`, and `crawlgate-COMMAND.1` for each command, into a directory.
pub(super) fn write_manual(args: &ManArgs) -> Exit {
    let written = fs::create_dir_all(&args.directory)
        .and_then(|()| clap_mangen::generate_to(Arguments::command(), &args.directory));
    match written {
        Ok(()) => Exit::Success,
        Err(error) => console::report_cannot_run(&format!("{}: {error}", args.directory.display())),
    }
}

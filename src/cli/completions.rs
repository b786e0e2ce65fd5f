//! `crawlgate completions`: what a shell needs to complete commands, options and their words.

use clap::CommandFactory;
use clap_complete::Shell as Known;

use super::Exit;
use super::args::{Arguments, CompletionShell, CompletionsArgs};
use super::console;

/// Runs the command.
pub(super) fn run(args: &CompletionsArgs) -> Exit {
    let shell = match args.shell {
        CompletionShell::Bash => Known::Bash,
        CompletionShell::Zsh => Known::Zsh,
        CompletionShell::Fish => Known::Fish,
        CompletionShell::Powershell => Known::PowerShell,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "crawlgate", &mut script);
    console::print(&String::from_utf8_lossy(&script), Exit::Success)
}

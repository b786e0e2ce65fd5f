//! Arguments of `identity`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Args, Debug)]
pub(crate) struct IdentityArgs {
    /// The command to run.
    #[command(subcommand)]
    pub command: IdentityCommand,
    /// Configuration file [default: the one that `run` would use]
    #[arg(long, value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,
}

/// The commands under `identity`.
#[derive(Debug, Subcommand)]
pub(crate) enum IdentityCommand {
    /// Create a key, for `crawlers.identity.key`
    Key(IdentityKeyArgs),
    /// Show the crawlers whose requests are signed, with their keys and directories
    Show,
    /// Write a signed key directory, and print the response fields with which a web server must serve it
    Directory(IdentityDirectoryArgs),
}

#[derive(Args, Debug)]
pub(crate) struct IdentityKeyArgs {
    /// File to write, which must not exist
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct IdentityDirectoryArgs {
    /// Origin of the directory, if the configuration has several [default: the only one]
    #[arg(long, value_name = "URL")]
    pub directory: Option<String>,
    /// File to write the directory to [default: standard output, after the fields]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Days for which the directory's signatures are valid
    #[arg(long, value_name = "N", default_value = "30", value_parser = clap::value_parser!(u16).range(1..=366))]
    pub days: u16,
}

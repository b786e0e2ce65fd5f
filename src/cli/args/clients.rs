//! What can be written after the commands that set clients up: `ca` and `env`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// Arguments of `ca`.
#[derive(Args, Debug)]
pub struct CaArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: CaCommand,
    /// The configuration; else the one that `run` would use
    #[arg(long, value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,
}

/// The commands under `ca`.
#[derive(Debug, Subcommand)]
pub enum CaCommand {
    /// Make the first authority of the configuration
    Init,
    /// Show who they are, how long they are valid and where they are
    Show,
    /// Write the certificates, for clients that shall trust them
    Export(CaExportArgs),
}

/// Arguments of `ca export`.
#[derive(Args, Debug)]
pub struct CaExportArgs {
    /// PEM holds all authorities, DER the one that signs
    #[arg(long, value_enum, default_value = "pem")]
    pub format: CaFormat,
    /// Where to; else standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// The form of an exported certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CaFormat {
    /// Text, one certificate after another.
    Pem,
    /// The bytes of one.
    Der,
}

/// Arguments of `env`.
#[derive(Args, Debug)]
pub struct EnvArgs {
    /// The configuration; else the one that `run` would use
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Whose language to print; else that of $SHELL, else sh
    #[arg(long, value_enum)]
    pub shell: Option<Shell>,
    /// The crawler whose own listener to name
    #[arg(long, value_name = "NAME")]
    pub crawler: Option<String>,
}

/// A shell's language.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// POSIX: sh, bash, zsh, dash.
    Sh,
    /// fish.
    Fish,
    /// PowerShell.
    Powershell,
}

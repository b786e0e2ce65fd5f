//! Arguments of the commands that set up clients: `ca` and `env`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::ProxyArgs;

#[derive(Args, Debug)]
pub(crate) struct CaArgs {
    /// The command to run.
    #[command(subcommand)]
    pub command: CaCommand,
    /// Configuration file [default: the one that `run` would use]
    #[arg(long, value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,
}

/// The commands under `ca`.
#[derive(Debug, Subcommand)]
pub(crate) enum CaCommand {
    /// Create each certificate authority of `tls.ca` that does not exist
    Init,
    /// Show the subject, validity, fingerprint and files of each certificate authority
    Show,
    /// Write the certificates, for installation on clients
    Export(CaExportArgs),
}

#[derive(Args, Debug)]
pub(crate) struct CaExportArgs {
    /// Format of the certificates
    #[arg(long, value_enum, default_value = "pem")]
    pub format: CaFormat,
    /// File to write, which must not exist [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// The format of exported certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CaFormat {
    /// PEM, with the certificates of all authorities.
    Pem,
    /// DER, with the certificate of the authority that signs.
    Der,
}

#[derive(Args, Debug)]
pub(crate) struct EnvArgs {
    /// The proxy to use.
    #[command(flatten)]
    pub proxy: ProxyArgs,
    /// Shell syntax to print [default: the shell in $SHELL, else sh]
    #[arg(long, value_enum)]
    pub shell: Option<Shell>,
    /// Use the listener of this crawler [default: the first listener for all crawlers]
    #[arg(long, value_name = "NAME")]
    pub crawler: Option<String>,
}

/// A shell syntax.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    /// POSIX shells: sh, bash, zsh, dash.
    Sh,
    /// fish
    Fish,
    /// PowerShell
    Powershell,
}

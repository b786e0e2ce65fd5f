//! Arguments of `crawlgate robots`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::OutputFormat;

#[derive(Args, Debug)]
pub(crate) struct RobotsArgs {
    /// The command to run.
    #[command(subcommand)]
    pub command: RobotsCommand,
}

/// The commands under `robots`.
#[derive(Debug, Subcommand)]
pub(crate) enum RobotsCommand {
    /// Check URLs against a robots.txt file
    Check(RobotsCheckArgs),
    /// Fetch a host's robots.txt as the proxy would, and show what it allows
    Fetch(RobotsFetchArgs),
}

#[derive(Args, Debug)]
pub(crate) struct RobotsCheckArgs {
    /// robots.txt file, `-` for standard input
    #[arg(long, value_name = "FILE")]
    pub file: PathBuf,
    /// User agent: a product token, a whole User-Agent, or * for all other crawlers
    #[arg(long, value_name = "AGENT")]
    pub agent: String,
    /// URLs, or paths that start with `/` [default: read from standard input, one per line]
    #[arg(value_name = "URL")]
    pub urls: Vec<String>,
    /// Format of each line of output
    #[arg(long, value_enum, default_value = "text")]
    pub format: OutputFormat,
}

#[derive(Args, Debug)]
pub(crate) struct RobotsFetchArgs {
    /// URL of the host; its path is checked against the robots.txt
    #[arg(value_name = "URL")]
    pub url: String,
    /// User agent: a product token, a whole User-Agent, or * for all other crawlers
    #[arg(long, value_name = "AGENT", default_value = "crawlgate")]
    pub agent: String,
    /// Configuration file, for `egress`, `timeouts` and `limits` [default: the one that `run` would use]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Format of the output
    #[arg(long, value_enum, default_value = "text")]
    pub format: OutputFormat,
}

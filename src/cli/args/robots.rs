//! What can be written after `crawlgate robots`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::OutputFormat;

/// Arguments of `robots`.
#[derive(Args, Debug)]
pub struct RobotsArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: RobotsCommand,
}

/// The commands under `robots`.
#[derive(Debug, Subcommand)]
pub enum RobotsCommand {
    /// Judge URLs by a robots.txt in a file
    Check(RobotsCheckArgs),
    /// Fetch a host's robots.txt as the proxy would, and say what it means
    Fetch(RobotsFetchArgs),
}

/// Arguments of `robots check`.
#[derive(Args, Debug)]
pub struct RobotsCheckArgs {
    /// The robots.txt; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub file: PathBuf,
    /// The crawler: a product token, or a User-Agent that begins with one
    #[arg(long, value_name = "AGENT")]
    pub agent: String,
    /// URLs, or paths that begin with `/`; without one, they are read from standard input, one a line
    #[arg(value_name = "URL")]
    pub urls: Vec<String>,
    /// The form of a line
    #[arg(long, value_enum, default_value = "text")]
    pub format: OutputFormat,
}

/// Arguments of `robots fetch`.
#[derive(Args, Debug)]
pub struct RobotsFetchArgs {
    /// A URL of the host; one with a path is judged too
    #[arg(value_name = "URL")]
    pub url: String,
    /// The crawler: a product token, or a User-Agent that begins with one
    #[arg(long, value_name = "AGENT", default_value = "crawlgate")]
    pub agent: String,
    /// The configuration, for `egress`, `timeouts` and `limits`; else the one that `run` would use
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The form of the answer
    #[arg(long, value_enum, default_value = "text")]
    pub format: OutputFormat,
}

//! What can be written after the commands that ask a running proxy: `shadow` and `stop`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{ArgGroup, Args};

use crate::config::load::Overrides;

use super::OutputFormat;

/// Which running proxy is asked.
#[derive(Args, Debug)]
pub struct ProxyArgs {
    /// The configuration; else the one that `run` would use
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where the admin API is, in place of the configuration's
    #[arg(long, value_name = "ADDR")]
    pub admin: Option<SocketAddr>,
}

impl ProxyArgs {
    /// What they change of the configuration.
    pub(crate) fn overrides(&self) -> Overrides {
        Overrides {
            config: self.config.clone(),
            admin: self.admin,
            ..Overrides::default()
        }
    }
}

/// Arguments of `shadow`.
#[derive(Args, Debug)]
pub struct ShadowArgs {
    /// The proxy that is asked
    #[command(flatten)]
    pub proxy: ProxyArgs,
    /// The form of the report
    #[arg(long, value_enum, default_value = "text")]
    pub format: OutputFormat,
}

/// Arguments of `stop`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("deed").required(true).args(["what", "list", "lift"]))]
pub struct StopArgs {
    /// What to stop: HOST, *.HOST (it and all below it), crawler:NAME or rule:ID
    #[arg(value_name = "WHAT", requires = "reason")]
    pub what: Option<String>,
    /// Why: one line, which crawlers are told
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["list", "lift"])]
    pub reason: Option<String>,
    /// For how long, such as 90s, 10m, 1h, 7d; without it, until it is lifted
    #[arg(long = "for", value_name = "TIME", conflicts_with_all = ["list", "lift"])]
    pub duration: Option<String>,
    /// Show what is stopped
    #[arg(long)]
    pub list: bool,
    /// Let what was stopped under this id go on
    #[arg(long, value_name = "ID")]
    pub lift: Option<String>,
    /// The proxy that is asked
    #[command(flatten)]
    pub proxy: ProxyArgs,
    /// The form of the answer
    #[arg(long, value_enum, default_value = "text")]
    pub format: OutputFormat,
}

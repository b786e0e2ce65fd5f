//! Arguments of the commands that query a running proxy: `health`, `reload`, `status` and `stop`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{ArgGroup, Args};

use crate::config::file::values::parse_socket_address;
use crate::config::load::Overrides;

use super::OutputFormat;

/// The running proxy to query.
#[derive(Args, Clone, Debug)]
pub(crate) struct ProxyArgs {
    /// Configuration file that names the proxy [default: $CRAWLGATE_CONFIG, else config/crawlgate.yaml if it exists]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Address and port of the proxy's admin API [default: `admin.listen` of the configuration, else 127.0.0.1:3129]
    #[arg(long, value_name = "ADDR", value_parser = parse_socket_address)]
    pub admin: Option<SocketAddr>,
}

impl ProxyArgs {
    /// Returns the overrides of the configuration.
    pub(crate) fn overrides(&self) -> Overrides {
        Overrides {
            config: self.config.clone(),
            admin: self.admin,
            ..Overrides::default()
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct HealthArgs {
    /// The proxy to query.
    #[command(flatten)]
    pub proxy: ProxyArgs,
    /// Ask only if the process answers (/healthz), not if it is ready for requests (/readyz)
    #[arg(long)]
    pub live: bool,
}

/// The arguments of `reload` and `status`.
#[derive(Args, Debug)]
pub(crate) struct ProxyReportArgs {
    /// The proxy to query.
    #[command(flatten)]
    pub proxy: ProxyArgs,
    /// Format of the report
    #[arg(long, value_enum, default_value = "text")]
    pub format: OutputFormat,
}

#[derive(Args, Debug)]
#[command(group = ArgGroup::new("deed").required(true).args(["what", "list", "lift"]))]
pub(crate) struct StopArgs {
    /// Requests to stop: HOST, *.HOST (the host and all subdomains), crawler:NAME or rule:ID
    #[arg(value_name = "WHAT", requires = "reason")]
    pub what: Option<String>,
    /// Reason of the stop: one line, which refused requests report to the crawler
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["list", "lift"])]
    pub reason: Option<String>,
    /// Duration of the stop, such as 90s, 10m, 1h, 7d; at most 366d [default: until it is lifted]
    #[arg(long = "for", value_name = "TIME", conflicts_with_all = ["list", "lift"])]
    pub duration: Option<String>,
    /// List the current stops
    #[arg(long)]
    pub list: bool,
    /// Lift the stop with this id
    #[arg(long, value_name = "ID")]
    pub lift: Option<String>,
    /// The proxy to query.
    #[command(flatten)]
    pub proxy: ProxyArgs,
    /// Format of the output
    #[arg(long, value_enum, default_value = "text")]
    pub format: OutputFormat,
}

//! Arguments of `crawlgate init`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use ipnet::IpNet;

use crate::model::rule_id::Slug;

#[derive(Args, Debug)]
pub(crate) struct InitArgs {
    /// Directory to write to; it is created if it does not exist
    #[arg(value_name = "DIR", default_value = ".")]
    pub directory: PathBuf,
    /// Name of the crawler, for rules, metrics and the log [default: crawler]
    #[arg(long, value_name = "NAME", value_parser = parse_crawler)]
    pub crawler: Option<Slug>,
    /// Networks that the crawler connects from, separated by commas [default: this machine only]
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    pub from: Vec<IpNet>,
    /// Evaluation of HTTPS: by url, or by host only [default: url]
    #[arg(long, value_enum, value_name = "HOW")]
    pub https: Option<HttpsMode>,
    /// Ask nothing: use the defaults of what is not given
    #[arg(long, short)]
    pub yes: bool,
    /// Overwrite files that exist
    #[arg(long)]
    pub force: bool,
}

/// The evaluation of requests over HTTPS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum HttpsMode {
    /// By URL: the proxy intercepts TLS, and crawlers must trust its certificate authority.
    Url,
    /// By host only: nothing inside a tunnel is evaluated.
    Host,
}

/// Parses a crawler's name. `anonymous` is the name of all clients that are no crawler of the configuration.
pub(in crate::cli) fn parse_crawler(text: &str) -> Result<Slug, String> {
    Slug::new(text)
        .filter(|name| name.as_str() != "anonymous")
        .ok_or_else(|| "write lower-case letters, digits and `-`, but not anonymous".to_owned())
}

//! Arguments of `crawlgate ledger`.

use std::path::PathBuf;
use std::time::SystemTime;

use clap::{Args, Subcommand, ValueEnum};

use crate::cli::decisions::since::Since;
use crate::report::url_filter;

use super::help::{
    LEDGER_EXPORT_HELP, LEDGER_FORGET_HELP, LEDGER_LIST_HELP, LEDGER_STATS_HELP, LEDGER_SWEEP_HELP,
};
use super::{OutputFormat, ProxyArgs, RowLimit};

#[derive(Args, Debug)]
pub(crate) struct LedgerArgs {
    /// The command to run.
    #[command(subcommand)]
    pub command: LedgerCommand,
}

/// The commands under `ledger`.
#[derive(Debug, Subcommand)]
pub(crate) enum LedgerCommand {
    /// List URLs of the ledger
    #[command(after_help = LEDGER_LIST_HELP)]
    List(LedgerListArgs),
    /// Show the number of URLs, by status
    #[command(after_help = LEDGER_STATS_HELP)]
    Stats(LedgerStatsArgs),
    /// Write URLs of the ledger for other programs
    #[command(after_help = LEDGER_EXPORT_HELP)]
    Export(LedgerExportArgs),
    /// Evaluate all URLs under the active policy, so that URLs that it excludes leave the indexes
    #[command(after_help = LEDGER_SWEEP_HELP)]
    Sweep(LedgerSweepArgs),
    /// Delete the records of a URL, a host or a prefix, so that these URLs count as new
    #[command(after_help = LEDGER_FORGET_HELP)]
    Forget(LedgerForgetArgs),
}

/// A filter of URLs.
#[derive(Args, Debug, Default)]
pub(crate) struct LedgerFilterArgs {
    /// Only URLs of this crawler
    #[arg(long, value_name = "NAME")]
    pub crawler: Option<String>,
    /// Only URLs of this host; *.HOST is the host and all subdomains
    #[arg(long, value_name = "HOST")]
    pub host: Option<String>,
    /// Only URLs with this last Crawl-Status, such as ACCEPTED or REJECTED_FILTER
    #[arg(long, value_name = "WORD")]
    pub status: Option<String>,
    /// Only URLs with this OmniFind code, such as 760
    #[arg(long, value_name = "NUMBER")]
    pub code: Option<String>,
    /// Only URLs that start with this text
    #[arg(long, value_name = "TEXT")]
    pub prefix: Option<String>,
    /// Only URLs that have been fetched at least once (true), or that have only been refused (false)
    #[arg(long, value_name = "BOOL")]
    pub known: Option<String>,
    /// Only URLs whose last request failed: permanent or temporary
    #[arg(long, value_name = "KIND")]
    pub error: Option<String>,
    /// Only URLs that were not requested since a time (2026-11-21, 2026-11-21T08:30:00Z) or for a duration (30d)
    #[arg(long, value_name = "TIME", value_parser = Since::parse)]
    pub not_seen_since: Option<Since>,
    /// Only URLs whose last request was refused for now or failed, so that the crawler has to request them again
    #[arg(long)]
    pub lost: bool,
}

impl LedgerFilterArgs {
    /// Returns the filters that are set, with their names in the admin API.
    pub(crate) fn to_pairs(&self, now: SystemTime) -> Vec<(&'static str, String)> {
        let lost = self.lost.then(|| "true".to_owned());
        let not_seen_since = self.not_seen_since.map(|since| since.to_timestamp(now));
        let values = [
            &self.crawler,
            &self.host,
            &self.status,
            &self.code,
            &self.prefix,
            &self.known,
            &self.error,
            &lost,
            &not_seen_since,
        ];
        let named = url_filter::KEYS.into_iter().zip(values);
        named
            .filter_map(|(key, value)| Some((key, value.clone()?)))
            .collect()
    }
}

/// The ledger to read.
#[derive(Args, Debug)]
pub(crate) struct LedgerSourceArgs {
    /// The proxy to query.
    #[command(flatten)]
    pub proxy: ProxyArgs,
    /// Read the files under `store.path`; no proxy may be using them
    #[arg(long, conflicts_with = "admin")]
    pub offline: bool,
}

#[derive(Args, Debug)]
pub(crate) struct LedgerListArgs {
    /// The URLs to list.
    #[command(flatten)]
    pub filter: LedgerFilterArgs,
    /// Maximum number of URLs, or `all`
    #[arg(long, value_name = "N", default_value = "100", value_parser = super::decisions::parse_limit)]
    pub limit: RowLimit,
    /// Format of the output
    #[arg(long, value_enum, default_value = "text")]
    pub format: LedgerRowFormat,
    /// The ledger to read.
    #[command(flatten)]
    pub source: LedgerSourceArgs,
}

/// The formats of rows, as of `ledger list`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LedgerRowFormat {
    /// Text for a terminal.
    Text,
    /// One JSON array.
    Json,
    /// One JSON object per line.
    Ndjson,
    /// CSV (RFC 4180) with a header line.
    Csv,
}

/// The formats of `ledger export`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LedgerExportFormat {
    /// One JSON object per line.
    Ndjson,
    /// CSV (RFC 4180) with a header line.
    Csv,
}

#[derive(Args, Debug)]
pub(crate) struct LedgerStatsArgs {
    /// Format of the output
    #[arg(long, value_enum, default_value = "text")]
    pub format: OutputFormat,
    /// The ledger to read.
    #[command(flatten)]
    pub source: LedgerSourceArgs,
}

#[derive(Args, Debug)]
pub(crate) struct LedgerExportArgs {
    /// The URLs to export.
    #[command(flatten)]
    pub filter: LedgerFilterArgs,
    /// Format of the export
    #[arg(long, value_enum, default_value = "ndjson")]
    pub format: LedgerExportFormat,
    /// File to write, which must not exist [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The ledger to read.
    #[command(flatten)]
    pub source: LedgerSourceArgs,
}

#[derive(Args, Debug)]
pub(crate) struct LedgerSweepArgs {
    /// Change nothing: count, and list the URLs that would be refused
    #[arg(long)]
    pub dry_run: bool,
    /// Evaluate this policy instead of the active one: a file, a directory of *.yaml files, or one that a proxy has kept (store.path/policies/REVISION)
    #[arg(long, value_name = "NEW", requires = "dry_run")]
    pub policy: Option<PathBuf>,
    /// Order removals that are held: all of them, or those of policy, robots_txt:HOST or noindex:HOST
    #[arg(long, value_name = "CAUSE", num_args = 0..=1, default_missing_value = "all", conflicts_with = "dry_run")]
    pub confirm: Option<String>,
    /// Format of the output
    #[arg(long, value_enum, default_value = "text")]
    pub format: OutputFormat,
    /// The proxy to query.
    #[command(flatten)]
    pub proxy: ProxyArgs,
    /// With --policy: read the files under `store.path`; no proxy may be using them
    #[arg(long, requires = "policy", conflicts_with = "admin")]
    pub offline: bool,
}

#[derive(Args, Debug)]
pub(crate) struct LedgerForgetArgs {
    /// The URLs to forget.
    #[command(flatten)]
    pub subject: LedgerForgetSubject,
    /// Only records of this crawler
    #[arg(long, value_name = "NAME")]
    pub crawler: Option<String>,
    /// Change nothing: count the records that would be deleted
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask before many records are deleted
    #[arg(long, short)]
    pub yes: bool,
    /// Format of the output
    #[arg(long, value_enum, default_value = "text")]
    pub format: OutputFormat,
    /// The ledger to change.
    #[command(flatten)]
    pub source: LedgerSourceArgs,
}

/// The URLs that `ledger forget` is about.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub(crate) struct LedgerForgetSubject {
    /// URL whose records are deleted, one for each crawler that requested it
    #[arg(value_name = "URL")]
    pub url: Option<String>,
    /// Delete the records of this host; *.HOST is the host and all subdomains
    #[arg(long, value_name = "HOST")]
    pub host: Option<String>,
    /// Delete the records of URLs that start with this text
    #[arg(long, value_name = "TEXT")]
    pub prefix: Option<String>,
}

//! What can be written after `crawlgate ledger`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::ledger::filter::LedgerFilter;

use super::help::{LEDGER_EXPORT_HELP, LEDGER_LIST_HELP, LEDGER_STATS_HELP, LEDGER_SWEEP_HELP};
use super::{OutputFormat, ProxyArgs, RowLimit};

/// Arguments of `ledger`.
#[derive(Args, Debug)]
pub struct LedgerArgs {
    /// What to do
    #[command(subcommand)]
    pub command: LedgerCommand,
}

/// What can be done with the ledger.
#[derive(Debug, Subcommand)]
pub enum LedgerCommand {
    /// Show URLs that are remembered
    #[command(after_help = LEDGER_LIST_HELP)]
    List(LedgerListArgs),
    /// Show how many there are, by what became of them
    #[command(after_help = LEDGER_STATS_HELP)]
    Stats(LedgerStatsArgs),
    /// Write all of them for another program
    #[command(after_help = LEDGER_EXPORT_HELP)]
    Export(LedgerExportArgs),
    /// Look at all of them under the policy in force: what it excludes by now leaves the indexes
    #[command(after_help = LEDGER_SWEEP_HELP)]
    Sweep(LedgerSweepArgs),
}

/// Which URLs.
#[derive(Args, Debug, Default)]
pub struct LedgerFilterArgs {
    /// Only those of this crawler
    #[arg(long, value_name = "NAME")]
    pub crawler: Option<String>,
    /// Only those of this host; *.HOST is it and all below it
    #[arg(long, value_name = "HOST")]
    pub host: Option<String>,
    /// Only those of which this became, a word of Crawl-Status: ACCEPTED, REJECTED_FILTER and so on
    #[arg(long, value_name = "WORD")]
    pub status: Option<String>,
    /// Only those with this number of OmniFind, such as 760
    #[arg(long, value_name = "NUMBER")]
    pub code: Option<String>,
    /// Only those that begin so
    #[arg(long, value_name = "TEXT")]
    pub prefix: Option<String>,
    /// Only those that were ever fetched (true), or of which only refusals are known (false)
    #[arg(long, value_name = "BOOL")]
    pub known: Option<String>,
}

impl LedgerFilterArgs {
    /// What was said, by the names of the filters.
    pub(crate) fn to_pairs(&self) -> Vec<(&'static str, String)> {
        let values = [
            &self.crawler,
            &self.host,
            &self.status,
            &self.code,
            &self.prefix,
            &self.known,
        ];
        let named = LedgerFilter::KEYS.into_iter().zip(values);
        named
            .filter_map(|(key, value)| Some((key, value.clone()?)))
            .collect()
    }
}

/// Where the ledger is.
#[derive(Args, Debug)]
pub struct LedgerSourceArgs {
    /// The proxy that is asked
    #[command(flatten)]
    pub proxy: ProxyArgs,
    /// Read the files under store.path, which takes that no proxy has them
    #[arg(long, conflicts_with = "admin")]
    pub offline: bool,
}

/// Arguments of `ledger list`.
#[derive(Args, Debug)]
pub struct LedgerListArgs {
    /// Which
    #[command(flatten)]
    pub filter: LedgerFilterArgs,
    /// How many at most, or `all`
    #[arg(long, value_name = "N", default_value = "100", value_parser = super::decisions::parse_limit)]
    pub limit: RowLimit,
    /// The form of the answer
    #[arg(long, value_enum, default_value = "text")]
    pub format: LedgerListFormat,
    /// Where
    #[command(flatten)]
    pub source: LedgerSourceArgs,
}

/// The forms of a list of URLs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LedgerListFormat {
    /// For people.
    Text,
    /// One array.
    Json,
    /// An object a line.
    Ndjson,
    /// RFC 4180, with a line of names.
    Csv,
}

/// The forms of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LedgerExportFormat {
    /// An object a line.
    Ndjson,
    /// RFC 4180, with a line of names.
    Csv,
}

/// Arguments of `ledger stats`.
#[derive(Args, Debug)]
pub struct LedgerStatsArgs {
    /// The form of the answer
    #[arg(long, value_enum, default_value = "text")]
    pub format: OutputFormat,
    /// Where
    #[command(flatten)]
    pub source: LedgerSourceArgs,
}

/// Arguments of `ledger export`.
#[derive(Args, Debug)]
pub struct LedgerExportArgs {
    /// Which
    #[command(flatten)]
    pub filter: LedgerFilterArgs,
    /// The form
    #[arg(long, value_enum, default_value = "ndjson")]
    pub format: LedgerExportFormat,
    /// To this file, which must not be there yet; else to standard output
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Where
    #[command(flatten)]
    pub source: LedgerSourceArgs,
}

/// Arguments of `ledger sweep`.
#[derive(Args, Debug)]
pub struct LedgerSweepArgs {
    /// Only count, and show the URLs that fall between the spaces
    #[arg(long)]
    pub dry_run: bool,
    /// The form of the answer
    #[arg(long, value_enum, default_value = "text")]
    pub format: OutputFormat,
    /// The proxy that is asked
    #[command(flatten)]
    pub proxy: ProxyArgs,
}

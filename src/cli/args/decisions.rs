//! Arguments of `crawlgate decisions`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::cli::decisions::since::Since;
use crate::metrics::log::filter::{LogFilter, LogFilterError};

use super::OutputFormat;

#[derive(Args, Debug)]
pub(crate) struct DecisionsArgs {
    /// Decision log to read, `-` for standard input [default: `logs.decisions` of the configuration]
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Configuration file [default: the one that `run` would use]
    #[arg(long, value_name = "FILE", conflicts_with = "log")]
    pub config: Option<PathBuf>,
    /// Also read the rotated files (FILE.1, FILE.2.gz and so on), oldest first
    #[arg(long)]
    pub all: bool,
    /// Keep reading as the log grows, across rotations
    #[arg(long, short, conflicts_with = "summary")]
    pub follow: bool,
    /// Show only decisions that match this filter, such as verdict=reject; if repeated, all filters must match
    #[arg(long = "filter", value_name = "K=V", value_parser = parse_filter)]
    pub filters: Vec<LogFilter>,
    /// Show only decisions since a time (2026-11-21T08:30:00Z, UTC if it has no zone) or for a duration (10m, 24h)
    #[arg(long, value_name = "TIME", value_parser = Since::parse)]
    pub since: Option<Since>,
    /// List the URLs that crawlers did not get although the policy allows them, and that were not answered later
    #[arg(long, conflicts_with_all = ["summary", "follow"])]
    pub lost: bool,
    /// Count decisions by rule, host, crawler or reason instead of showing them
    #[arg(long, value_enum, value_name = "BY")]
    pub summary: Option<SummaryBy>,
    /// Maximum number of rows of a summary, or `all`
    #[arg(long, value_name = "N", requires = "summary", default_value = "20", value_parser = parse_limit)]
    pub limit: RowLimit,
    /// Format of the output; in JSON, a decision is printed as the line of the log
    #[arg(long, value_enum, default_value = "text")]
    pub format: OutputFormat,
}

/// The maximum number of rows to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowLimit(pub usize);

/// The field that a summary groups decisions by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SummaryBy {
    /// By deciding rule.
    Rule,
    /// By host.
    Host,
    /// By crawler.
    Crawler,
    /// By reason.
    Reason,
}

fn parse_filter(text: &str) -> Result<LogFilter, LogFilterError> {
    LogFilter::parse(text)
}

/// Parses a number of rows or `all`.
pub(super) fn parse_limit(text: &str) -> Result<RowLimit, String> {
    let number = if text == "all" {
        Some(usize::MAX)
    } else {
        text.parse().ok()
    };
    number
        .filter(|rows| *rows > 0)
        .map(RowLimit)
        .ok_or_else(|| "write a number of at least 1, or all".to_owned())
}

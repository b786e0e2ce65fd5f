//! What can be written after `crawlgate decisions`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::cli::decisions::since::Since;
use crate::metrics::log::filter::{LogFilter, LogFilterError};

use super::OutputFormat;

/// Arguments of `decisions`.
#[derive(Args, Debug)]
pub struct DecisionsArgs {
    /// The log, `-` for standard input; else `logs.decisions` of the configuration
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// The configuration; else the one that `run` would use
    #[arg(long, value_name = "FILE", conflicts_with = "log")]
    pub config: Option<PathBuf>,
    /// Read the rotated files before it too (FILE.1, FILE.2.gz and so on), the oldest first
    #[arg(long)]
    pub all: bool,
    /// Go on with what is written from now on, over rotations
    #[arg(long, short, conflicts_with = "summary")]
    pub follow: bool,
    /// Only decisions of which this holds; may be repeated, then all must
    #[arg(long = "filter", value_name = "K=V", value_parser = parse_filter)]
    pub filters: Vec<LogFilter>,
    /// Only decisions since then: 10m, 24h, 2026-11-21T08:30:00Z
    #[arg(long, value_name = "TIME", value_parser = Since::parse)]
    pub since: Option<Since>,
    /// Count them instead of showing them
    #[arg(long, value_enum, value_name = "BY")]
    pub summary: Option<SummaryBy>,
    /// How many rows a summary has at most, or `all`
    #[arg(long, value_name = "N", requires = "summary", default_value = "20", value_parser = parse_limit)]
    pub limit: RowLimit,
    /// The form of the answer; as JSON a decision is the line of the log
    #[arg(long, value_enum, default_value = "text")]
    pub format: OutputFormat,
}

/// How many rows are shown at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowLimit(pub usize);

/// By what a summary counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SummaryBy {
    /// By the rule that decided.
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

/// A number of rows, or all.
pub(super) fn parse_limit(text: &str) -> Result<RowLimit, String> {
    let number = if text == "all" {
        Some(usize::MAX)
    } else {
        text.parse().ok()
    };
    number
        .filter(|rows| *rows > 0)
        .map(RowLimit)
        .ok_or_else(|| "write a number from 1 on, or all".to_owned())
}

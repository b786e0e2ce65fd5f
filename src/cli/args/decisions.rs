//! Arguments of `crawlgate decisions`.

use std::borrow::Cow;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::cli::decisions::since::Since;
use crate::metrics::log::entry::LogField;
use crate::metrics::log::filter::{LogFilter, LogFilterError};
use crate::urls::target::UrlTarget;

use super::{OutputFormat, ProxyArgs};

#[derive(Args, Debug)]
pub(crate) struct DecisionsArgs {
    /// Decision log to read, `-` for standard input [default: `logs.decisions` of the configuration]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["config", "admin"])]
    pub log: Option<PathBuf>,
    /// The proxy to query.
    #[command(flatten)]
    pub proxy: ProxyArgs,
    /// Also read the rotated files (FILE.1, FILE.2.gz and so on), oldest first
    #[arg(long)]
    pub all: bool,
    /// Keep reading as the log grows, across rotations
    #[arg(long, short, conflicts_with = "summary")]
    pub follow: bool,
    /// Show only decisions that match this filter, such as verdict=reject; if repeated, all filters must match
    #[arg(long = "filter", value_name = "K=V", value_parser = parse_filter)]
    pub filters: Vec<LogFilter>,
    /// Show only decisions about a host, `*` matches anything: the same as --filter host=HOST
    #[arg(long, value_name = "HOST")]
    pub host: Option<String>,
    /// Show only decisions about a URL, which is brought to its canonical form; `*` matches anything
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// Show only decisions of a crawler: the same as --filter crawler=NAME
    #[arg(long, value_name = "NAME")]
    pub crawler: Option<String>,
    /// Show only decisions since a day (2026-11-21), a time (2026-11-21T08:30:00Z, UTC if it has no zone) or for a duration (10m, 24h)
    #[arg(long, value_name = "TIME", value_parser = Since::parse)]
    pub since: Option<Since>,
    /// Show only decisions before a day, a time or the beginning of a duration, written as for --since
    #[arg(long, value_name = "TIME", value_parser = Since::parse, conflicts_with_all = ["follow", "lost"])]
    pub until: Option<Since>,
    /// List the URLs that crawlers did not get although the policy allows them, and that were not answered later
    #[arg(long, conflicts_with_all = ["summary", "follow"])]
    pub lost: bool,
    /// Count decisions by rule, host, crawler or reason instead of showing them
    #[arg(long, value_enum, value_name = "BY")]
    pub summary: Option<SummaryBy>,
    /// Show the last N decisions that match, or all; of a summary, the first N rows [default: all decisions, 20 rows]
    #[arg(long, short = 'n', value_name = "N", conflicts_with_all = ["follow", "lost"], value_parser = parse_limit)]
    pub limit: Option<RowLimit>,
    /// Format of the output; in JSON, a decision is printed as the line of the log
    #[arg(long, value_enum, default_value = "text")]
    pub format: OutputFormat,
}

/// The maximum number of rows to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowLimit(pub usize);

impl RowLimit {
    /// No limit: `all`.
    pub(crate) const ALL: Self = Self(usize::MAX);
}

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

impl DecisionsArgs {
    /// Returns the filters, with those that have options of their own.
    pub(crate) fn all_filters(&self) -> Vec<LogFilter> {
        let url = self.url.as_deref().map(canonical_url);
        let shorthands = [
            (LogField::Host, self.host.as_deref()),
            (LogField::Url, url.as_deref()),
            (LogField::Crawler, self.crawler.as_deref()),
        ];
        let given = shorthands
            .into_iter()
            .filter_map(|(field, text)| Some(LogFilter::equals(field, text?)));
        self.filters.iter().cloned().chain(given).collect()
    }
}

/// Returns the form of a URL that the log has; a pattern, and text that is not a URL, as they are.
fn canonical_url(text: &str) -> Cow<'_, str> {
    if text.contains('*') {
        return Cow::Borrowed(text);
    }
    match UrlTarget::parse(text) {
        Ok(target) => Cow::Owned(target.as_str().to_owned()),
        Err(_) => Cow::Borrowed(text),
    }
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

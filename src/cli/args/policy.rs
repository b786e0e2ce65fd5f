//! Arguments of the commands that read policies: `check`, `explain`, `decide`, `test`, `diff`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::cli::decisions::since::Since;
use crate::model::profile::Profile;

use super::{LedgerSourceArgs, OutputFormat, ProxyArgs};

#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// Policies (also those that a proxy has kept: store.path/policies/REVISION) and configurations [default: the configuration that `run` would use, and its policy]
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Configuration to check, with its policy: the same as PATH, as the other commands name it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Exit with 1 if there are warnings, or questions that are not decided
    #[arg(long)]
    pub strict: bool,
    /// Prove by automata which rules can never decide, and give an example for each that nearly never does
    #[arg(long)]
    pub exact: bool,
    /// Format of the report
    #[arg(long, value_enum, default_value = "text")]
    pub format: CheckFormat,
}

/// A format of the report of `check`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CheckFormat {
    /// Text for a terminal.
    Text,
    /// JSON for programs.
    Json,
    /// Annotations of a GitHub workflow.
    Github,
}

#[derive(Args, Debug)]
pub(crate) struct ExplainArgs {
    /// URL, as a crawler would request it
    #[arg(value_name = "URL", required_unless_present = "decision")]
    pub url: Option<String>,
    /// Explain a decision of the running proxy or of its log: the value of Crawl-Decision, or a trace id
    #[arg(long, value_name = "ID", conflicts_with = "url")]
    pub decision: Option<String>,
    /// The proxy to query.
    #[command(flatten)]
    pub proxy: ProxyArgs,
    /// Policy: a file, a directory of *.yaml files, or one that a proxy has kept (store.path/policies/REVISION); no proxy is asked [default: the policy of the running proxy]
    #[arg(long, value_name = "PATH")]
    pub policy: Option<PathBuf>,
    /// Let the proxy resolve the name and fetch robots.txt if they are not in its caches
    #[arg(long, conflicts_with = "policy")]
    pub fetch: bool,
    /// Profile of the response [default: the profile of the crawler, else generic]
    #[arg(long, value_parser = parse_profile)]
    pub profile: Option<Profile>,
    /// Name of the crawler; without --policy, its settings in the configuration apply
    #[arg(long, value_name = "NAME")]
    pub crawler: Option<String>,
    /// User-Agent of the request: adds the product token that is looked up in robots.txt
    #[arg(long, value_name = "TEXT")]
    pub user_agent: Option<String>,
    /// HTTP method
    #[arg(long, default_value = "GET")]
    pub method: String,
    /// Content-Type of the response
    #[arg(long, value_name = "TYPE")]
    pub content_type: Option<String>,
    /// Status of the response
    #[arg(long, value_name = "N")]
    pub status: Option<u16>,
    /// Size of the response in bytes
    #[arg(long, value_name = "BYTES")]
    pub size: Option<u64>,
    /// Header of the response; may be repeated
    #[arg(long = "header", value_name = "NAME:VALUE", value_parser = parse_header)]
    pub headers: Vec<(String, String)>,
    /// Title of the document
    #[arg(long, value_name = "TEXT")]
    pub title: Option<String>,
    /// First bytes of the document
    #[arg(long, value_name = "TEXT")]
    pub body_prefix: Option<String>,
    /// Directives of the document's <meta name="robots">
    #[arg(long, value_name = "TEXT")]
    pub meta_robots: Option<String>,
    /// Target of the document's <link rel="canonical">
    #[arg(long, value_name = "URL")]
    pub canonical: Option<String>,
    /// Usage preference of the site, such as train-ai=deny; the value is allow, deny or unset; may be repeated
    #[arg(long, value_name = "NAME=WORD", value_parser = parse_usage)]
    pub usage: Vec<(String, String)>,
    /// URL of the license that the site's robots.txt names
    #[arg(long, value_name = "URL")]
    pub license: Option<String>,
    /// IP address that the proxy would connect to
    #[arg(long, value_name = "IP")]
    pub address: Option<IpAddr>,
    /// Number of links from a start page
    #[arg(long, value_name = "N")]
    pub depth: Option<u64>,
    /// Referer of the request
    #[arg(long, value_name = "URL")]
    pub referer: Option<String>,
    /// Destination of the request: navigation or embed
    #[arg(long, value_name = "WORD")]
    pub dest: Option<String>,
    /// Treat the URL as fetched before, that is, as known to the ledger [default: what the ledger of the running proxy says]
    #[arg(long)]
    pub known: bool,
    /// Current year, for the detection of endless calendars [default: this year]
    #[arg(long, value_name = "N")]
    pub year: Option<u16>,
    /// Evaluate a tunnel (CONNECT) to the URL's host and port, which hides the rest of the URL
    #[arg(long)]
    pub tunnel: bool,
    /// Exit with 1 unless the URL is allowed
    #[arg(long)]
    pub exit_code: bool,
    /// Show every rule, and the options that have their built-in values
    #[arg(long)]
    pub all: bool,
    /// Format of the explanation
    #[arg(long, value_enum, default_value = "text")]
    pub format: OutputFormat,
}

#[derive(Args, Debug)]
pub(crate) struct DecideArgs {
    /// Policy: a file, a directory of *.yaml files, or one that a proxy has kept (store.path/policies/REVISION)
    #[arg(long, value_name = "PATH")]
    pub policy: PathBuf,
    /// Format of each line of output
    #[arg(long, value_enum, default_value = "json")]
    pub format: DecideFormat,
}

/// The formats of `decide`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DecideFormat {
    /// One JSON object per line.
    Json,
    /// URL, verdict, stage, reason, rule and status, separated by tabs.
    Tsv,
}

#[derive(Args, Debug)]
pub(crate) struct TestArgs {
    /// Policies, case files, and directories of them [default: the policy that `run` would use]
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Show the coverage of each policy, and the branches that no case covers
    #[arg(long)]
    pub coverage: bool,
    /// Exit with 1 if the cases cover less than this share of the branches (0 to 100); implies --coverage
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    pub threshold: Option<f64>,
    /// Exit with 1 if an assertion about a set of URLs is not decided
    #[arg(long)]
    pub strict: bool,
    /// Format of the report
    #[arg(long, value_enum, default_value = "text")]
    pub format: TestFormat,
}

/// The formats of the report of `test`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TestFormat {
    /// Text for a terminal.
    Text,
    /// JSON for programs.
    Json,
    /// JUnit XML for continuous integration.
    Junit,
    /// Annotations of a GitHub workflow.
    Github,
}

#[derive(Args, Debug)]
pub(crate) struct DiffArgs {
    /// Old policy: a file, a directory of *.yaml files, or one that a proxy has kept (store.path/policies/REVISION)
    #[arg(value_name = "OLD")]
    pub old: PathBuf,
    /// New policy, like OLD
    #[arg(value_name = "NEW")]
    pub new: PathBuf,
    /// Compare the decisions for the URLs in FILE, one per line, or on standard input if FILE is left out [default: the
    /// cases of both policies]
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub urls: Option<PathBuf>,
    /// Compare the decisions for the URLs that the ledger knows
    #[arg(long, conflicts_with = "urls")]
    pub ledger: bool,
    /// Compare the decisions for the requests in a decision log and its rotated files [default FILE: `logs.decisions` of
    /// the configuration]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["urls", "ledger"])]
    pub log: Option<Option<PathBuf>>,
    /// Only the requests of the log since a time (2026-11-21T08:30:00Z) or for a duration (24h); implies --log
    #[arg(long, value_name = "TIME", value_parser = Since::parse, conflicts_with_all = ["urls", "ledger"])]
    pub since: Option<Since>,
    /// Exit with 1 only if the new policy may allow a URL that the old one refuses, or the reverse; may be repeated
    #[arg(long, value_enum, value_name = "KIND")]
    pub fail_on: Vec<FailOn>,
    /// Profile of the responses to URLs
    #[arg(long, value_parser = parse_profile, default_value = "generic")]
    pub profile: Profile,
    /// Maximum number of example URLs to show for each change
    #[arg(long, value_name = "N", default_value = "3")]
    pub examples: usize,
    /// Format of the report
    #[arg(long, value_enum, default_value = "text")]
    pub format: DiffFormat,
    /// The ledger to read.
    #[command(flatten)]
    pub source: LedgerSourceArgs,
}

impl DiffArgs {
    /// Returns `true` if the requests are those of a decision log.
    pub(crate) fn reads_log(&self) -> bool {
        self.log.is_some() || self.since.is_some()
    }
}

/// A format of the report of `diff`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DiffFormat {
    /// Text for a terminal.
    Text,
    /// JSON for programs.
    Json,
    /// Markdown for a comment on a pull request.
    Markdown,
    /// Annotations of a GitHub workflow.
    Github,
}

/// The differences that `diff --fail-on` reports by its exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FailOn {
    /// The new policy allows a URL that the old one refuses.
    NewAccess,
    /// The new policy refuses a URL that the old one allows.
    NewRefusal,
}

#[derive(Args, Debug)]
pub(crate) struct FindArgs {
    /// Policy: a file, a directory of *.yaml files, or one that a proxy has kept (store.path/policies/REVISION) [default: the policy that `run` would use]
    #[arg(long, value_name = "PATH")]
    pub policy: Option<PathBuf>,
    /// Verdict that the URL gets
    #[arg(long, value_enum, value_name = "WORD")]
    pub verdict: FoundVerdict,
    /// Id of the rule that decides
    #[arg(long, value_name = "ID")]
    pub rule: Option<String>,
    /// Beginning of the URL
    #[arg(long, value_name = "URL")]
    pub under: Option<String>,
    /// Host of the URL, with any scheme and port
    #[arg(long, value_name = "HOST", conflicts_with = "under")]
    pub host: Option<String>,
    /// Name of the crawler [default: any]
    #[arg(long, value_name = "NAME")]
    pub crawler: Option<String>,
    /// Format of the answer
    #[arg(long, value_enum, default_value = "text")]
    pub format: OutputFormat,
}

/// The verdicts that `find` searches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FoundVerdict {
    /// The URL is allowed.
    Allow,
    /// The URL is refused.
    Reject,
}

fn parse_profile(word: &str) -> Result<Profile, String> {
    Profile::from_word(word).ok_or_else(|| {
        let known = Profile::ALL.map(Profile::as_str).join(", ");
        format!("known profiles: {known}")
    })
}

fn parse_usage(text: &str) -> Result<(String, String), String> {
    let (name, word) = text
        .split_once('=')
        .ok_or("write NAME=WORD, such as train-ai=deny")?;
    Ok((name.trim().to_owned(), word.trim().to_owned()))
}

fn parse_percent(text: &str) -> Result<f64, String> {
    let number = text
        .trim_end_matches('%')
        .parse()
        .ok()
        .filter(|number| (0.0..=100.0).contains(number));
    number.ok_or_else(|| "write a number from 0 to 100".to_owned())
}

fn parse_header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("write NAME:VALUE")?;
    if name.trim().is_empty() {
        return Err("the name is empty".into());
    }
    Ok((name.trim().to_ascii_lowercase(), value.trim().to_owned()))
}

//! What can be written after the commands that read policies: `check`, `explain`, `decide`, `test`, `diff`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::model::profile::Profile;

use super::OutputFormat;

/// Arguments of `check`.
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// Policies and configurations; without one, the configuration that `run` would use, and its policy
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Exit 1 if there are warnings
    #[arg(long)]
    pub strict: bool,
    /// The form of the report
    #[arg(long, value_enum, default_value = "text")]
    pub format: OutputFormat,
}

/// Arguments of `explain`.
#[derive(Args, Debug)]
pub struct ExplainArgs {
    /// The URL, as a crawler would ask for it
    #[arg(value_name = "URL")]
    pub url: String,
    /// The policy; without one, the policy that `run` would use
    #[arg(long, value_name = "PATH")]
    pub policy: Option<PathBuf>,
    /// The profile that answers; without one, that of the crawler, else generic
    #[arg(long, value_parser = parse_profile)]
    pub profile: Option<Profile>,
    /// The crawler's name; without --policy, what the configuration says of it holds
    #[arg(long, value_name = "NAME")]
    pub crawler: Option<String>,
    /// The method
    #[arg(long, default_value = "GET")]
    pub method: String,
    /// The response's Content-Type
    #[arg(long, value_name = "TYPE")]
    pub content_type: Option<String>,
    /// The response's status
    #[arg(long, value_name = "N")]
    pub status: Option<u16>,
    /// The response's size in bytes
    #[arg(long, value_name = "BYTES")]
    pub size: Option<u64>,
    /// A header of the response; may be repeated
    #[arg(long = "header", value_name = "NAME:VALUE", value_parser = parse_header)]
    pub headers: Vec<(String, String)>,
    /// The title of the document
    #[arg(long, value_name = "TEXT")]
    pub title: Option<String>,
    /// The first bytes of the document
    #[arg(long, value_name = "TEXT")]
    pub body_prefix: Option<String>,
    /// The directives of the document's <meta name="robots">
    #[arg(long, value_name = "TEXT")]
    pub meta_robots: Option<String>,
    /// The target of the document's <link rel="canonical">
    #[arg(long, value_name = "URL")]
    pub canonical: Option<String>,
    /// What the site says of a use: allow, deny or unset; may be repeated
    #[arg(long, value_name = "NAME=WORD", value_parser = parse_usage)]
    pub usage: Vec<(String, String)>,
    /// The address that would be dialled
    #[arg(long, value_name = "IP")]
    pub address: Option<IpAddr>,
    /// Links from a start page
    #[arg(long, value_name = "N")]
    pub depth: Option<u64>,
    /// The Referer
    #[arg(long, value_name = "URL")]
    pub referer: Option<String>,
    /// What the answer is wanted for: navigation or embed
    #[arg(long, value_name = "WORD")]
    pub dest: Option<String>,
    /// The URL is in the ledger: it was fetched before
    #[arg(long)]
    pub known: bool,
    /// The year, for calendars without end; this one by default
    #[arg(long, value_name = "N")]
    pub year: Option<u16>,
    /// Judge a tunnel to the URL's host and port, which hides the rest
    #[arg(long)]
    pub tunnel: bool,
    /// Exit 1 unless the URL is allowed
    #[arg(long)]
    pub exit_code: bool,
    /// Show the options that nobody set, too
    #[arg(long)]
    pub all: bool,
    /// The form of the explanation
    #[arg(long, value_enum, default_value = "text")]
    pub format: OutputFormat,
}

/// Arguments of `decide`.
#[derive(Args, Debug)]
pub struct DecideArgs {
    /// The policy: a file, or a directory of *.yaml files
    #[arg(long, value_name = "PATH")]
    pub policy: PathBuf,
    /// The form of a line
    #[arg(long, value_enum, default_value = "json")]
    pub format: DecideFormat,
}

/// The form of a line of `decide`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DecideFormat {
    /// One JSON object a line.
    Json,
    /// URL, verdict, stage, reason, rule and status, separated by tabs.
    Tsv,
}

/// Arguments of `test`.
#[derive(Args, Debug)]
pub struct TestArgs {
    /// Policies, case files, and directories of them; without one, the policy that `run` would use
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Show how much of each policy its cases reach, and what none of them does
    #[arg(long)]
    pub coverage: bool,
    /// Exit 1 if the cases reach less of the branches
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    pub threshold: Option<f64>,
    /// The form of the report
    #[arg(long, value_enum, default_value = "text")]
    pub format: TestFormat,
}

/// The form of the report of `test`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TestFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
    /// XML for continuous integration.
    Junit,
}

/// Arguments of `diff`.
#[derive(Args, Debug)]
pub struct DiffArgs {
    /// The policy as it was: a file, or a directory of *.yaml files
    #[arg(value_name = "OLD")]
    pub old: PathBuf,
    /// The policy as it is to be
    #[arg(value_name = "NEW")]
    pub new: PathBuf,
    /// Judge these URLs, one a line; without FILE those of standard input
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub urls: Option<PathBuf>,
    /// The profile that answers
    #[arg(long, value_parser = parse_profile, default_value = "generic")]
    pub profile: Profile,
    /// How many examples are shown of each change
    #[arg(long, value_name = "N", default_value = "3")]
    pub examples: usize,
    /// The form of the report
    #[arg(long, value_enum, default_value = "text")]
    pub format: OutputFormat,
}

fn parse_profile(word: &str) -> Result<Profile, String> {
    let known = || Profile::ALL.map(Profile::as_str).join(", ");
    Profile::from_word(word).ok_or_else(|| format!("known profiles: {}", known()))
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

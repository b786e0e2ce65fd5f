//! Arguments of `import`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::OutputFormat;

#[derive(Args, Debug)]
pub(crate) struct ImportArgs {
    /// The system, unless the files tell it, and its files; `-` is standard input; CRAWLER=FILE for a crawler's own file, HOST=FILE for a robots.txt
    #[arg(value_name = "[SYSTEM] FILE", required = true)]
    pub words: Vec<String>,
    /// Print the tree of a WebCopy project, a line for each tag, and import nothing
    #[arg(long, conflicts_with_all = ["output", "check"])]
    pub dump: bool,
    /// Directory to write policy.yaml, lists, report.json and configuration.yaml into [default: the policy on standard output]
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Replace files that exist
    #[arg(long)]
    pub force: bool,
    /// Write a policy even if parts of the source are not converted; each rule that is missing is a comment in its place
    #[arg(long)]
    pub lenient: bool,
    /// File to write the report into [default: standard error]
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Format of the report
    #[arg(long, value_enum, default_value = "text")]
    pub format: OutputFormat,
    /// Name of the policy [default: one made from the source]
    #[arg(long)]
    pub name: Option<String>,
    /// URLs and SURTs that the crawl starts from, one a line, if the source does not hold them
    #[arg(long, value_name = "FILE")]
    pub seeds: Option<PathBuf>,
    /// Value of a variable that the source uses; may be repeated
    #[arg(long = "var", value_name = "NAME=VALUE", value_parser = parse_variable)]
    pub variables: Vec<(String, String)>,
    /// OmniFind: the rules of all crawlers, unless one of the files is called global.rules
    #[arg(long, value_name = "FILE")]
    pub global: Option<PathBuf>,
    /// Exalead: expressions of atoms without `litteral` are escaped, or not [default: as the source says]
    #[arg(long, value_enum, value_name = "WHEN")]
    pub escape: Option<EscapeMode>,
    /// Requests, one a line, to compare the policy with the source's own rules: URLs, or facts as JSON like those of `decide`; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub check: Option<PathBuf>,
}

/// The value of `--escape`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EscapeMode {
    /// Characters are literal, and a backslash switches an operator on.
    On,
    /// An ordinary expression.
    Off,
}

fn parse_variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or("write NAME=VALUE, such as --var scope=com")?;
    Ok((name.to_owned(), value.to_owned()))
}

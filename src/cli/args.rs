//! What can be written after `crawlgate`, and the help that teaches it. No command's work is done here.

mod admin;
mod clients;
mod decisions;
mod help;
mod ledger;
mod policy;
mod robots;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub use admin::{ProxyArgs, ShadowArgs, StopArgs};
pub use clients::{CaArgs, CaCommand, CaExportArgs, CaFormat, EnvArgs, Shell};
pub use decisions::{DecisionsArgs, RowLimit, SummaryBy};
pub use ledger::{
    LedgerArgs, LedgerCommand, LedgerExportArgs, LedgerExportFormat, LedgerFilterArgs,
    LedgerListArgs, LedgerListFormat, LedgerSourceArgs, LedgerStatsArgs, LedgerSweepArgs,
};
pub use policy::{
    CheckArgs, DecideArgs, DecideFormat, DiffArgs, ExplainArgs, TestArgs, TestFormat,
};
pub use robots::{RobotsArgs, RobotsCheckArgs, RobotsCommand, RobotsFetchArgs};

use help::{
    CA_HELP, CHECK_HELP, COMPLETIONS_HELP, DECIDE_HELP, DECISIONS_HELP, DEMO_HELP, DIFF_HELP,
    ENV_HELP, EXPLAIN_HELP, PASSWORD_HELP, ROBOTS_HELP, RUN_HELP, SCHEMA_HELP, SHADOW_HELP,
    STOP_HELP, TARGET_HELP, TEST_HELP,
};

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "crawlgate",
    version,
    about = "An HTTP forward proxy that enforces crawl policy",
    long_about = "An HTTP forward proxy that enforces crawl policy.\n\n\
                  Point a crawler's http_proxy at it; every URL that the crawler asks for is judged by one policy, \
                  and every refusal says which rule refused it.",
    after_help = "Exit codes: 0 success, 1 a negative answer, 2 wrong usage or invalid input, 3 cannot run.\n\
                  `crawlgate help COMMAND` shows an example of each command.",
    arg_required_else_help = true,
    max_term_width = 110
)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the proxy
    #[command(after_help = RUN_HELP)]
    Run(RunArgs),
    /// A tour without a network: a small site, the proxy, a crawl, and what was refused
    #[command(after_help = DEMO_HELP)]
    Demo,
    /// Check policies and configurations, all mistakes in one run
    #[command(after_help = CHECK_HELP)]
    Check(CheckArgs),
    /// Show why a URL is allowed or refused, rule by rule
    #[command(after_help = EXPLAIN_HELP)]
    Explain(Box<ExplainArgs>),
    /// Judge every line of standard input
    #[command(after_help = DECIDE_HELP)]
    Decide(DecideArgs),
    /// Read the decision log: show, follow, sift, sum up
    #[command(after_help = DECISIONS_HELP)]
    Decisions(DecisionsArgs),
    /// Run the cases of policies, and show what they do not reach
    #[command(after_help = TEST_HELP)]
    Test(TestArgs),
    /// Compare two policies: whose decision changes, by rule and by host
    #[command(after_help = DIFF_HELP)]
    Diff(DiffArgs),
    /// Ask a robots.txt about URLs
    #[command(after_help = ROBOTS_HELP)]
    Robots(RobotsArgs),
    /// Show the canonical form of URLs, and the range of an address
    #[command(after_help = TARGET_HELP)]
    Target(TargetArgs),
    /// Make, show and export the certificate authority that clients trust
    #[command(after_help = CA_HELP)]
    Ca(CaArgs),
    /// Print the variables that send a shell's clients through the proxy
    #[command(after_help = ENV_HELP)]
    Env(EnvArgs),
    /// Show what rules and policies in shadow would change in a running proxy
    #[command(after_help = SHADOW_HELP)]
    Shadow(ShadowArgs),
    /// Stop a host, a crawler or a rule in a running proxy, show what is stopped, or let it go on
    #[command(after_help = STOP_HELP)]
    Stop(StopArgs),
    /// The URLs that are remembered: show, count, export; sweep them after a change of the crawl spaces
    Ledger(LedgerArgs),
    /// Print the JSON Schema of policies or configurations, for editors
    #[command(after_help = SCHEMA_HELP)]
    Schema(SchemaArgs),
    /// Print what a shell needs to complete commands
    #[command(after_help = COMPLETIONS_HELP)]
    Completions(CompletionsArgs),
    /// Make the hash of a password, for `crawlers` in the configuration
    #[command(after_help = PASSWORD_HELP)]
    Password,
}

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Arguments of `run`.
#[derive(Args, Debug, Default)]
pub struct RunArgs {
    /// The configuration; else $CRAWLGATE_CONFIG, else config/crawlgate.yaml, else all defaults
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The policy, in place of the configuration's: a file, or a directory of *.yaml files
    #[arg(long, value_name = "PATH")]
    pub policy: Option<PathBuf>,
    /// Where crawlers connect, in place of the configuration's
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<SocketAddr>,
    /// Where metrics, health and the admin API are, in place of the configuration's
    #[arg(long, value_name = "ADDR")]
    pub admin: Option<SocketAddr>,
}

/// Arguments of `schema`.
#[derive(Args, Debug)]
pub struct SchemaArgs {
    /// Of what
    #[arg(value_enum, value_name = "WHAT")]
    pub of: SchemaKind,
}

/// Arguments of `completions`.
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: CompletionShell,
}

/// The shells that can complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CompletionShell {
    /// bash.
    Bash,
    /// zsh.
    Zsh,
    /// fish.
    Fish,
    /// PowerShell.
    Powershell,
}

/// What has a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SchemaKind {
    /// Policies, parts of them, and case files.
    Policy,
    /// Configurations.
    Config,
}

/// Arguments of `target`.
#[derive(Args, Debug)]
pub struct TargetArgs {
    /// The URLs; without one, they are read from standard input, one a line
    #[arg(value_name = "URL")]
    pub urls: Vec<String>,
    /// The form of a line
    #[arg(long, value_enum, default_value = "text")]
    pub format: OutputFormat,
}

//! Command-line arguments and help texts.

mod admin;
mod clients;
mod decisions;
mod fleet;
mod help;
mod identity;
mod import;
mod init;
mod ledger;
mod policy;
mod robots;
mod rollout;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::config::file::values::parse_socket_address;

pub(crate) use admin::{HealthArgs, ProxyArgs, ProxyReportArgs, StopArgs};
pub(crate) use clients::{CaArgs, CaCommand, CaExportArgs, CaFormat, EnvArgs, Shell};
pub(crate) use decisions::{DecisionsArgs, RowLimit, SummaryBy};
pub(crate) use fleet::{FleetArgs, FleetCertArgs, FleetCommand, FleetForgetArgs, FleetOwnerArgs};
pub(crate) use identity::{IdentityArgs, IdentityCommand, IdentityDirectoryArgs};
pub(crate) use import::{EscapeMode, ImportArgs};
pub(in crate::cli) use init::parse_crawler;
pub(crate) use init::{HttpsMode, InitArgs};
pub(crate) use ledger::{
    LedgerArgs, LedgerCommand, LedgerExportArgs, LedgerExportFormat, LedgerFilterArgs,
    LedgerForgetArgs, LedgerListArgs, LedgerRowFormat, LedgerSourceArgs, LedgerStatsArgs,
    LedgerSweepArgs,
};
pub(crate) use policy::{
    CheckArgs, CheckFormat, DecideArgs, DecideFormat, DiffArgs, DiffFormat, ExplainArgs, FailOn,
    FindArgs, FoundVerdict, TestArgs, TestFormat,
};
pub(crate) use robots::{RobotsArgs, RobotsCheckArgs, RobotsCommand, RobotsFetchArgs};
pub(crate) use rollout::{
    PolicyArgs, PolicyCommand, PolicyHistoryArgs, PolicyRollbackArgs, ShadowArgs, ShadowClearArgs,
    ShadowCommand, ShadowPromoteArgs, ShadowSetArgs,
};

use help::{
    CA_HELP, CHECK_HELP, COMPLETIONS_HELP, DECIDE_HELP, DECISIONS_HELP, DEMO_HELP, DIFF_HELP,
    ENV_HELP, EXPLAIN_HELP, FIND_HELP, FLEET_HELP, HEALTH_HELP, IDENTITY_HELP, IMPORT_HELP,
    INIT_HELP, PASSWORD_HELP, RELOAD_HELP, ROBOTS_HELP, RUN_HELP, SCHEMA_HELP, SHADOW_HELP,
    STATUS_HELP, STOP_HELP, TARGET_HELP, TEST_HELP,
};

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "crawlgate",
    version,
    about = "An HTTP forward proxy that enforces crawl policy",
    long_about = "An HTTP forward proxy that enforces crawl policy.\n\n\
                  Set a crawler's http_proxy to its address: each URL that the crawler requests is checked against \
                  one policy, and each refusal names the rule that caused it.",
    after_help = "Exit codes: 0 success, 1 negative result, 2 wrong usage or invalid input, 3 cannot run.\n\
                  `crawlgate help COMMAND` shows the options of a command, with examples.",
    arg_required_else_help = true,
    max_term_width = 110
)]
pub(crate) struct Arguments {
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Write a configuration and a policy to start from
    #[command(after_help = INIT_HELP)]
    Init(InitArgs),
    /// Translate the crawl rules of another system into a policy, with a report
    #[command(after_help = IMPORT_HELP)]
    Import(Box<ImportArgs>),
    /// Run the proxy
    #[command(after_help = RUN_HELP)]
    Run(RunArgs),
    /// Crawl a small built-in site through the proxy, offline, and show what is refused
    #[command(after_help = DEMO_HELP)]
    Demo,
    /// Check policies and configurations, and report all errors in one run
    #[command(after_help = CHECK_HELP)]
    Check(CheckArgs),
    /// Explain why a URL is allowed or refused, rule by rule
    #[command(after_help = EXPLAIN_HELP)]
    Explain(Box<ExplainArgs>),
    /// Print the decision for each line of standard input
    #[command(after_help = DECIDE_HELP)]
    Decide(DecideArgs),
    /// Show, follow, filter and summarize the decision log
    #[command(after_help = DECISIONS_HELP)]
    Decisions(DecisionsArgs),
    /// Run the test cases of policies, and show which rules they do not cover
    #[command(after_help = TEST_HELP)]
    Test(TestArgs),
    /// Compare two policies: which decisions change, by rule and by host
    #[command(after_help = DIFF_HELP)]
    Diff(DiffArgs),
    /// Find a URL that gets a verdict, or prove that no URL does
    #[command(after_help = FIND_HELP)]
    Find(FindArgs),
    /// Check URLs against a robots.txt
    #[command(after_help = ROBOTS_HELP)]
    Robots(RobotsArgs),
    /// Show the canonical form of URLs, and the range of IP addresses
    #[command(after_help = TARGET_HELP)]
    Target(TargetArgs),
    /// Create, show and export the certificate authority that clients trust
    #[command(after_help = CA_HELP)]
    Ca(CaArgs),
    /// Create and publish the keys by which origins recognize a crawler (Web Bot Auth)
    #[command(after_help = IDENTITY_HELP)]
    Identity(IdentityArgs),
    /// Found a fleet, issue certificates of its nodes, show members and owners, forget a dead node
    #[command(after_help = FLEET_HELP)]
    Fleet(FleetArgs),
    /// Print the environment variables that make a shell's clients use the proxy
    #[command(after_help = ENV_HELP)]
    Env(EnvArgs),
    /// Show version, policy, listeners, HTTPS, warnings and stops of a running proxy
    #[command(after_help = STATUS_HELP)]
    Status(ProxyReportArgs),
    /// Ask a running proxy if it is ready, for health checks of containers
    #[command(after_help = HEALTH_HELP)]
    Health(HealthArgs),
    /// Reload the policy of a running proxy, and show what changed
    #[command(after_help = RELOAD_HELP)]
    Reload(ProxyReportArgs),
    /// Show what rules and policies in shadow mode would change in a running proxy; set, promote and clear a shadow policy
    #[command(after_help = SHADOW_HELP)]
    Shadow(ShadowArgs),
    /// List the policies that were in force in a running proxy, and return to one
    Policy(PolicyArgs),
    /// Stop requests by host, crawler or rule in a running proxy; list and lift stops
    #[command(after_help = STOP_HELP)]
    Stop(StopArgs),
    /// List, count, export, sweep and forget the URLs in the ledger
    Ledger(LedgerArgs),
    /// Print the JSON Schema of policies or configurations, for editors
    #[command(after_help = SCHEMA_HELP)]
    Schema(SchemaArgs),
    /// Print the completion script for a shell
    #[command(after_help = COMPLETIONS_HELP)]
    Completions(CompletionsArgs),
    /// Write a manual page for each command, for packages
    #[command(hide = true)]
    Man(ManArgs),
    /// Hash a crawler's password, for `crawlers` in the configuration
    #[command(after_help = PASSWORD_HELP)]
    Password,
}

/// An output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// Text for a terminal.
    Text,
    /// JSON for programs.
    Json,
}

#[derive(Args, Debug, Default)]
pub(crate) struct RunArgs {
    /// Configuration file [default: $CRAWLGATE_CONFIG, else config/crawlgate.yaml if it exists, else no file]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Policy: a file, or a directory of *.yaml files [default: `policy.path` of the configuration]
    #[arg(long, value_name = "PATH")]
    pub policy: Option<PathBuf>,
    /// Address and port for crawlers [default: `listen` of the configuration, else 127.0.0.1:3128]
    #[arg(long, value_name = "ADDR", value_parser = parse_socket_address)]
    pub listen: Option<SocketAddr>,
    /// Address and port for metrics, health checks and the admin API [default: `admin.listen` of the configuration,
    /// else 127.0.0.1:3129]
    #[arg(long, value_name = "ADDR", value_parser = parse_socket_address)]
    pub admin: Option<SocketAddr>,
}

#[derive(Args, Debug)]
pub(crate) struct SchemaArgs {
    /// Kind of file that the schema describes
    #[arg(value_enum, value_name = "WHAT")]
    pub of: SchemaKind,
}

#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// Shell to print the script for
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: CompletionShell,
}

#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// Directory to write the pages into; it is created if it does not exist
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

/// The shells with completion scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompletionShell {
    /// bash
    Bash,
    /// zsh
    Zsh,
    /// fish
    Fish,
    /// PowerShell
    Powershell,
}

/// The kinds of files with a JSON Schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SchemaKind {
    /// Policies, the files of a policy directory, and case files.
    Policy,
    /// Configuration files.
    Config,
}

#[derive(Args, Debug)]
pub(crate) struct TargetArgs {
    /// URLs [default: read from standard input, one per line]
    #[arg(value_name = "URL")]
    pub urls: Vec<String>,
    /// Format of each line of output
    #[arg(long, value_enum, default_value = "text")]
    pub format: OutputFormat,
}

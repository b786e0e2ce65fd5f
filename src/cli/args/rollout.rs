//! Arguments of the commands that change the policy of a running proxy: those under `shadow` and `policy`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::help::{
    POLICY_HISTORY_HELP, POLICY_ROLLBACK_HELP, SHADOW_CLEAR_HELP, SHADOW_PROMOTE_HELP,
    SHADOW_SET_HELP,
};
use super::{OutputFormat, ProxyArgs};

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ShadowArgs {
    /// The change to make; without one, the report is shown.
    #[command(subcommand)]
    pub command: Option<ShadowCommand>,
    /// The proxy to query.
    #[command(flatten)]
    pub proxy: ProxyArgs,
    /// Format of the report
    #[arg(long, value_enum, default_value = "text")]
    pub format: OutputFormat,
}

/// The commands under `shadow`.
#[derive(Debug, Subcommand)]
pub(crate) enum ShadowCommand {
    /// Make a policy the shadow policy of a running proxy, without a restart
    #[command(after_help = SHADOW_SET_HELP)]
    Set(ShadowSetArgs),
    /// Make the shadow policy the active one, and write its files
    #[command(after_help = SHADOW_PROMOTE_HELP)]
    Promote(ShadowPromoteArgs),
    /// Remove the shadow policy that was set, and return to the configured one
    #[command(after_help = SHADOW_CLEAR_HELP)]
    Clear(ShadowClearArgs),
}

#[derive(Args, Debug)]
pub(crate) struct ShadowSetArgs {
    /// Policy: a file, a directory of *.yaml files, or one that a proxy has kept (store.path/policies/REVISION)
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// Reason, for the records: one line
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// The proxy to change.
    #[command(flatten)]
    pub proxy: ProxyArgs,
    /// Format of the report
    #[arg(long, value_enum, default_value = "text")]
    pub format: OutputFormat,
}

#[derive(Args, Debug)]
pub(crate) struct ShadowPromoteArgs {
    /// Reason, for the history: one line
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Only if the shadow policy has this revision
    #[arg(long, value_name = "REVISION")]
    pub revision: Option<String>,
    /// The proxy to change.
    #[command(flatten)]
    pub proxy: ProxyArgs,
    /// Format of the report
    #[arg(long, value_enum, default_value = "text")]
    pub format: OutputFormat,
}

#[derive(Args, Debug)]
pub(crate) struct ShadowClearArgs {
    /// Reason, for the records: one line
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// The proxy to change.
    #[command(flatten)]
    pub proxy: ProxyArgs,
    /// Format of the report
    #[arg(long, value_enum, default_value = "text")]
    pub format: OutputFormat,
}

#[derive(Args, Debug)]
pub(crate) struct PolicyArgs {
    /// The command to run.
    #[command(subcommand)]
    pub command: PolicyCommand,
}

/// The commands under `policy`.
#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// List the policies that were in force in a running proxy: since when, by whom, why
    #[command(after_help = POLICY_HISTORY_HELP)]
    History(PolicyHistoryArgs),
    /// Make an earlier policy the active one again, and write its files
    #[command(after_help = POLICY_ROLLBACK_HELP)]
    Rollback(PolicyRollbackArgs),
}

#[derive(Args, Debug)]
pub(crate) struct PolicyHistoryArgs {
    /// The proxy to query.
    #[command(flatten)]
    pub proxy: ProxyArgs,
    /// Format of the list
    #[arg(long, value_enum, default_value = "text")]
    pub format: OutputFormat,
}

#[derive(Args, Debug)]
pub(crate) struct PolicyRollbackArgs {
    /// Revision to return to [default: the one before the active one]
    #[arg(value_name = "REVISION")]
    pub revision: Option<String>,
    /// Reason, for the history: one line
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// The proxy to change.
    #[command(flatten)]
    pub proxy: ProxyArgs,
    /// Format of the report
    #[arg(long, value_enum, default_value = "text")]
    pub format: OutputFormat,
}

//! `crawlgate run`: the proxy, until it is told to stop.

use std::io::Write;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::config::load;
use crate::config::settings::{PolicyOrigin, Settings, Workers};

use super::args::RunArgs;
use super::exit::Exit;
use super::open;
use super::serve::{Server, StartError};

/// Runs the proxy. Exit 2 if the configuration or the policy is invalid, 3 if it cannot start.
pub(super) fn run(args: &RunArgs) -> Exit {
    let _ = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(tracing::Level::INFO)
        .with_target(false)
        .try_init();
    todo_replaced_on_merge(args)
}

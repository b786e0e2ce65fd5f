//! `crawlgate fleet`: the nodes of a fleet.

mod cert;

use super::Exit;
use super::args::{FleetArgs, FleetCommand};

/// Runs the command.
pub(super) fn run(args: &FleetArgs) -> Result<Exit, Exit> {
    match &args.command {
        FleetCommand::Cert(args) => cert::run(args),
    }
}

//! `crawlgate fleet`: the nodes of a fleet.

mod cert;
mod database;

use super::Exit;
use super::args::{FleetArgs, FleetCommand};
use database::StoreAction;

/// Runs the command.
pub(super) fn run(args: &FleetArgs) -> Result<Exit, Exit> {
    let action = match &args.command {
        FleetCommand::Cert(args) => return cert::run(args),
        FleetCommand::Found(found) => StoreAction::Found {
            restored: found.restored,
        },
        FleetCommand::Migrate => StoreAction::Migrate,
        FleetCommand::Status => StoreAction::Status,
        FleetCommand::Forget(forget) => StoreAction::Forget(forget),
        FleetCommand::Owner(owner) => StoreAction::Owner(owner),
    };
    database::run(args.config.as_deref(), &action)
}

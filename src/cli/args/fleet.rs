//! Arguments of `crawlgate fleet`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Arguments of `crawlgate fleet`.
#[derive(Args, Debug)]
pub(crate) struct FleetArgs {
    /// The command to run.
    #[command(subcommand)]
    pub command: FleetCommand,
}

/// The commands under `fleet`.
#[derive(Debug, Subcommand)]
pub(crate) enum FleetCommand {
    /// Issue the certificate of a node, and create the fleet's authority if there is none
    Cert(FleetCertArgs),
}

#[derive(Args, Debug)]
pub(crate) struct FleetCertArgs {
    /// The name of the node, as in `fleet.node`
    #[arg(value_name = "NODE")]
    pub node: String,
    /// Directory of the authority's files, fleet.pem and fleet.key; the node's are written there, too
    #[arg(long, value_name = "DIR", default_value = "certs")]
    pub directory: PathBuf,
}

//! Arguments of `crawlgate fleet`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use crawlgate_fleet::node::NodeName;

/// Arguments of `crawlgate fleet`.
#[derive(Args, Debug)]
pub(crate) struct FleetArgs {
    /// The command to run.
    #[command(subcommand)]
    pub command: FleetCommand,
    /// Configuration file [default: the one that `run` would use]
    #[arg(long, value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,
}

/// The commands under `fleet`.
#[derive(Debug, Subcommand)]
pub(crate) enum FleetCommand {
    /// Create the tables in the database, once for a fleet
    Found(FleetFoundArgs),
    /// Bring the tables of an earlier release to the version of this one
    Migrate,
    /// List the members with their state and the number of their partitions
    Status,
    /// Remove a node whose process is dead and does not come back
    Forget(FleetForgetArgs),
    /// Show which node owns a host
    Owner(FleetOwnerArgs),
    /// Issue the certificate of a node, and create the fleet's authority if there is none
    Cert(FleetCertArgs),
}

#[derive(Args, Debug)]
pub(crate) struct FleetFoundArgs {
    /// The database was restored from a copy: end every lease of before
    #[arg(long)]
    pub restored: bool,
}

#[derive(Args, Debug)]
pub(crate) struct FleetForgetArgs {
    /// Name of the node
    #[arg(value_name = "NODE", value_parser = parse_node)]
    pub node: NodeName,
}

#[derive(Args, Debug)]
pub(crate) struct FleetOwnerArgs {
    /// Host name or address
    #[arg(value_name = "HOST")]
    pub host: String,
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

fn parse_node(text: &str) -> Result<NodeName, String> {
    NodeName::new(text).map_err(|error| error.to_string())
}

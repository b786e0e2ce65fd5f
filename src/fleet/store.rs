//! The store of a fleet: a PostgreSQL database, or what speaks its protocol. It holds members, leases and partitions, and
//! what nodes share besides: stops, daily budgets, and the state of hosts for their next owners.
//!
//! Every statement can be repeated without harm, and has a time-out, after which its connection is closed: it may have
//! been carried out. The SQL avoids what CockroachDB and YugabyteDB do not have: no LISTEN, no advisory locks, no
//! extensions.

mod error;
mod host_state;
mod schema;
mod session;
mod shared_state;
mod tls;
mod url;

use std::time::Duration;

use crawlgate_fleet::node::NodeName;
use crawlgate_fleet::ownership::table::Generation;
use crawlgate_fleet::partition::Partitioner;

pub use error::StoreError;
pub use schema::{FoundOutcome, Founding, found, migrate};
pub(in crate::fleet) use session::random_number;
pub use session::{ForgetOutcome, MemberFacts, MemberReport, NodeFacts, StoreSession};
pub use shared_state::StopsVersion;
pub use url::StoreUrl;

/// `store` with `kind: postgres`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostgresConfig {
    /// Where the database is, and as whom to connect.
    pub url: StoreUrl,
    /// The time that a statement, or connecting to one address, may take.
    pub timeout: Duration,
}

impl PostgresConfig {
    /// The default of `store.timeout`.
    pub const TIMEOUT: Duration = Duration::from_secs(2);
}

/// The row of the fleet, which `crawlgate fleet found` has written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetRecord {
    /// The name, `fleet.name` of every node.
    pub name: Box<str>,
    /// The founding.
    pub generation: Generation,
    /// The partitions of hosts.
    pub partitioner: Partitioner,
    /// The lease, `fleet.lease` of every node: with different ones, two nodes could own one host.
    pub lease: Duration,
}

impl FleetRecord {
    /// Checks the settings of a node against those of the fleet.
    ///
    /// # Errors
    ///
    /// If the store belongs to another fleet, or the lease differs.
    pub fn check(&self, name: &str, lease: Duration, node: &NodeName) -> Result<(), StoreError> {
        if *self.name != *name {
            return Err(StoreError::OtherFleet {
                found: self.name.clone(),
                expected: name.into(),
            });
        }
        if self.lease != lease {
            return Err(StoreError::OtherLease {
                node: node.clone(),
                configured: lease,
                fleet: self.lease,
            });
        }
        Ok(())
    }
}

//! State that the proxy keeps between requests: the pacing state of hosts, the ledger, emergency stops, budgets and
//! earlier policies.

mod atomic_file;
pub mod budgets;
mod host_store;
pub mod ledger;
pub mod policies;
pub mod policy_lock;
pub mod sharded_map;
pub mod staged_file;
pub mod stops;

pub use atomic_file::sync_directory;
pub use host_store::{
    HostRecord, HostSnapshot, HostStore, Lease, LeaseOutcome, LimiterKey, PartitionOf, StoreStats,
};

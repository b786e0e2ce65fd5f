//! Nodes of a fleet, as processes, with a real PostgreSQL.
//!
//! Without PostgreSQL (Debian: postgresql-15) the tests are skipped, but fail if `CI` is set.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::disallowed_methods,
    reason = "a test that panics has failed, its helpers too; processes are waited for"
)]

mod budgets;
mod disturbances;
mod errors;
mod fleet;
mod handover;
mod lapse;
mod node;
mod pooler;
mod releases;
mod server;
mod stops;

//! Nodes of a fleet, as processes, with a real PostgreSQL.
//!
//! Without PostgreSQL (Debian: postgresql-15) the tests are skipped, but fail if `CI` is set.

mod errors;
mod fleet;
mod node;
mod server;

//! This node in a fleet: which node owns a host.

pub mod owners;

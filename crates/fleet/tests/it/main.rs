//! Tests of the crate.

mod partition;
mod simulation;

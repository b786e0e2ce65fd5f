//! Tests of the crate.

mod partition;

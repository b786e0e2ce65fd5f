//! Tests of the crate.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "a panic, in a helper too, is a failure of the test"
)]

mod leaving;
mod partition;
mod simulation;

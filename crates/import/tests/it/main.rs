//! The tests of the importers.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::string_slice,
    missing_docs,
    reason = "tests"
)]

mod exalead;
mod fixtures;
mod nutch;
mod omnifind;
mod seeds;
mod support;
mod velocity;

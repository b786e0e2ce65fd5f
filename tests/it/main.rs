//! The one integration-test binary.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "a test that panics has failed, its helpers too"
)]

mod address;
mod admin;
mod broken;
mod compile;
mod conditions;
mod conformance;
mod head;
mod layers;
mod log;
mod metrics;
mod property;
mod support;
mod target;

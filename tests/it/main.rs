//! The one integration-test binary.

mod admin;
mod log;
mod metrics;

//! The one integration-test binary.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::disallowed_methods,
    reason = "a test that panics has failed, its helpers too; some tests time what sockets do"
)]

mod address;
mod admin;
mod broken;
mod cli;
mod compile;
mod conditions;
mod config;
mod conformance;
mod diff;
mod document;
mod drain;
mod effects;
mod examples;
mod fuzz;
mod head;
mod identify;
mod layers;
mod lint;
mod lists;
mod log;
mod metrics;
mod observed;
mod origin_tls;
mod pace;
mod property;
mod reload;
mod robots;
mod robots_fetch;
mod schema;
mod spaces;
mod store;
mod support;
mod target;
mod test_command;
mod tls;
mod tunnel;
mod upstream;
mod watch;
mod whole;

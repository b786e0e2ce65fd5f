//! The one integration-test binary.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::disallowed_methods,
    reason = "a test that panics has failed, its helpers too; some tests time what sockets do"
)]
#![allow(
    clippy::too_many_lines,
    reason = "tables of cases, and stories told from start to end"
)]

mod address;
mod admin;
mod api;
mod broken;
mod budget;
mod cli;
mod compile;
mod conditions;
mod config;
mod conformance;
mod contrib;
mod dashboards;
mod decisions;
mod dependencies;
mod descriptors;
mod diff;
mod document;
mod documentation;
mod documents;
mod drain;
mod effects;
mod examples;
mod explain_wire;
mod feed;
mod fleet;
mod fuzz;
mod head;
mod http2;
mod identify;
mod identity;
mod import;
mod layers;
mod ledger;
mod ledger_command;
mod ledger_files;
mod ledger_wire;
mod lists;
mod log;
mod losses;
mod memory;
mod metrics;
mod names;
mod observed;
mod operating;
mod order;
mod origin_http2;
mod origin_tls;
mod pace;
mod pacing;
mod packaging;
mod parents;
/// The generator of the property tests of `crates/policy`.
#[allow(
    dead_code,
    reason = "shared with the property tests, which use more of it"
)]
#[path = "../../crates/policy/tests/property"]
mod property {
    pub(crate) mod generate;
    pub(crate) mod model;
}
mod proxy_protocol;
mod readings;
mod reload;
mod robots;
mod robots_fetch;
mod rollout;
mod schema;
mod simulation;
mod spaces;
mod stops;
mod store;
mod support;
mod target;
mod test_command;
mod tls;
mod trace;
mod traps;
mod tunnel;
mod ui;
mod upstream;
mod watch;
mod whole;

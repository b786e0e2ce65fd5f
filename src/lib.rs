//! crawlgate: an HTTP forward proxy that enforces crawl policy.

#![allow(
    missing_docs,
    reason = "the library of a program: its items are for the binary, tests and benches"
)]

pub mod admin;
pub mod cli;
pub mod clock;
pub mod config;
mod console;
pub mod feed;
pub mod fleet;
pub mod heap;
pub mod http_client;
pub mod identity;
mod io_advice;
mod long_work;
mod messages;
pub mod metrics;
pub mod otlp;
pub mod pipeline;
pub mod proxy;
pub mod report;
pub mod server;
pub mod store;
pub mod tls;
pub mod trace_context;

#[doc(no_inline)]
pub use crawlgate_policy::internal::{
    diagnostics, ledger, model, pacing, policy, robots, urls, yaml,
};

//! crawlgate: an HTTP forward proxy that enforces crawl policy.

pub mod admin;
pub mod cli;
pub mod clock;
pub mod config;
pub mod feed;
pub mod gate;
pub mod heap;
pub mod ledger;
pub mod metrics;
#[cfg(feature = "otlp")]
pub mod otlp;
pub mod policy;
pub mod politeness;
pub mod post;
pub mod proxy;
pub mod report;
pub mod robots;
pub mod store;
pub mod tls;
pub mod vocab;
pub mod yaml;

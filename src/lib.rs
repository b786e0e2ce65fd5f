//! crawlgate: an HTTP forward proxy that enforces crawl policy.

pub mod admin;
pub mod cli;
pub mod clock;
pub mod config;
pub mod gate;
pub mod heap;
pub mod metrics;
pub mod policy;
pub mod politeness;
pub mod proxy;
pub mod robots;
pub mod store;
pub mod tls;
pub mod vocab;
pub mod yaml;

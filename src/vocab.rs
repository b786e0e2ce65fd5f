//! The words that every part of crawlgate shares: plain values, no I/O, no behaviour of their own.
//!
//! Nothing here names another module of the house.

pub mod address;
pub mod certificate_verification;
pub mod crawl_status;
pub mod crawler;
pub mod disposition;
pub mod domain;
pub mod intent;
pub mod media_type;
pub mod nearest;
pub mod problem;
pub mod problems;
pub mod profile;
pub mod reason;
pub mod rule_id;
mod secret;
pub mod snippet;
pub mod stage;
pub mod target;
pub mod trace_context;
pub mod units;
pub mod upstream_fault;
pub mod week;

//! The tests of the importers.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::string_slice,
    missing_docs,
    reason = "tests"
)]

mod brozzler;
mod fixtures;
mod nutch;
mod scrapy;
mod squid;
mod support;
mod wget;

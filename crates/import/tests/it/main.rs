//! The tests of the importers.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::string_slice,
    missing_docs,
    reason = "tests"
)]

mod expression;
mod fixtures;
mod norconex;
mod norconex_traps;
mod nutch;
mod stormcrawler;
mod support;

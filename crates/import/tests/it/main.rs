//! The tests of the importers.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::disallowed_methods,
    clippy::too_many_lines,
    missing_docs,
    reason = "tests"
)]

mod browsertrix;
mod brozzler;
mod exalead;
mod expression;
mod fixtures;
mod fuzz;
mod heritrix;
mod lists;
mod mutation;
mod norconex;
mod norconex_traps;
mod nutch;
mod omnifind;
mod robots;
mod scrapy;
mod seeds;
mod squid;
mod stormcrawler;
mod support;
mod velocity;
mod webcopy;
mod webcopy_files;
mod webcopy_traps;
mod wget;

//! The policy engine of crawlgate: from policy text to decisions, robots.txt, pacing and the ledger's transitions.
//!
//! Pure: nothing here opens a file, a socket or a clock. Files are read through a value that the caller passes in, and
//! time is an argument.

/// The parts that the crawlgate proxy is built from. Not covered by semantic versioning.
#[doc(hidden)]
#[path = "."]
pub mod internal {
    pub mod diagnostics;
    pub mod ledger;
    pub mod model;
    pub mod pacing;
    pub mod policy;
    pub mod robots;
    pub mod urls;
    pub mod yaml;
}

#[cfg(test)]
#[path = "test_clock.rs"]
mod clock;

// Modules name each other by these short paths.
use internal::{diagnostics, model, policy, robots, urls, yaml};
#[cfg(test)]
use internal::{ledger, pacing};

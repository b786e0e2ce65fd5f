//! The option `depth`: the URLs that links are counted from.

use crate::policy::Policy;
use crate::policy::trail::Trail;

use super::schema::{DEPTH_START, HEADER_WORD, SEEDS_WORD};

/// The URLs with depth 0, besides those for which the crawler sends `Crawl-Depth: 0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DepthStart {
    /// Those requested without `Referer` of which nothing is known, and the seeds of the space.
    NoReferer,
    /// The seeds of the space.
    Seeds,
    /// No others.
    Header,
}

impl DepthStart {
    /// Reads the option for a request.
    pub fn from_trail(policy: &Policy, trail: &Trail) -> Self {
        match trail.word(policy, DEPTH_START) {
            Some(SEEDS_WORD) => Self::Seeds,
            Some(HEADER_WORD) => Self::Header,
            Some(_) | None => Self::NoReferer,
        }
    }
}

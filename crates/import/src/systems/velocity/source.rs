//! A crawler's conditions as they were read.

use crate::report::PartId;

/// A crawler, or a part of one.
#[derive(Clone, Debug, Default)]
pub struct VelocityCrawler {
    /// `default-allow` of the global options is `allow`.
    pub allows: bool,
    pub nodes: Vec<VelocityNode>,
}

/// A component or a rule, in document order.
#[derive(Clone, Debug)]
pub enum VelocityNode {
    /// `crawl-condition-when`, `crawl-condition-except`.
    Condition {
        part: PartId,
        /// `false` for `crawl-condition-except`.
        applies_if_matched: bool,
        test: VelocityTest,
        /// `default-allow`: `true` for `allow`.
        allows: Option<bool>,
        nodes: Vec<VelocityNode>,
    },
    /// `crawl-may-not-have`, `crawl-must-have`.
    Filter {
        part: PartId,
        /// `true` for `crawl-must-have`.
        must_match: bool,
        test: VelocityTest,
    },
    /// `max-url-len`, `max-slashes`: longer URLs are not crawled.
    Limit {
        part: PartId,
        max: u64,
        /// It counts the slashes of the path, not the characters of the URL.
        counts_slashes: bool,
    },
    /// `vse-crawler-seed-urls`: URLs of these hosts and of those below them are allowed.
    Seeds { part: PartId, hosts: Vec<String> },
}

/// The patterns of a condition, of which one must match a part of the URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VelocityTest {
    pub field: VelocityField,
    /// `*` is any run of characters; otherwise patterns are compared as they are.
    pub has_wildcards: bool,
    pub patterns: Vec<String>,
}

/// A part of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VelocityField {
    Url,
    Path,
    Host,
    Protocol,
}

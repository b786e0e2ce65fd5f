//! crawlgate: an HTTP forward proxy that enforces crawl policy.

pub mod policy;
pub mod vocab;

//! crawlgate: an HTTP forward proxy that enforces crawl policy.

pub mod gate;
pub mod policy;
pub mod proxy;
pub mod vocab;
pub mod yaml;

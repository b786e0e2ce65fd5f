//! One module for each system: its reader, its conversion, and its evaluator in `reference`.

pub mod browsertrix;
pub mod brozzler;
pub mod comments;
pub mod exalead;
pub mod heritrix;
pub mod lists;
pub mod norconex;
pub mod nutch;
pub mod omnifind;
pub mod robots;
pub mod scrapy;
pub mod squid;
pub mod stormcrawler;
pub mod urls;
pub mod velocity;
pub mod webcopy;
pub mod wget;
pub mod yaml_source;

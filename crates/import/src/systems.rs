//! One module for each system: its reader, its conversion, and its evaluator in `reference`.

pub mod brozzler;
pub mod nutch;
pub mod scrapy;
pub mod squid;
pub mod wget;

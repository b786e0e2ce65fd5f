//! The crawl ledger, pure: the record of a URL, its transition by an observed request, and the
//! event that results.
//!
//! Each crawler has its own records. Nothing here reads a clock or a file: times are arguments, and
//! the store passes records in and takes them back.

pub mod code;
pub mod event;
pub mod filter;
pub mod key;
pub mod observation;
pub mod record;
pub mod recrawl;
pub mod removal;
pub mod transition;

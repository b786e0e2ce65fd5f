//! What is remembered of URLs, pure: a record, what a request makes of it, and what is owed then.
//!
//! Each crawler has records of its own. Nothing here reads a clock or a file: times are arguments, and who keeps records
//! (`store/ledger`) hands them in and takes them back.

pub mod event;
pub mod filter;
pub mod key;
pub mod observation;
pub mod record;
pub mod recrawl;
pub mod transition;

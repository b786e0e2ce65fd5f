//! Decisions and explanations as JSON documents, shared by `decide`, `explain`, `ledger` and the admin API.
//!
//! This includes URLs of the ledger and events of its feed. Nothing here decides: each document is made from
//! existing results, such as [`crate::pipeline::offline_evaluation::OfflineEvaluation`]. The text output for terminals is in
//! `cli`.

pub mod case;
pub mod csv;
pub mod decision;
pub mod dry_run;
pub mod event;
pub mod explanation;
pub mod ledger;
pub mod record;
pub mod response;
pub mod url_filter;

//! Decisions and explanations as documents: what `decide`, `explain`, `ledger` and the admin API write, in one form.
//!
//! URLs of the ledger and events of its feed, too. Nothing here decides: each document is made from what it is given, a
//! [`crate::pipeline::trial::OfflineEvaluation`] for one. Terminals have forms of their own, in `cli`.

pub mod case;
pub mod csv;
pub mod decision;
pub mod event;
pub mod explanation;
pub mod ledger;
pub mod record;
pub mod response;

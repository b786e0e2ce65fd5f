//! The stages, one file each.

pub(super) mod budget;
pub(super) mod class;
pub(super) mod destination;
pub mod document;
pub mod identify;
pub(super) mod ledger;
pub mod outcome;
pub(super) mod pace;
pub mod recrawl;
pub(super) mod redirect;
pub(super) mod request;
pub(super) mod response;
pub mod robots;
mod robots_wait;
pub(super) mod stop;
pub(super) mod usage;

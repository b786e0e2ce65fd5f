//! The stages, one file each.

pub(super) mod budget;
pub(super) mod class;
pub(super) mod content;
pub(super) mod destination;
pub mod document;
pub mod identify;
pub(super) mod ledger;
pub mod outcome;
pub(super) mod pace;
pub mod recrawl;
pub(super) mod redirect;
pub(super) mod robots;
pub(super) mod scope;
pub(super) mod stop;
pub(super) mod usage;

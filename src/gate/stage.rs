//! The stages, one file each.

pub(super) mod content;
pub(super) mod destination;
pub mod identify;
pub(super) mod pace;
pub(super) mod robots;
pub(super) mod scope;

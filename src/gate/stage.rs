//! The stages, one file each.

pub(super) mod content;
pub(super) mod destination;
pub(super) mod pace;
pub(super) mod scope;

//! What several tests share.

pub(crate) mod admin;
pub(crate) mod command;
pub(crate) mod folder;
pub(crate) mod gate;
pub(crate) mod look;
pub(crate) mod way;

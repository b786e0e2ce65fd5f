//! What several tests share: a gate as its own process.

pub(crate) mod gate;

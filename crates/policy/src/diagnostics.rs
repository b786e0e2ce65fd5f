//! Problems found in configuration files: their place, the text of the line, and a suggestion.

pub mod nearest;
pub mod problem;
pub mod problems;
mod secret;
pub mod snippet;

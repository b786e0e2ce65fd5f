//! The command line: one file a command, which is handed its input and output.

pub mod target;

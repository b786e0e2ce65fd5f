//! One module for each system: its reader, its conversion, and its evaluator in `reference`.

pub mod comments;
pub mod exalead;
pub mod nutch;
pub mod omnifind;
pub mod urls;
pub mod velocity;

//! robots.txt: the published test-suite, the standard's examples and cases of our own (tables in tests/robots), what a
//! hostile file costs, other parsers' opinions, and the command.

mod check;
mod cost;
mod oracle;
mod read;
mod table;

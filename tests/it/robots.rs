//! robots.txt: the published test suite, the standard's examples and further cases (tables in tests/robots), the cost of a
//! hostile file, comparisons with other parsers, and the command.

mod check;
mod cost;
mod oracle;
mod read;
mod table;

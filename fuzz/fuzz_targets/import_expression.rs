//! The fuzz target `import_expression`, implemented in `crates/import/tests/it/fuzz/import_expression.rs`.

#![no_main]

#[path = "../../crates/import/tests/it/fuzz/import_expression.rs"]
mod import_expression;

libfuzzer_sys::fuzz_target!(|input: &[u8]| import_expression::run(input));

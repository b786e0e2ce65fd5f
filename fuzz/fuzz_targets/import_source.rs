//! The fuzz target `import_source`, implemented in `crates/import/tests/it/fuzz/import_source.rs`.

#![no_main]

#[path = "../../crates/import/tests/it/fuzz/import_source.rs"]
mod import_source;

libfuzzer_sys::fuzz_target!(|input: &[u8]| import_source::run(input));

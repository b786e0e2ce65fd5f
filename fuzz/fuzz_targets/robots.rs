//! The fuzz target `robots`, implemented in `tests/it/fuzz/robots.rs`.

#![no_main]

#[path = "../../tests/it/fuzz/robots.rs"]
mod robots;

libfuzzer_sys::fuzz_target!(|input: &[u8]| robots::run(input));

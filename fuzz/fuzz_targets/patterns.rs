//! The fuzz target `patterns`, implemented in `tests/it/fuzz/patterns.rs`.

#![no_main]

#[path = "../../tests/it/fuzz/patterns.rs"]
mod patterns;

libfuzzer_sys::fuzz_target!(|input: &[u8]| patterns::run(input));

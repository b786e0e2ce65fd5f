//! The fuzz target `index`, implemented in `tests/it/fuzz/index.rs`.

#![no_main]

#[path = "../../tests/it/fuzz/index.rs"]
mod index;

libfuzzer_sys::fuzz_target!(|input: &[u8]| index::run(input));

//! The fuzz target `decide`, implemented in `tests/it/fuzz/decide.rs`.

#![no_main]

#[path = "../../tests/it/fuzz/decide.rs"]
mod decide;

libfuzzer_sys::fuzz_target!(|input: &[u8]| decide::run(input));

//! The fuzz target `head`, implemented in `tests/it/fuzz/head.rs`.

#![no_main]

#[path = "../../tests/it/fuzz/head.rs"]
mod head;

libfuzzer_sys::fuzz_target!(|input: &[u8]| head::run(input));

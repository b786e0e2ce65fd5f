//! The fuzz target `url`, implemented in `tests/it/fuzz/url.rs`.

#![no_main]

#[path = "../../tests/it/fuzz/url.rs"]
mod url;

libfuzzer_sys::fuzz_target!(|input: &[u8]| url::run(input));

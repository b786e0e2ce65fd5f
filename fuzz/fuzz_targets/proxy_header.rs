//! The fuzz target `proxy_header`, implemented in `tests/it/fuzz/proxy_header.rs`.

#![no_main]

#[path = "../../tests/it/fuzz/proxy_header.rs"]
mod proxy_header;

libfuzzer_sys::fuzz_target!(|input: &[u8]| proxy_header::run(input));

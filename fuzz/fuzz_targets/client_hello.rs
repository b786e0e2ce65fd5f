//! The fuzz target `client_hello`, implemented in `tests/it/fuzz/client_hello.rs`.

#![no_main]

#[path = "../../tests/it/fuzz/client_hello.rs"]
mod client_hello;

libfuzzer_sys::fuzz_target!(|input: &[u8]| client_hello::run(input));

//! The fuzz target `policy_source`, implemented in `tests/it/fuzz/policy_source.rs`.

#![no_main]

#[path = "../../tests/it/fuzz/policy_source.rs"]
mod policy_source;

libfuzzer_sys::fuzz_target!(|input: &[u8]| policy_source::run(input));

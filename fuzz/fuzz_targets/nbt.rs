//! The fuzz target `nbt`, implemented in `tests/it/fuzz/nbt.rs`.

#![no_main]

#[path = "../../tests/it/fuzz/nbt.rs"]
mod nbt;

libfuzzer_sys::fuzz_target!(|input: &[u8]| nbt::run(input));

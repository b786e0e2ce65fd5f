//! The fuzz target `ledger_file`, implemented in `tests/it/fuzz/ledger_file.rs`.

#![no_main]

#[path = "../../tests/it/fuzz/ledger_file.rs"]
mod ledger_file;

libfuzzer_sys::fuzz_target!(|input: &[u8]| ledger_file::run(input));

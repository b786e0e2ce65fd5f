//! Damage to a ledger's file, three bytes each (a place in the file, and the bits to flip), then one byte that cuts it: it
//! is opened or refused, and reads end.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use crawlgate::store::ledger::{FeedCursor, Ledger, LedgerSettings};

/// The fuzz target `ledger_file`.
pub(crate) fn run(input: &[u8]) {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("crawlgate-fuzz-ledger-{}-{number}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("ledger.redb"), damaged(input)).unwrap();
    if let Ok(ledger) = Ledger::open_existing(&folder, LedgerSettings::default()) {
        // The database library panics on some damage. That costs the request that reads.
        let _ = catch_unwind(AssertUnwindSafe(|| ledger.records(None, 1_000)));
        let _ = catch_unwind(AssertUnwindSafe(|| ledger.events(FeedCursor(0), 1_000)));
        ledger.close();
    }
    fs::remove_dir_all(&folder).unwrap();
}

fn damaged(input: &[u8]) -> Vec<u8> {
    let mut bytes = include_bytes!("../../ledger_files/ledger.redb").to_vec();
    let damages = input.chunks_exact(3);
    if let [kept] = damages.remainder() {
        let length = bytes.len() * (usize::from(*kept) + 1) / 256;
        bytes.truncate(length);
    }
    for damage in damages {
        let place = usize::from(u16::from_be_bytes([damage[0], damage[1]]));
        let at = place * bytes.len() / (1 << 16);
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= damage[2];
        }
    }
    bytes
}

//! The digest of the configuration file, to notice that it was edited after it was read.

use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::timed_read::{READ_TIMEOUT, ReadPurpose, read_regular_file, run_with_timeout};

/// Returns SHA-256 of the content of a file.
pub(super) fn digest(content: &[u8]) -> [u8; 32] {
    Sha256::digest(content).into()
}

/// Returns SHA-256 of the present content of a file; `None` if it cannot be read, for example while an editor replaces it.
/// Blocks.
pub fn read_digest(path: &Path) -> Option<[u8; 32]> {
    let path = path.to_owned();
    run_with_timeout(READ_TIMEOUT, ReadPurpose::Poll, move || {
        read_regular_file(&path).ok().map(|bytes| digest(&bytes))
    })
    .ok()
    .flatten()
}

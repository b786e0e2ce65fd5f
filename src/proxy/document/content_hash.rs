//! The SHA-256 hash of a body, calculated over the decoded bytes while they arrive.

use std::ops::ControlFlow;

use sha2::{Digest, Sha256};

use crate::pipeline::response::ContentHash;

use super::buffer::BodyBuffer;
use super::coding::{ContentCoding, ContentDecoder};

/// The maximum number of decoded bytes that are hashed. A body that decodes to more has no hash: a
/// decompression bomb would take too much time.
const MAX_DECODED: u64 = 64 * 1024 * 1024;

/// A hash calculation in progress.
#[derive(Debug)]
pub(super) struct ContentHasher {
    decoder: ContentDecoder,
    hasher: Sha256,
    hashed: u64,
    state: HasherState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HasherState {
    Valid,
    /// The body is invalid or too large.
    Invalid,
}

impl ContentHasher {
    pub(super) fn new(coding: ContentCoding) -> Self {
        Self {
            decoder: ContentDecoder::new(coding),
            hasher: Sha256::new(),
            hashed: 0,
            state: HasherState::Valid,
        }
    }

    pub(super) fn feed(&mut self, bytes: &[u8]) {
        if self.state == HasherState::Invalid {
            return;
        }
        let hasher = &mut self.hasher;
        let hashed = &mut self.hashed;
        let fed = self.decoder.feed(bytes, &mut |decoded| {
            hasher.update(decoded);
            *hashed += decoded.len() as u64;
            if *hashed <= MAX_DECODED {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        if fed != Ok(ControlFlow::Continue(())) {
            self.state = HasherState::Invalid;
        }
    }

    /// Returns the hash, if the bytes so far are a complete body.
    pub(super) fn finish(self) -> Option<ContentHash> {
        let whole = self.state == HasherState::Valid && self.decoder.may_end();
        whole.then(|| self.hasher.finalize().into())
    }
}

/// Returns the hash of a body that is complete in memory.
pub(super) fn hash_buffer(buffer: &BodyBuffer, coding: ContentCoding) -> Option<ContentHash> {
    let mut hasher = ContentHasher::new(coding);
    buffer.iter().for_each(|part| hasher.feed(part));
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn hash(coding: ContentCoding, body: &[u8]) -> Option<ContentHash> {
        let mut hasher = ContentHasher::new(coding);
        body.chunks(7).for_each(|part| hasher.feed(part));
        hasher.finish()
    }

    #[test]
    fn the_hash_does_not_depend_on_the_coding() {
        let plain = hash(ContentCoding::Identity, b"a page").unwrap();
        assert_eq!(plain, <ContentHash>::from(Sha256::digest(b"a page")));
        assert_eq!(hash(ContentCoding::Gzip, &gzip(b"a page")), Some(plain));
        let packed = gzip(b"a page");
        assert_eq!(
            hash(ContentCoding::Gzip, packed.get(..packed.len() - 1).unwrap()),
            None
        );
        assert_eq!(hash(ContentCoding::Gzip, b"a page"), None);
    }

    #[test]
    fn a_bomb_has_no_hash() {
        let mut hasher = ContentHasher::new(ContentCoding::Gzip);
        hasher.feed(&gzip(&vec![0; MAX_DECODED as usize + 1]));
        assert_eq!(hasher.finish(), None);
    }
}

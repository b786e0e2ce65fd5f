//! The hash of a body as it comes: SHA-256, content codings undone.

use std::ops::ControlFlow;

use sha2::{Digest, Sha256};

use crate::pipeline::response::ContentHash;

use super::buffer::BodyBuffer;
use super::coding::{ContentCoding, ContentDecoder};

/// Bytes that are hashed, decoded. A body that unpacks to more has no hash: a bomb would cost too much time.
const MAX_DECODED: u64 = 64 * 1024 * 1024;

/// A hash under way.
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
    /// It is broken, or too large.
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
        let (hasher, hashed) = (&mut self.hasher, &mut self.hashed);
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

    /// The hash of what has come, if that is a whole body.
    pub(super) fn finish(self) -> Option<ContentHash> {
        let whole = self.state == HasherState::Valid && self.decoder.may_end();
        whole.then(|| self.hasher.finalize().into())
    }
}

/// The hash of a body that is all there.
pub(super) fn hash_buffer(buffer: &BodyBuffer, coding: ContentCoding) -> Option<ContentHash> {
    let mut hashing = ContentHasher::new(coding);
    buffer.iter().for_each(|part| hashing.feed(part));
    hashing.finish()
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
        let mut hashing = ContentHasher::new(coding);
        body.chunks(7).for_each(|part| hashing.feed(part));
        hashing.finish()
    }

    #[test]
    fn a_body_has_one_hash_however_it_is_packed() {
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
    fn a_bomb_has_none() {
        let mut hashing = ContentHasher::new(ContentCoding::Gzip);
        hashing.feed(&gzip(&vec![0; MAX_DECODED as usize + 1]));
        assert_eq!(hashing.finish(), None);
    }
}

//! The SHA-256 hash of a body, calculated over the decoded bytes while they arrive.

use std::ops::ControlFlow;

use sha2::{Digest, Sha256};

use crate::pipeline::response::ContentHash;
use crate::proxy::turn::TurnWork;

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

    /// Hashes the next bytes, and removes those that were used from `bytes`. Breaks when `work` is as
    /// much as a turn may do; another call goes on.
    pub(super) fn feed(&mut self, bytes: &mut &[u8], work: &mut TurnWork) -> ControlFlow<()> {
        if self.state == HasherState::Invalid {
            *bytes = &[];
            return ControlFlow::Continue(());
        }
        let hasher = &mut self.hasher;
        let hashed = &mut self.hashed;
        let fed = self.decoder.feed(bytes, work, &mut |decoded, work| {
            hasher.update(decoded);
            *hashed += decoded.len() as u64;
            if *hashed <= MAX_DECODED && !work.add(decoded.len()) {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        match fed {
            Ok(flow) if *hashed <= MAX_DECODED => flow,
            Ok(_) | Err(_) => {
                self.state = HasherState::Invalid;
                *bytes = &[];
                ControlFlow::Continue(())
            }
        }
    }

    /// Returns the hash, if the bytes so far are a complete body.
    pub(super) fn finish(self) -> Option<ContentHash> {
        let whole = self.state == HasherState::Valid && self.decoder.may_end();
        whole.then(|| self.hasher.finalize().into())
    }
}

/// Returns the hash of a body that is complete in memory.
pub(super) async fn hash_buffer(buffer: &BodyBuffer, coding: ContentCoding) -> Option<ContentHash> {
    let mut hasher = ContentHasher::new(coding);
    let mut work = TurnWork::default();
    for mut part in buffer.iter() {
        while hasher.feed(&mut part, &mut work).is_break() {
            work.pause().await;
        }
    }
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
        let mut work = TurnWork::default();
        for mut part in body.chunks(7) {
            while hasher.feed(&mut part, &mut work).is_break() {
                work.restart();
            }
        }
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
        let bomb = gzip(&vec![0; MAX_DECODED as usize + 1]);
        let mut rest = bomb.as_slice();
        let mut work = TurnWork::default();
        let mut turns = 1;
        while hasher.feed(&mut rest, &mut work).is_break() {
            work.restart();
            turns += 1;
        }
        assert_eq!(hasher.finish(), None);
        assert!(turns > MAX_DECODED as usize / TurnWork::MAX, "{turns}");
    }

    #[tokio::test]
    async fn a_hash_in_many_turns_is_the_same() {
        let body = vec![5; 3 * TurnWork::MAX];
        for (coding, bytes) in [
            (ContentCoding::Identity, body.clone()),
            (ContentCoding::Gzip, gzip(&body)),
        ] {
            let mut buffer = BodyBuffer::default();
            buffer.push(bytes.into());
            assert_eq!(
                hash_buffer(&buffer, coding).await,
                Some(<ContentHash>::from(Sha256::digest(&body)))
            );
        }
    }
}

//! The hash of a body as it comes: SHA-256, content codings undone.

use std::ops::ControlFlow;

use sha2::{Digest, Sha256};

use crate::gate::response::ContentHash;

use super::coding::{Coding, Decoder};
use super::kept::Kept;

/// Bytes that are hashed, decoded. A body that unpacks to more has no hash: a bomb would cost too much time.
const MOST: u64 = 64 * 1024 * 1024;

/// A hash under way.
#[derive(Debug)]
pub(super) struct Hashing {
    decoder: Decoder,
    hasher: Sha256,
    hashed: u64,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Whole,
    /// It is broken, or too large.
    None,
}

impl Hashing {
    pub(super) fn new(coding: Coding) -> Self {
        Self {
            decoder: Decoder::new(coding),
            hasher: Sha256::new(),
            hashed: 0,
            state: State::Whole,
        }
    }

    pub(super) fn feed(&mut self, bytes: &[u8]) {
        if self.state == State::None {
            return;
        }
        let (hasher, hashed) = (&mut self.hasher, &mut self.hashed);
        let fed = self.decoder.feed(bytes, &mut |decoded| {
            hasher.update(decoded);
            *hashed += decoded.len() as u64;
            if *hashed <= MOST {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        if fed != Ok(ControlFlow::Continue(())) {
            self.state = State::None;
        }
    }

    /// The hash of what has come, if that is a whole body.
    pub(super) fn end(self) -> Option<ContentHash> {
        let whole = self.state == State::Whole && self.decoder.may_end();
        whole.then(|| self.hasher.finalize().into())
    }
}

/// The hash of a body that is all there.
pub(super) fn of(kept: &Kept, coding: Coding) -> Option<ContentHash> {
    let mut hashing = Hashing::new(coding);
    kept.iter().for_each(|part| hashing.feed(part));
    hashing.end()
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

    fn hash(coding: Coding, body: &[u8]) -> Option<ContentHash> {
        let mut hashing = Hashing::new(coding);
        body.chunks(7).for_each(|part| hashing.feed(part));
        hashing.end()
    }

    #[test]
    fn a_body_has_one_hash_however_it_is_packed() {
        let plain = hash(Coding::Identity, b"a page").unwrap();
        assert_eq!(plain, <ContentHash>::from(Sha256::digest(b"a page")));
        assert_eq!(hash(Coding::Gzip, &gzip(b"a page")), Some(plain));
        let packed = gzip(b"a page");
        assert_eq!(
            hash(Coding::Gzip, packed.get(..packed.len() - 1).unwrap()),
            None
        );
        assert_eq!(hash(Coding::Gzip, b"a page"), None);
    }

    #[test]
    fn a_bomb_has_none() {
        let mut hashing = Hashing::new(Coding::Gzip);
        hashing.feed(&gzip(&vec![0; MOST as usize + 1]));
        assert_eq!(hashing.end(), None);
    }
}

//! A buffer for body bytes that were read before any of them was sent, as received.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// Parts smaller than this are merged: a body that arrives byte by byte would otherwise need many
/// times its size.
const SMALL_PART: usize = 1024;
const COALESCED_SIZE: usize = 8 * 1024;

/// Bytes in the order of arrival.
#[derive(Debug, Default)]
pub(super) struct BodyBuffer {
    parts: VecDeque<Bytes>,
    tail: BytesMut,
    length: u64,
}

impl BodyBuffer {
    pub(super) fn push(&mut self, part: Bytes) {
        self.length += part.len() as u64;
        if part.len() < SMALL_PART {
            self.tail.extend_from_slice(&part);
            if self.tail.len() >= COALESCED_SIZE {
                self.flush_tail();
            }
        } else {
            self.flush_tail();
            self.parts.push_back(part);
        }
    }

    pub(super) fn pop(&mut self) -> Option<Bytes> {
        if self.parts.is_empty() {
            self.flush_tail();
        }
        let part = self.parts.pop_front()?;
        self.length -= part.len() as u64;
        Some(part)
    }

    pub(super) fn length(&self) -> u64 {
        self.length
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.parts
            .iter()
            .map(|part| &part[..])
            .chain([&self.tail[..]])
    }

    fn flush_tail(&mut self) {
        if !self.tail.is_empty() {
            self.parts.push_back(self.tail.split().freeze());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_out_in_their_order() {
        let mut buffer = BodyBuffer::default();
        let mut all = Vec::new();
        for (at, length) in [3, 2000, 1, 1, 5000, 9000, 10].into_iter().enumerate() {
            let part = vec![at as u8; length];
            all.extend_from_slice(&part);
            buffer.push(part.into());
        }
        assert_eq!(buffer.length(), all.len() as u64);
        assert_eq!(buffer.iter().flatten().copied().collect::<Vec<_>>(), all);
        let mut out = Vec::new();
        while let Some(part) = buffer.pop() {
            out.extend_from_slice(&part);
        }
        assert_eq!((out, buffer.length()), (all, 0));
    }
}

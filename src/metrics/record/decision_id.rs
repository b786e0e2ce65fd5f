//! The id of a decision.

use std::fmt;
use std::ops::Deref;

/// The id of a decision: the instance's random prefix and a counter, `9f3c01ab-1f`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DecisionId {
    instance: u32,
    number: u64,
}

impl DecisionId {
    pub(in crate::metrics) fn new(instance: u32, number: u64) -> Self {
        Self { instance, number }
    }

    /// Formats the id for headers and documents, without an allocation.
    pub fn to_text(self) -> DecisionIdText {
        let mut text = DecisionIdText {
            bytes: [0; 25],
            len: 0,
        };
        let digits = (64 - self.number.leading_zeros()).div_ceil(4).max(1);
        let instance = (0..8)
            .rev()
            .map(|digit| self.instance >> (4 * digit) & 15)
            .map(|d| d as usize);
        let number = (0..digits)
            .rev()
            .map(|digit| (self.number >> (4 * digit) & 15) as usize);
        for digit in instance {
            text.push_hex(digit);
        }
        text.push(b'-');
        for digit in number {
            text.push_hex(digit);
        }
        text
    }
}

impl fmt::Display for DecisionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text())
    }
}

/// A [`DecisionId`] as text: hexadecimal digits and one hyphen.
#[derive(Clone, Copy, Debug)]
pub struct DecisionIdText {
    bytes: [u8; 25],
    len: u8,
}

impl DecisionIdText {
    fn push_hex(&mut self, digit: usize) {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        self.push(HEX.get(digit).copied().unwrap_or(b'0'));
    }

    fn push(&mut self, byte: u8) {
        if let Some(slot) = self.bytes.get_mut(usize::from(self.len)) {
            *slot = byte;
            self.len += 1;
        }
    }
}

impl Deref for DecisionIdText {
    type Target = str;

    fn deref(&self) -> &str {
        let written = self.bytes.get(..usize::from(self.len)).unwrap_or_default();
        std::str::from_utf8(written).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_prefix_and_counter() {
        for (instance, number, text) in [
            (0x9f3c_01ab, 0, "9f3c01ab-0"),
            (0, 0x1f, "00000000-1f"),
            (u32::MAX, u64::MAX, "ffffffff-ffffffffffffffff"),
            (1, 0x10, "00000001-10"),
        ] {
            assert_eq!(DecisionId { instance, number }.to_string(), text);
        }
    }
}

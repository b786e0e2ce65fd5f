//! The key of a record in the ledger.

use std::hash::{Hash, Hasher};

use sha2::{Digest, Sha256};

/// 128 bits of SHA-256 over a crawler and a URL: short enough to store, and long enough that a site
/// cannot construct two URLs with the same key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LedgerKey(pub [u8; 16]);

impl Hash for LedgerKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u128(u128::from_ne_bytes(self.0));
    }
}

impl LedgerKey {
    /// Returns the key of a URL for a crawler. The URL is in canonical form, after `strip_params`
    /// and `replace`.
    pub fn for_url(crawler: &str, url: &str) -> Self {
        Self::from_parts("url", &[crawler, url])
    }

    /// Returns the key of a document for a crawler and a host. `version` is the body's hash or a
    /// strong entity tag.
    pub fn for_content(crawler: &str, host: &str, version: &str) -> Self {
        Self::from_parts("content", &[crawler, host, version])
    }

    /// Returns the key of a cause of removals, or of an account in which they are counted.
    pub fn for_removals(of: &str) -> Self {
        Self::from_parts("removals", &[of])
    }

    /// The length before each part keeps text from moving from one part to the next.
    fn from_parts(kind: &str, parts: &[&str]) -> Self {
        let mut hash = Sha256::new();
        hash.update(kind);
        for part in parts {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        let mut key = [0; 16];
        key.iter_mut()
            .zip(hash.finalize())
            .for_each(|(to, from)| *to = from);
        Self(key)
    }

    /// Parses 32 hexadecimal digits.
    pub fn from_hex(text: &str) -> Option<Self> {
        let well_formed = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
        let number = u128::from_str_radix(text, 16)
            .ok()
            .filter(|_| well_formed)?;
        Some(Self(number.to_be_bytes()))
    }
}

/// The keys by which other URLs of a host find a document: that of its body's hash, that of its
/// strong entity tag, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentKey {
    bytes: [u8; 2 * KEY_LENGTH],
    length: usize,
}

const KEY_LENGTH: usize = 16;

impl ContentKey {
    /// Joins the keys that exist; `None` if there are none.
    pub fn from_parts(parts: [Option<LedgerKey>; 2]) -> Option<Self> {
        let mut key = Self {
            bytes: [0; 2 * KEY_LENGTH],
            length: 0,
        };
        for part in parts.into_iter().flatten() {
            let end = key.length + KEY_LENGTH;
            key.bytes.get_mut(key.length..end)?.copy_from_slice(&part.0);
            key.length = end;
        }
        (key.length > 0).then_some(key)
    }

    /// Reads the stored form; `None` if it is invalid.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (keys, rest) = bytes.as_chunks::<KEY_LENGTH>();
        let mut parts = keys.iter().copied().map(LedgerKey);
        let key = Self::from_parts([parts.next(), parts.next()]);
        key.filter(|_| rest.is_empty() && parts.next().is_none())
    }

    /// The stored form: the keys one after another.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    /// Returns the keys.
    pub fn parts(&self) -> impl Iterator<Item = LedgerKey> {
        self.as_bytes()
            .as_chunks::<KEY_LENGTH>()
            .0
            .iter()
            .copied()
            .map(LedgerKey)
    }

    /// Returns `true` if this is one of the keys.
    pub fn contains(&self, part: LedgerKey) -> bool {
        self.parts().any(|other| other == part)
    }

    /// Returns the keys without those of another document.
    #[must_use]
    pub fn without(&self, other: Option<&Self>) -> Option<Self> {
        let mut parts = self
            .parts()
            .filter(|part| other.is_none_or(|other| !other.contains(*part)));
        Self::from_parts([parts.next(), parts.next()])
    }
}

/// Writes 32 hexadecimal digits.
impl std::fmt::Display for LedgerKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl std::fmt::Debug for LedgerKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_has_one_key_or_two() {
        let [a, b, c] = [1, 2, 3].map(|n| LedgerKey([n; 16]));
        assert_eq!(ContentKey::from_parts([None, None]), None);
        for parts in [&[a][..], &[a, b]] {
            let key =
                ContentKey::from_parts([parts.first(), parts.get(1)].map(|part| part.copied()));
            let key = key.unwrap();
            assert!(key.parts().eq(parts.iter().copied()));
            assert_eq!(ContentKey::from_bytes(key.as_bytes()), Some(key));
            assert!(key.contains(a) && !key.contains(c));
            assert_eq!(key.without(None), Some(key));
            assert_eq!(key.without(Some(&key)), None);
        }
        let both = ContentKey::from_parts([Some(a), Some(b)]).unwrap();
        let second = ContentKey::from_parts([None, Some(b)]);
        let first = ContentKey::from_parts([Some(a), Some(c)]);
        assert_eq!(both.without(first.as_ref()), second);
        for length in [0, 15, 17, 48] {
            assert_eq!(ContentKey::from_bytes(&vec![1; length]), None, "{length}");
        }
    }

    #[test]
    fn crawler_and_url_cannot_be_taken_for_each_other() {
        let keys = [
            LedgerKey::for_url("a", "bhttp://x/"),
            LedgerKey::for_url("ab", "http://x/"),
            LedgerKey::for_content("a", "b", "http://x/"),
            LedgerKey::for_content("ab", "", "http://x/"),
        ];
        for (i, key) in keys.iter().enumerate() {
            assert!(keys.iter().skip(i + 1).all(|other| other != key));
        }
    }

    /// Ledgers on disk depend on these keys. They were computed by another program.
    #[test]
    fn keys_are_stable() {
        let url = LedgerKey::for_url("news", "http://example.com/");
        let content = LedgerKey::for_content("news", "example.com", "\"v1\"");
        assert_eq!(url.to_string(), "134e1b43ecb3787d6d3959707758f130");
        assert_eq!(content.to_string(), "c5ebf97f5fdb84b6902a00a41af638e0");
    }

    #[test]
    fn keys_round_trip() {
        let key = LedgerKey::for_url("news", "http://example.com/");
        assert_eq!(LedgerKey::from_hex(&key.to_string()), Some(key));
        for wrong in [
            "",
            "1",
            "+0000000000000000000000000000000",
            "0g000000000000000000000000000000",
        ] {
            assert_eq!(LedgerKey::from_hex(wrong), None, "{wrong}");
        }
    }
}

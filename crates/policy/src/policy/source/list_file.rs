//! List files: what is in one, packed or not, and which of its lines are items.
//!
//! Whether the items are right is for `compile` to say.

use std::io::{self, Read as _};

use flate2::read::MultiGzDecoder;

/// The longest text of a list, in bytes, unpacked: room for about 10,000,000 hosts.
pub(super) const MAX_BYTES: usize = 256 << 20;

/// Whether these are the first bytes of a gzip file (RFC 1952, section 2.3.1).
pub(super) fn is_gzip(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0x1f, 0x8b])
}

/// Why a list file has no text.
#[derive(Debug)]
pub(super) enum ListFileError {
    /// The text is longer than [`MAX_BYTES`]; of a packed one no more than that was unpacked.
    TooLarge,
    /// It is no whole gzip file.
    Corrupt(io::Error),
}

/// The bytes of a list file as they are written, or unpacked.
pub(super) fn decompress(bytes: &[u8]) -> Result<Vec<u8>, ListFileError> {
    if !is_gzip(bytes) {
        return if bytes.len() > MAX_BYTES {
            Err(ListFileError::TooLarge)
        } else {
            Ok(bytes.to_vec())
        };
    }
    let mut text = Vec::new();
    let mut decoder = MultiGzDecoder::new(bytes).take(MAX_BYTES as u64 + 1);
    decoder
        .read_to_end(&mut text)
        .map_err(ListFileError::Corrupt)?;
    if text.len() > MAX_BYTES {
        Err(ListFileError::TooLarge)
    } else {
        Ok(text)
    }
}

/// An item of a list file, where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListFileItem<'t> {
    /// From 1.
    pub(crate) number: u32,
    /// The line without its comment and the space around it.
    pub(crate) text: &'t str,
    /// How many characters stand before the item.
    pub(crate) indent: usize,
}

/// The items of a list file, without empty lines and comments: a comment is a `#` that begins the line or follows
/// white space, and what stands behind it.
pub(crate) fn items(text: &str) -> impl Iterator<Item = ListFileItem<'_>> {
    text.lines().zip(1..).filter_map(|(line, number)| {
        let content = strip_comment(line);
        let item = content.trim();
        let before = content.len() - content.trim_start().len();
        let before = content
            .get(..before)
            .map_or(0, |space| space.chars().count());
        (!item.is_empty()).then_some(ListFileItem {
            number,
            text: item,
            indent: before,
        })
    })
}

fn strip_comment(line: &str) -> &str {
    let begins = |at: &usize| {
        line.get(..*at)
            .and_then(|head| head.chars().next_back())
            .is_none_or(char::is_whitespace)
    };
    // Most lines have none, which is found out quickly.
    let end = memchr::memchr_iter(b'#', line.as_bytes()).find(begins);
    end.and_then(|end| line.get(..end)).unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write as _;

    fn packed(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn what_is_packed_is_unpacked_whole_or_not_at_all() {
        let whole = packed(b"a.com\n");
        assert_eq!(decompress(&whole).unwrap(), b"a.com\n");
        assert_eq!(
            decompress(&[whole.clone(), packed(b"b.com\n")].concat()).unwrap(),
            b"a.com\nb.com\n"
        );
        assert_eq!(decompress(b"a.com\n").unwrap(), b"a.com\n");
        let cut = whole.get(..whole.len() - 4).unwrap();
        assert!(matches!(decompress(cut), Err(ListFileError::Corrupt(_))));
    }

    #[test]
    fn a_small_file_does_not_fill_the_memory() {
        let bomb = packed(&vec![b'a'; MAX_BYTES + 1]);
        assert!(bomb.len() < 2 << 20);
        assert!(matches!(decompress(&bomb), Err(ListFileError::TooLarge)));
    }

    #[test]
    fn items_are_lines_without_comments() {
        let found: Vec<_> = items("# x\r\n\r\n  a.com # y\r\nb#c\n\u{a0}d\n").collect();
        let line = |number, item, before| ListFileItem {
            number,
            text: item,
            indent: before,
        };
        assert_eq!(
            found,
            [line(3, "a.com", 2), line(4, "b#c", 0), line(5, "d", 1)]
        );
    }
}

//! List files: decompression, and splitting into items. `compile` validates the items.

use std::io::{self, Read as _};

use flate2::read::MultiGzDecoder;

/// The maximum size of a list's text, uncompressed, in bytes: enough for about 10,000,000 hosts.
pub(super) const MAX_BYTES: usize = 256 << 20;

/// Returns `true` if the bytes begin like a gzip file (RFC 1952, section 2.3.1).
pub(super) fn is_gzip(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0x1f, 0x8b])
}

/// The reason why a list file cannot be read.
#[derive(Debug)]
pub(super) enum ListFileError {
    /// The text is longer than [`MAX_BYTES`]; decompression stops there.
    TooLarge,
    /// The file is not a complete gzip file.
    Corrupt(io::Error),
}

/// Returns the text of a list file, decompressed if necessary.
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

/// An item of a list file, with its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListFileItem<'t> {
    /// The line number, from 1.
    pub(crate) number: u32,
    /// The line without comment and surrounding white space.
    pub(crate) text: &'t str,
    /// The number of characters before the item.
    pub(crate) indent: usize,
}

/// Returns the items of a list file, without a byte order mark, empty lines and comments. A comment
/// begins with a `#` at the beginning of the line or after white space.
pub(crate) fn items(text: &str) -> impl Iterator<Item = ListFileItem<'_>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
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
    // Most lines have no `#`, which `memchr` finds out quickly.
    let end = memchr::memchr_iter(b'#', line.as_bytes()).find(|at| {
        line.get(..*at)
            .and_then(|head| head.chars().next_back())
            .is_none_or(char::is_whitespace)
    });
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
    fn compressed_files_are_unpacked_completely_or_refused() {
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
        let expected =
            [(3, "a.com", 2), (4, "b#c", 0), (5, "d", 1)].map(|(number, text, indent)| {
                ListFileItem {
                    number,
                    text,
                    indent,
                }
            });
        assert_eq!(found, expected);
    }
}

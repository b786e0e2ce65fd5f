//! Lines of a robots.txt and their keys. [`file`](super::file) interprets them.

use std::ops::Range;

use super::extension::ExtensionKind;

/// The maximum length of a line; the rest is ignored (as in Google's parser: 8 times the length of
/// a URL).
const MAX_LINE: usize = 8 * 2083 - 1;
const BOM: [u8; 3] = [0xEF, 0xBB, 0xBF];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineKey {
    UserAgent,
    Allow,
    Disallow,
    Sitemap,
    CrawlDelay,
    RequestRate,
    /// An extension of the standard.
    Extension(ExtensionKind),
    Unknown,
}

/// The prefixes of keys, compared regardless of case, with common misspellings.
const KEYS: [(&[u8], LineKey); 18] = [
    (b"user-agent", LineKey::UserAgent),
    (b"useragent", LineKey::UserAgent),
    (b"user agent", LineKey::UserAgent),
    (b"allow", LineKey::Allow),
    (b"disallow", LineKey::Disallow),
    (b"dissallow", LineKey::Disallow),
    (b"dissalow", LineKey::Disallow),
    (b"disalow", LineKey::Disallow),
    (b"diasllow", LineKey::Disallow),
    (b"disallaw", LineKey::Disallow),
    (b"sitemap", LineKey::Sitemap),
    (b"site-map", LineKey::Sitemap),
    (b"crawl-delay", LineKey::CrawlDelay),
    (b"crawldelay", LineKey::CrawlDelay),
    (b"crawl delay", LineKey::CrawlDelay),
    (b"request-rate", LineKey::RequestRate),
    (b"requestrate", LineKey::RequestRate),
    (b"request rate", LineKey::RequestRate),
];

/// A line with a key.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RobotsLine {
    /// The number, from 1.
    pub(super) number: u32,
    pub(super) key: LineKey,
    /// The range of the line in the text, without comment and surrounding white space.
    pub(super) source: Range<usize>,
    /// The range of its value.
    pub(super) value: Range<usize>,
}

/// An iterator over the lines with a key. CR, LF and CRLF end a line.
pub(super) struct RobotsLines<'a> {
    text: &'a [u8],
    at: usize,
    number: u32,
}

impl<'a> RobotsLines<'a> {
    /// Creates an iterator. A byte order mark, or its beginning, is skipped.
    pub(super) fn new(text: &'a [u8]) -> Self {
        let at = text
            .iter()
            .zip(BOM)
            .take_while(|(have, bom)| *have == bom)
            .count();
        Self {
            text,
            at,
            number: 0,
        }
    }

    /// Returns the range of the next line, without its terminator.
    fn next_range(&mut self) -> Option<Range<usize>> {
        let rest = self.text.get(self.at..).filter(|rest| !rest.is_empty())?;
        let start = self.at;
        let length = memchr::memchr2(b'\r', b'\n', rest).unwrap_or(rest.len());
        let crlf = rest
            .get(length..)
            .is_some_and(|end| end.starts_with(b"\r\n"));
        self.at += length + if crlf { 2 } else { 1 };
        self.number = self.number.saturating_add(1);
        Some(start..start + length.min(MAX_LINE))
    }

    fn parse_line(&self, range: Range<usize>) -> Option<RobotsLine> {
        let whole = trim(self.text, without_comment(self.text, range));
        let line = self.text.get(whole.clone())?;
        let separator = memchr::memchr(b':', line).or_else(|| lone_space(line))?;
        let name = line.get(..separator)?.trim_ascii_end();
        let value = trim(self.text, whole.start + separator + 1..whole.end);
        (!name.is_empty()).then(|| RobotsLine {
            number: self.number,
            key: parse_key(name),
            source: whole,
            value,
        })
    }
}

impl Iterator for RobotsLines<'_> {
    type Item = RobotsLine;

    fn next(&mut self) -> Option<RobotsLine> {
        loop {
            let range = self.next_range()?;
            if let Some(line) = self.parse_line(range) {
                return Some(line);
            }
        }
    }
}

fn parse_key(name: &[u8]) -> LineKey {
    let standard = KEYS.iter().find(|(word, _)| {
        name.get(..word.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(word))
    });
    match standard {
        Some((_, key)) => *key,
        None => ExtensionKind::from_key(name).map_or(LineKey::Unknown, LineKey::Extension),
    }
}

/// Returns the position of the white space in a line of two words, where a colon is missing.
fn lone_space(line: &[u8]) -> Option<usize> {
    let at = line.iter().position(is_blank)?;
    let value = line.get(at..)?.trim_ascii_start();
    (!value.iter().any(is_blank)).then_some(at)
}

fn is_blank(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

fn without_comment(text: &[u8], range: Range<usize>) -> Range<usize> {
    let line = text.get(range.clone()).unwrap_or_default();
    let length = memchr::memchr(b'#', line).unwrap_or(line.len());
    range.start..range.start + length
}

fn trim(text: &[u8], range: Range<usize>) -> Range<usize> {
    let whole = text.get(range.clone()).unwrap_or_default();
    let start = range.start + whole.len() - whole.trim_ascii_start().len();
    start..start + whole.trim_ascii().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[(u32, LineKey, &str)]) {
        let lines = RobotsLines::new(text.as_bytes());
        let found: Vec<_> = lines
            .map(|l| (l.number, l.key, text.get(l.value).unwrap()))
            .collect();
        assert_eq!(found, expected, "{text:?}");
    }

    #[test]
    fn lines_and_keys() {
        check("", &[]);
        check(
            "allow: /a\r\n\r\nDisAllow:/b\rfoo:\n",
            &[
                (1, LineKey::Allow, "/a"),
                (3, LineKey::Disallow, "/b"),
                (4, LineKey::Unknown, ""),
            ],
        );
        check(
            "  dissallow\t/a  # why\n# x: y\n: z\n",
            &[(1, LineKey::Disallow, "/a")],
        );
        check(
            "user agent: b\nallow a b\nuserAgent c\n",
            &[(1, LineKey::UserAgent, "b"), (3, LineKey::UserAgent, "c")],
        );
        check("Crawl-delay: 2.5", &[(1, LineKey::CrawlDelay, "2.5")]);
        check("disallow:", &[(1, LineKey::Disallow, "")]);
    }
}

//! Lines of a robots.txt: where they end, and what their key is. What the lines mean together is in `parse`.

use std::ops::Range;

use super::extension::Extension;

/// The bytes of a line that are read; the rest of it is ignored (Google's 8 times the length of a URL).
const MAX_LINE: usize = 8 * 2083 - 1;
const BOM: [u8; 3] = [0xEF, 0xBB, 0xBF];

/// What a line is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    UserAgent,
    Allow,
    Disallow,
    Sitemap,
    CrawlDelay,
    RequestRate,
    /// Beyond the standard.
    Extension(Extension),
    Unknown,
}

/// The beginnings of keys, in any case, frequent misspellings among them.
const KEYS: [(&[u8], Key); 18] = [
    (b"user-agent", Key::UserAgent),
    (b"useragent", Key::UserAgent),
    (b"user agent", Key::UserAgent),
    (b"allow", Key::Allow),
    (b"disallow", Key::Disallow),
    (b"dissallow", Key::Disallow),
    (b"dissalow", Key::Disallow),
    (b"disalow", Key::Disallow),
    (b"diasllow", Key::Disallow),
    (b"disallaw", Key::Disallow),
    (b"sitemap", Key::Sitemap),
    (b"site-map", Key::Sitemap),
    (b"crawl-delay", Key::CrawlDelay),
    (b"crawldelay", Key::CrawlDelay),
    (b"crawl delay", Key::CrawlDelay),
    (b"request-rate", Key::RequestRate),
    (b"requestrate", Key::RequestRate),
    (b"request rate", Key::RequestRate),
];

/// One line with a key.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// Its number, from 1.
    pub(super) number: u32,
    pub(super) key: Key,
    /// Where the line is in the text, without white space around it and without a comment.
    pub(super) whole: Range<usize>,
    /// Where its value is.
    pub(super) value: Range<usize>,
}

/// The lines that have a key, in order. CR, LF and CRLF all end a line.
pub(super) struct Lines<'a> {
    text: &'a [u8],
    at: usize,
    number: u32,
}

impl<'a> Lines<'a> {
    /// A byte order mark, or the beginning of one, is skipped.
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

    /// The range of the next line, without its end.
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

    fn read(&self, range: Range<usize>) -> Option<Line> {
        let whole = trimmed(self.text, without_comment(self.text, range));
        let line = self.text.get(whole.clone())?;
        let separator = memchr::memchr(b':', line).or_else(|| lone_space(line))?;
        let name = line.get(..separator)?.trim_ascii_end();
        let value = trimmed(self.text, whole.start + separator + 1..whole.end);
        (!name.is_empty()).then(|| Line {
            number: self.number,
            key: key(name),
            whole,
            value,
        })
    }
}

impl Iterator for Lines<'_> {
    type Item = Line;

    fn next(&mut self) -> Option<Line> {
        loop {
            let range = self.next_range()?;
            if let Some(line) = self.read(range) {
                return Some(line);
            }
        }
    }
}

fn key(name: &[u8]) -> Key {
    let begins = |word: &[u8]| {
        name.get(..word.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(word))
    };
    let read = KEYS
        .iter()
        .find(|(word, _)| begins(word))
        .map(|(_, key)| *key);
    read.or_else(|| Extension::of_key(name).map(Key::Extension))
        .unwrap_or(Key::Unknown)
}

/// Where the white space between two words is, if the line is two words: a forgotten colon.
fn lone_space(line: &[u8]) -> Option<usize> {
    let space = |b: &u8| matches!(b, b' ' | b'\t');
    let at = line.iter().position(space)?;
    let value = line.get(at..)?.trim_ascii_start();
    (!value.iter().any(space)).then_some(at)
}

fn without_comment(text: &[u8], range: Range<usize>) -> Range<usize> {
    let line = text.get(range.clone()).unwrap_or_default();
    let length = memchr::memchr(b'#', line).unwrap_or(line.len());
    range.start..range.start + length
}

fn trimmed(text: &[u8], range: Range<usize>) -> Range<usize> {
    let whole = text.get(range.clone()).unwrap_or_default();
    let start = range.start + whole.len() - whole.trim_ascii_start().len();
    start..start + whole.trim_ascii().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[(u32, Key, &str)]) {
        let lines = Lines::new(text.as_bytes());
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
                (1, Key::Allow, "/a"),
                (3, Key::Disallow, "/b"),
                (4, Key::Unknown, ""),
            ],
        );
        check(
            "  dissallow\t/a  # why\n# x: y\n: z\n",
            &[(1, Key::Disallow, "/a")],
        );
        check(
            "user agent: b\nallow a b\nuserAgent c\n",
            &[(1, Key::UserAgent, "b"), (3, Key::UserAgent, "c")],
        );
        check("Crawl-delay: 2.5", &[(1, Key::CrawlDelay, "2.5")]);
        check("disallow:", &[(1, Key::Disallow, "")]);
    }
}

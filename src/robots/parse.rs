//! From the bytes of a robots.txt to a table that answers for every crawler. Which rule wins is in `rules`.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;

use super::agent::{is_everybody, token_length};
use super::extension::{self, Extensions, Kept};
use super::line::{Key, Line, Lines};
use super::request_rate::RequestRate;
use super::rules::{Access, Builder, Span, Table};

/// The bytes that are read of a file (RFC 9309 section 2.5 asks for 500 KiB at least).
pub const MAX_BYTES: usize = 512 * 1024;

/// A robots.txt, read: made once, asked for every crawler and URL.
///
/// It keeps the text it was read from, up to [`MAX_BYTES`], since a crawler may ask for it.
pub struct Parsed {
    pub(super) text: Bytes,
    pub(super) table: Table,
    sitemaps: Box<[Span]>,
    pub(super) extensions: Option<Box<Extensions>>,
    directives: u32,
    unknown: u32,
    cut: Cut,
}

/// Whether a file was read whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// It was.
    Whole,
    /// It was longer than [`MAX_BYTES`]: the lines that end behind that were left out.
    Short,
}

impl Parsed {
    /// Reads a file. Every input is a robots.txt, if perhaps one without rules; more than [`MAX_BYTES`] are cut at the
    /// end of a line.
    pub fn new(body: &[u8]) -> Self {
        let (text, cut) = shortened(body);
        let mut reading = Reading::new(text);
        for line in Lines::new(text) {
            reading.line(&line);
        }
        Self {
            text: Bytes::copy_from_slice(text),
            table: reading.rules.finish(text),
            sitemaps: reading.sitemaps.into(),
            extensions: reading.extensions.finish(text),
            directives: reading.directives,
            unknown: reading.unknown,
            cut,
        }
    }

    /// The text that was read.
    pub fn text(&self) -> &Bytes {
        &self.text
    }

    /// The values of the Sitemap lines, in order; bytes that are not UTF-8 are replaced.
    pub fn sitemaps(&self) -> impl Iterator<Item = String> {
        let text = |span: &Span| span.of(&self.text).unwrap_or_default();
        self.sitemaps
            .iter()
            .map(move |span| String::from_utf8_lossy(text(span)).into_owned())
    }

    /// Lines that name an agent, a rule, a delay, a sitemap or an extension: without any, the text was hardly meant as robots.txt.
    pub fn directives(&self) -> u32 {
        self.directives
    }

    /// Lines with a key that is not read, and such as there are too many of.
    pub fn unknown(&self) -> u32 {
        self.unknown
    }

    /// Whether the file was longer than what is read of one.
    pub fn cut(&self) -> Cut {
        self.cut
    }

    /// Bytes of memory, for a cache that is bounded by them.
    pub fn bytes(&self) -> usize {
        let extensions = self
            .extensions
            .as_ref()
            .map_or(0, |extensions| extensions.bytes());
        size_of::<Self>()
            + self.text.len()
            + self.table.bytes()
            + size_of_val(&*self.sitemaps)
            + extensions
    }
}

impl fmt::Debug for Parsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Parsed({} bytes, {} directives)",
            self.text.len(),
            self.directives
        )
    }
}

/// The text up to the end of the last line that fits.
fn shortened(body: &[u8]) -> (&[u8], Cut) {
    let Some(text) = body.get(..MAX_BYTES).filter(|text| text.len() < body.len()) else {
        return (body, Cut::Whole);
    };
    let end = memchr::memrchr2(b'\r', b'\n', text).map_or(0, |at| at + 1);
    (text.get(..end).unwrap_or_default(), Cut::Short)
}

/// What has been read so far.
struct Reading<'a> {
    text: &'a [u8],
    rules: Builder,
    sitemaps: Vec<Span>,
    extensions: extension::Builder,
    directives: u32,
    unknown: u32,
}

impl<'a> Reading<'a> {
    fn new(text: &'a [u8]) -> Self {
        let (rules, extensions) = (Builder::default(), extension::Builder::default());
        Self {
            text,
            rules,
            sitemaps: vec![],
            extensions,
            directives: 0,
            unknown: 0,
        }
    }

    fn line(&mut self, line: &Line) {
        let kept = match line.key {
            Key::Unknown => Kept::No,
            Key::Extension(extension) => self.extensions.add(extension, line, self.text),
            Key::UserAgent
            | Key::Allow
            | Key::Disallow
            | Key::Sitemap
            | Key::CrawlDelay
            | Key::RequestRate => Kept::Yes,
        };
        match kept {
            Kept::Yes => self.directives += 1,
            Kept::No => self.unknown += 1,
        }
        match line.key {
            Key::UserAgent => self.agent(line),
            Key::Allow => self.allow(line),
            Key::Disallow => self.rule(line, Access::Disallow, self.value(line)),
            Key::Sitemap => self.sitemaps.push(Span::new(&line.value)),
            Key::CrawlDelay => self.delay(line),
            Key::RequestRate => self.rules.rate(RequestRate::parse(self.value(line))),
            Key::Extension(_) | Key::Unknown => {}
        }
    }

    fn agent(&mut self, line: &Line) {
        let value = self.value(line);
        let length = if is_everybody(value) {
            1
        } else {
            token_length(value)
        };
        let Range { start, .. } = line.value;
        let token = Span::new(&(start..start + length));
        self.rules.agent(token);
        self.extensions.agent(token);
    }

    /// `/index.htm` at the end stands for the directory too, as Google reads it.
    fn allow(&mut self, line: &Line) {
        let value = self.value(line);
        self.rule(line, Access::Allow, value);
        let slash = memchr::memrchr(b'/', value);
        let (directory, name) = slash
            .and_then(|at| value.split_at_checked(at))
            .unwrap_or_default();
        if name.starts_with(b"/index.htm") {
            self.rule(line, Access::Allow, &[directory, b"/$"].concat());
        }
    }

    fn rule(&mut self, line: &Line, access: Access, pattern: &[u8]) {
        self.rules
            .rule(line.number, Span::new(&line.whole), access, pattern);
        self.extensions.rule();
    }

    fn delay(&mut self, line: &Line) {
        if let Some(delay) = seconds(self.value(line)) {
            self.rules.delay(delay);
        }
    }

    fn value(&self, line: &Line) -> &'a [u8] {
        self.text.get(line.value.clone()).unwrap_or_default()
    }
}

/// Seconds, with a fraction or without: digits and at most one point.
fn seconds(value: &[u8]) -> Option<Duration> {
    let text = std::str::from_utf8(value).ok()?;
    let decimal = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let number = if decimal {
        text.parse::<f64>().ok()?
    } else {
        return None;
    };
    Duration::try_from_secs_f64(number).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_plain_decimals() {
        for (text, ms) in [
            ("1", Some(1000)),
            ("0.5", Some(500)),
            (".5", Some(500)),
            ("0", Some(0)),
            ("10.", Some(10_000)),
        ] {
            assert_eq!(
                seconds(text.as_bytes()).map(|d| d.as_millis()),
                ms,
                "{text}"
            );
        }
        for text in [
            "",
            ".",
            "-1",
            "1e3",
            "inf",
            "NaN",
            "1,5",
            "5s",
            "99999999999999999999999",
        ] {
            assert_eq!(seconds(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn a_long_file_ends_with_a_line() {
        let line = b"disallow: /abc\n";
        let body = line.repeat(MAX_BYTES / line.len() + 10);
        let parsed = Parsed::new(&body);
        assert_eq!(parsed.cut(), Cut::Short);
        assert_eq!(parsed.text().len(), MAX_BYTES / line.len() * line.len());
        let endless = Parsed::new(&vec![b'a'; MAX_BYTES + 1]);
        assert_eq!((endless.text().len(), endless.cut()), (0, Cut::Short));
        assert_eq!(Parsed::new(&vec![b'a'; MAX_BYTES]).cut(), Cut::Whole);
    }
}

//! From the bytes of a robots.txt to a table that answers for every crawler. Which rule wins is in `rules`.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;

use super::extension::{self, Extensions, LineAcceptance};
use super::line::{LineKey, RobotsLine, RobotsLines};
use super::product_token::{is_wildcard_agent, token_length};
use super::request_rate::RequestRate;
use super::rules::{RobotsAccess, RuleTable, RuleTableBuilder, TextSpan};

/// The bytes that are read of a file (RFC 9309 section 2.5 asks for 500 KiB at least).
pub const MAX_FILE_BYTES: usize = 512 * 1024;

/// A robots.txt, read: made once, asked for every crawler and URL.
///
/// It keeps the text it was read from, up to [`MAX_FILE_BYTES`], since a crawler may ask for it.
pub struct RobotsFile {
    pub(super) text: Bytes,
    pub(super) table: RuleTable,
    sitemaps: Box<[TextSpan]>,
    pub(super) extensions: Option<Box<Extensions>>,
    directives: u32,
    unknown_lines: u32,
    truncation: Truncation,
}

/// Whether a file was read whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truncation {
    /// It was.
    Complete,
    /// It was longer than [`MAX_FILE_BYTES`]: the lines that end behind that were left out.
    Truncated,
}

impl RobotsFile {
    /// Reads a file. Every input is a robots.txt, if perhaps one without rules; more than [`MAX_FILE_BYTES`] are cut at the
    /// end of a line.
    pub fn parse(body: &[u8]) -> Self {
        let (text, cut) = truncate(body);
        let mut reading = RobotsParser::new(text);
        for line in RobotsLines::new(text) {
            reading.read_line(&line);
        }
        Self {
            text: Bytes::copy_from_slice(text),
            table: reading.rules.finish(text),
            sitemaps: reading.sitemaps.into(),
            extensions: reading.extensions.finish(text),
            directives: reading.directives,
            unknown_lines: reading.unknown_lines,
            truncation: cut,
        }
    }

    /// The text that was read.
    pub fn text(&self) -> &Bytes {
        &self.text
    }

    /// The values of the Sitemap lines, in order; bytes that are not UTF-8 are replaced.
    pub fn sitemaps(&self) -> impl Iterator<Item = String> {
        let text = |span: &TextSpan| span.slice(&self.text).unwrap_or_default();
        self.sitemaps
            .iter()
            .map(move |span| String::from_utf8_lossy(text(span)).into_owned())
    }

    /// Lines that name an agent, a rule, a delay, a sitemap or an extension: without any, the text was hardly meant as robots.txt.
    pub fn directives(&self) -> u32 {
        self.directives
    }

    /// Lines with a key that is not read, and such as there are too many of.
    pub fn unknown_lines(&self) -> u32 {
        self.unknown_lines
    }

    /// Whether the file was longer than what is read of one.
    pub fn truncation(&self) -> Truncation {
        self.truncation
    }

    /// Bytes of memory, for a cache that is bounded by them.
    pub fn memory_size(&self) -> usize {
        let extensions = self
            .extensions
            .as_ref()
            .map_or(0, |extensions| extensions.memory_size());
        size_of::<Self>()
            + self.text.len()
            + self.table.memory_size()
            + size_of_val(&*self.sitemaps)
            + extensions
    }
}

impl fmt::Debug for RobotsFile {
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
fn truncate(body: &[u8]) -> (&[u8], Truncation) {
    let Some(text) = body
        .get(..MAX_FILE_BYTES)
        .filter(|text| text.len() < body.len())
    else {
        return (body, Truncation::Complete);
    };
    let end = memchr::memrchr2(b'\r', b'\n', text).map_or(0, |at| at + 1);
    (text.get(..end).unwrap_or_default(), Truncation::Truncated)
}

/// What has been read so far.
struct RobotsParser<'a> {
    text: &'a [u8],
    rules: RuleTableBuilder,
    sitemaps: Vec<TextSpan>,
    extensions: extension::ExtensionsBuilder,
    directives: u32,
    unknown_lines: u32,
}

impl<'a> RobotsParser<'a> {
    fn new(text: &'a [u8]) -> Self {
        let (rules, extensions) = (
            RuleTableBuilder::default(),
            extension::ExtensionsBuilder::default(),
        );
        Self {
            text,
            rules,
            sitemaps: vec![],
            extensions,
            directives: 0,
            unknown_lines: 0,
        }
    }

    fn read_line(&mut self, line: &RobotsLine) {
        let kept = match line.key {
            LineKey::Unknown => LineAcceptance::Ignored,
            LineKey::Extension(extension) => self.extensions.add(extension, line, self.text),
            LineKey::UserAgent
            | LineKey::Allow
            | LineKey::Disallow
            | LineKey::Sitemap
            | LineKey::CrawlDelay
            | LineKey::RequestRate => LineAcceptance::Accepted,
        };
        match kept {
            LineAcceptance::Accepted => self.directives += 1,
            LineAcceptance::Ignored => self.unknown_lines += 1,
        }
        match line.key {
            LineKey::UserAgent => self.read_user_agent(line),
            LineKey::Allow => self.read_allow(line),
            LineKey::Disallow => self.read_rule(line, RobotsAccess::Disallow, self.value_of(line)),
            LineKey::Sitemap => self.sitemaps.push(TextSpan::new(&line.value)),
            LineKey::CrawlDelay => self.read_crawl_delay(line),
            LineKey::RequestRate => self.rules.add_rate(RequestRate::parse(self.value_of(line))),
            LineKey::Extension(_) | LineKey::Unknown => {}
        }
    }

    fn read_user_agent(&mut self, line: &RobotsLine) {
        let value = self.value_of(line);
        let length = if is_wildcard_agent(value) {
            1
        } else {
            token_length(value)
        };
        let Range { start, .. } = line.value;
        let token = TextSpan::new(&(start..start + length));
        self.rules.add_agent(token);
        self.extensions.add_agent(token);
    }

    /// `/index.htm` at the end stands for the directory too, as Google reads it.
    fn read_allow(&mut self, line: &RobotsLine) {
        let value = self.value_of(line);
        self.read_rule(line, RobotsAccess::Allow, value);
        let slash = memchr::memrchr(b'/', value);
        let (directory, name) = slash
            .and_then(|at| value.split_at_checked(at))
            .unwrap_or_default();
        if name.starts_with(b"/index.htm") {
            self.read_rule(line, RobotsAccess::Allow, &[directory, b"/$"].concat());
        }
    }

    fn read_rule(&mut self, line: &RobotsLine, access: RobotsAccess, pattern: &[u8]) {
        self.rules
            .add_rule(line.number, TextSpan::new(&line.source), access, pattern);
        self.extensions.end_agent_list();
    }

    fn read_crawl_delay(&mut self, line: &RobotsLine) {
        if let Some(delay) = parse_seconds(self.value_of(line)) {
            self.rules.add_delay(delay);
        }
    }

    fn value_of(&self, line: &RobotsLine) -> &'a [u8] {
        self.text.get(line.value.clone()).unwrap_or_default()
    }
}

/// Seconds, with a fraction or without: digits and at most one point.
fn parse_seconds(value: &[u8]) -> Option<Duration> {
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
                parse_seconds(text.as_bytes()).map(|d| d.as_millis()),
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
            assert_eq!(parse_seconds(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn a_long_file_ends_with_a_line() {
        let line = b"disallow: /abc\n";
        let body = line.repeat(MAX_FILE_BYTES / line.len() + 10);
        let parsed = RobotsFile::parse(&body);
        assert_eq!(parsed.truncation(), Truncation::Truncated);
        assert_eq!(
            parsed.text().len(),
            MAX_FILE_BYTES / line.len() * line.len()
        );
        let endless = RobotsFile::parse(&vec![b'a'; MAX_FILE_BYTES + 1]);
        assert_eq!(
            (endless.text().len(), endless.truncation()),
            (0, Truncation::Truncated)
        );
        assert_eq!(
            RobotsFile::parse(&vec![b'a'; MAX_FILE_BYTES]).truncation(),
            Truncation::Complete
        );
    }
}

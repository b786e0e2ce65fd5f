//! Parsing of a robots.txt into tables for all crawlers. Matching is in [`rules`](super::rules).

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;

use super::delays::DelayLines;
use super::directive_agents::DirectiveAgents;
use super::extension::{self, ExtensionKind, Extensions, LineAcceptance};
use super::line::{LineKey, RobotsLine, RobotsLines};
use super::product_token::{is_wildcard_agent, token_length};
use super::request_rate::RequestRate;
use super::rules::{AgentListsBuilder, RobotsAccess, RuleTable, RuleTableBuilder, TextSpan};

/// The maximum size of a file that is parsed (RFC 9309 section 2.5 requires at least 500 KiB).
pub const MAX_FILE_BYTES: usize = 512 * 1024;

/// A parsed robots.txt, for all crawlers and URLs.
///
/// It keeps the text, up to [`MAX_FILE_BYTES`], since crawlers may request the file.
pub struct RobotsFile {
    pub(super) text: Bytes,
    pub(super) table: RuleTable,
    sitemaps: Box<[TextSpan]>,
    pub(super) extensions: Option<Box<Extensions>>,
    pub(super) delays: DelayLines,
    pub(super) directive_agents: DirectiveAgents,
    directives: u32,
    unknown_lines: u32,
    truncation: Truncation,
}

/// The completeness of a parsed file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truncation {
    Complete,
    /// The file was longer than [`MAX_FILE_BYTES`]; lines that end after the limit are ignored.
    Truncated,
}

impl RobotsFile {
    /// Parses a file. Every input is valid, possibly without rules; more than [`MAX_FILE_BYTES`]
    /// are cut off at the end of a line. UTF-16 with a byte order mark is converted to UTF-8.
    pub fn parse(body: &[u8]) -> Self {
        let decoded = decode_utf16(body);
        let text = decoded.as_deref().map_or(body, str::as_bytes);
        let (text, truncation) = truncate(text, body.len());
        let mut parser = RobotsParser::new(text);
        for line in RobotsLines::new(text) {
            parser.read_line(&line);
        }
        let directive_agents = parser.finish_directive_agents();
        Self {
            text: Bytes::copy_from_slice(text),
            table: parser.rules.finish(text),
            sitemaps: parser.sitemaps.into(),
            directive_agents,
            extensions: parser.extensions.finish(),
            delays: parser.delays,
            directives: parser.directives,
            unknown_lines: parser.unknown_lines,
            truncation,
        }
    }

    /// The parsed text.
    pub fn text(&self) -> &Bytes {
        &self.text
    }

    /// Returns the values of the Sitemap lines, in order. Invalid UTF-8 is replaced.
    pub fn sitemaps(&self) -> impl Iterator<Item = String> {
        self.sitemaps.iter().map(|span| {
            let url = span.slice(&self.text).unwrap_or_default();
            String::from_utf8_lossy(url).into_owned()
        })
    }

    /// The number of lines with a known key. If it is zero, the text is probably not a robots.txt.
    pub fn directives(&self) -> u32 {
        self.directives
    }

    /// The number of lines with an unknown key, and of lines beyond a limit.
    pub fn unknown_lines(&self) -> u32 {
        self.unknown_lines
    }

    /// The completeness of the file.
    pub fn truncation(&self) -> Truncation {
        self.truncation
    }

    /// The memory size in bytes, for caches with a limit.
    pub fn memory_size(&self) -> usize {
        let extensions = self
            .extensions
            .as_ref()
            .map_or(0, |extensions| extensions.memory_size());
        size_of::<Self>()
            + self.text.len()
            + self.table.memory_size()
            + size_of_val(&*self.sitemaps)
            + self.delays.memory_size()
            + self.directive_agents.memory_size()
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

/// Returns the text of a file that begins with the byte order mark of UTF-16. Some editors save such
/// files; without the conversion they would have no rules.
fn decode_utf16(body: &[u8]) -> Option<String> {
    let unit: fn([u8; 2]) -> u16 = match body {
        [0xff, 0xfe, ..] => u16::from_le_bytes,
        [0xfe, 0xff, ..] => u16::from_be_bytes,
        _ => return None,
    };
    let (pairs, _) = body.get(2..)?.as_chunks::<2>();
    let units = pairs.iter().take(MAX_FILE_BYTES).map(|pair| unit(*pair));
    let characters = char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER));
    Some(characters.collect())
}

/// Returns the beginning of the text up to the last line that fits. `size` is that of the body.
fn truncate(text: &[u8], size: usize) -> (&[u8], Truncation) {
    if text.len().max(size) <= MAX_FILE_BYTES {
        return (text, Truncation::Complete);
    }
    let text = text.get(..MAX_FILE_BYTES).unwrap_or(text);
    let end = memchr::memrchr2(b'\r', b'\n', text).map_or(0, |at| at + 1);
    (text.get(..end).unwrap_or_default(), Truncation::Truncated)
}

/// The state of the parser.
struct RobotsParser<'a> {
    text: &'a [u8],
    rules: RuleTableBuilder,
    sitemaps: Vec<TextSpan>,
    extensions: extension::ExtensionsBuilder,
    delays: DelayLines,
    directive_agents: AgentListsBuilder,
    directives: u32,
    unknown_lines: u32,
}

impl<'a> RobotsParser<'a> {
    fn new(text: &'a [u8]) -> Self {
        Self {
            text,
            rules: RuleTableBuilder::default(),
            sitemaps: vec![],
            extensions: extension::ExtensionsBuilder::default(),
            delays: DelayLines::default(),
            directive_agents: AgentListsBuilder::default(),
            directives: 0,
            unknown_lines: 0,
        }
    }

    fn read_line(&mut self, line: &RobotsLine) {
        let acceptance = match line.key {
            LineKey::Unknown => LineAcceptance::Ignored,
            LineKey::Extension(extension) => self.read_extension(extension, line),
            LineKey::UserAgent
            | LineKey::Allow
            | LineKey::Disallow
            | LineKey::Sitemap
            | LineKey::CrawlDelay
            | LineKey::RequestRate => LineAcceptance::Accepted,
        };
        match acceptance {
            LineAcceptance::Accepted => self.directives += 1,
            LineAcceptance::Ignored => self.unknown_lines += 1,
        }
        match line.key {
            LineKey::UserAgent => self.read_user_agent(line),
            LineKey::Allow => self.read_allow(line),
            LineKey::Disallow => self.read_rule(line, RobotsAccess::Disallow, self.value_of(line)),
            LineKey::Sitemap => self.sitemaps.push(TextSpan::new(&line.value)),
            LineKey::CrawlDelay => self.read_crawl_delay(line),
            LineKey::RequestRate => self.read_request_rate(line),
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
        self.directive_agents.add_agent(token);
    }

    /// Adds an Allow rule. As in Google's parser, `/index.htm` at the end also allows the
    /// directory.
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
        self.directive_agents.end_list();
    }

    /// Adds a Crawl-delay line. Before the first user-agent line it is ignored.
    fn read_crawl_delay(&mut self, line: &RobotsLine) {
        let delay = parse_seconds(self.value_of(line));
        if let Some((section, delay)) = self.directive_agents.section().zip(delay) {
            self.delays.delays.push((section, delay));
        }
        // An invalid line ends the list, too: its author meant the agents above it.
        self.directive_agents.end_list();
    }

    /// Adds a Request-rate line. Before the first user-agent line it is ignored.
    fn read_request_rate(&mut self, line: &RobotsLine) {
        let rate = RequestRate::parse(self.value_of(line));
        if let Some((section, rate)) = self.directive_agents.section().zip(rate) {
            self.delays.rates.push((section, rate));
        }
        self.directive_agents.end_list();
    }

    fn read_extension(&mut self, extension: ExtensionKind, line: &RobotsLine) -> LineAcceptance {
        let section = self.directive_agents.section();
        if extension.usage_syntax().is_some() {
            self.directive_agents.end_list();
        }
        self.extensions.add(extension, line, section, self.text)
    }

    /// Returns the user agents; none if no line addresses them.
    fn finish_directive_agents(&mut self) -> DirectiveAgents {
        if self.delays.is_empty() && self.extensions.is_empty() {
            return DirectiveAgents::default();
        }
        DirectiveAgents::new(std::mem::take(&mut self.directive_agents), self.text)
    }

    fn value_of(&self, line: &RobotsLine) -> &'a [u8] {
        self.text.get(line.value.clone()).unwrap_or_default()
    }
}

/// Parses seconds: digits with at most one decimal point.
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
    fn utf_16_is_converted() {
        let text = "User-agent: b\u{e9}\u{1f600}\nDisallow: /x\n";
        let to_utf16 = |text: &str, to_bytes: fn(u16) -> [u8; 2]| -> Vec<u8> {
            let marked = "\u{feff}".encode_utf16().chain(text.encode_utf16());
            marked.flat_map(to_bytes).collect()
        };
        for to_bytes in [u16::to_le_bytes, u16::to_be_bytes] {
            let mut body = to_utf16(text, to_bytes);
            assert_eq!(RobotsFile::parse(&body).text(), text.as_bytes());
            // Half a character, and half a surrogate pair.
            body.push(0xd8);
            assert_eq!(RobotsFile::parse(&body).text(), text.as_bytes());
            let lone = [body, vec![0; 3]].concat();
            assert_eq!(RobotsFile::parse(&lone).directives(), 2);
            let long = to_utf16(&"Disallow: /abc\n".repeat(30_000), to_bytes);
            let parsed = RobotsFile::parse(&long);
            assert_eq!(parsed.truncation(), Truncation::Truncated);
            assert!(parsed.text().ends_with(b"/abc\n") && parsed.text().len() > 400_000);
            let cut = RobotsFile::parse(long.get(..=MAX_FILE_BYTES).unwrap());
            assert_eq!(cut.truncation(), Truncation::Truncated);
            assert!(cut.text().ends_with(b"/abc\n"));
        }
        assert_eq!(RobotsFile::parse(b"\xff\xfe").directives(), 0);
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

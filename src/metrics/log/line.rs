//! One line of the decision log: a JSON object with every field of operations.md, in that order, `null` where
//! nothing is known; behind them, only where there are any, `source` (the option of that name), `shadow` (the verdicts
//! in shadow that differ) and `trace` (the trace that the request belongs to).
//!
//! Text from clients and origins is escaped here: besides what JSON asks for, DEL and the C1 controls, so that a
//! line is harmless on a terminal.

use std::fmt::Display;
use std::io::Write;
use std::net::IpAddr;
use std::time::Duration;

use crate::clock::Rfc3339;
use crate::trace_context::TraceId;

use super::QueryVisibility;

/// What a line says. Durations are in microseconds here and in milliseconds on the line.
#[derive(Debug)]
pub(crate) struct LogLine<'r> {
    pub(crate) ts: Rfc3339,
    pub(crate) decision: &'r str,
    pub(crate) crawler: Option<&'r str>,
    pub(crate) stage: &'r str,
    pub(crate) method: &'r str,
    pub(crate) url: Option<&'r str>,
    pub(crate) host: Option<&'r str>,
    pub(crate) verdict: &'r str,
    pub(crate) reason: &'r str,
    pub(crate) rule: Option<&'r str>,
    pub(crate) policy: Option<&'r str>,
    pub(crate) revision: Option<&'r str>,
    pub(crate) mode: &'r str,
    pub(crate) held: Option<u32>,
    pub(crate) origin_status: Option<u16>,
    pub(crate) sent_status: Option<u16>,
    pub(crate) content_type: Option<&'r str>,
    pub(crate) bytes: u64,
    pub(crate) dns: Option<u32>,
    pub(crate) connect: Option<u32>,
    pub(crate) tls: Option<u32>,
    pub(crate) ttfb: Option<u32>,
    pub(crate) address: Option<IpAddr>,
    pub(crate) error: Option<&'r str>,
    pub(crate) source: Option<&'r str>,
    pub(crate) shadows: &'r [ShadowDifference<'r>],
    pub(crate) trace: Option<TraceId>,
    /// From here on for the `squid` format only.
    pub(crate) outcome: LogOutcome,
    pub(crate) subject: LogSubject,
    /// Whether the crawler is one of those that are configured.
    pub(crate) is_configured: bool,
    pub(crate) client: Option<IpAddr>,
    /// From the request's head to the end of the answer.
    pub(crate) duration: Duration,
}

/// What became of a request, as coarsely as Squid tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogOutcome {
    /// It was let through.
    Allowed,
    /// The proxy refused it.
    Refused,
    /// The origin, or the way to it, failed; or the proxy did.
    Failed,
    /// The origin did not answer in time.
    TimedOut,
    /// What came was no request.
    Unparsed,
}

/// What a request is about, beside its URL and host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogSubject {
    Unknown,
    Url { scheme: &'static str },
    Tunnel { port: u16 },
}

/// A shadow that decides otherwise.
#[derive(Debug)]
pub(crate) struct ShadowDifference<'r> {
    pub(crate) rule: Option<&'r str>,
    pub(crate) policy: Option<&'r str>,
    pub(crate) verdict: &'r str,
    pub(crate) stage: &'r str,
    pub(crate) reason: &'r str,
}

/// What stands for a query that is not shown.
pub(crate) const REDACTED: &str = "?redacted";

/// How much of a method or content type is shown: both are ASCII, and as long as a client or origin likes.
const MAX_SHOWN: usize = 128;
/// Most lines are shorter.
const TYPICAL_LINE_BYTES: usize = 1 << 10;

/// A key as it is written, with the comma before it and the colon behind. Keys are names of ours: nothing to escape.
macro_rules! key {
    ($name:literal) => {
        concat!(",\"", $name, "\":").as_bytes()
    };
}

impl LogLine<'_> {
    /// Appends the line and its line feed.
    pub(crate) fn render(&self, query: QueryVisibility, out: &mut Vec<u8>) {
        out.reserve(TYPICAL_LINE_BYTES);
        let mut object = JsonObjectWriter::begin(out);
        object.write_time(key!("ts"), self.ts);
        object.write_name(key!("decision"), Some(self.decision));
        object.write_name(key!("crawler"), self.crawler);
        object.write_name(key!("stage"), Some(self.stage));
        object.write_text(key!("method"), Some(truncate(self.method)));
        object.write_url(self.url, query);
        object.write_text(key!("host"), self.host);
        object.write_name(key!("verdict"), Some(self.verdict));
        object.write_name(key!("reason"), Some(self.reason));
        object.write_name(key!("rule"), self.rule);
        object.write_name(key!("policy"), self.policy);
        object.write_name(key!("revision"), self.revision);
        object.write_name(key!("mode"), Some(self.mode));
        object.write_millis(key!("held_ms"), self.held);
        object.write_number(key!("origin_status"), self.origin_status.map(u64::from));
        object.write_number(key!("sent_status"), self.sent_status.map(u64::from));
        object.write_text(key!("content_type"), self.content_type.map(truncate));
        object.write_number(key!("bytes"), Some(self.bytes));
        object.write_millis(key!("dns_ms"), self.dns);
        object.write_millis(key!("connect_ms"), self.connect);
        object.write_millis(key!("tls_ms"), self.tls);
        object.write_millis(key!("ttfb_ms"), self.ttfb);
        object.write_address(key!("address"), self.address);
        object.write_name(key!("error"), self.error);
        if self.source.is_some() {
            object.write_text(key!("source"), self.source);
        }
        object.write_shadows(self.shadows);
        if self.trace.is_some() {
            object.write_display(key!("trace"), self.trace);
        }
        object.end();
        out.push(b'\n');
    }
}

pub(super) fn truncate(text: &str) -> &str {
    text.get(..MAX_SHOWN).unwrap_or(text)
}

/// A JSON object that is being written. Writing to a `Vec` cannot fail.
struct JsonObjectWriter<'o> {
    out: &'o mut Vec<u8>,
    begin: usize,
}

impl<'o> JsonObjectWriter<'o> {
    fn begin(out: &'o mut Vec<u8>) -> Self {
        Self {
            begin: out.len(),
            out,
        }
    }

    /// Each key has put a comma before itself; the first one's is the brace.
    fn end(self) {
        if let Some(first) = self.out.get_mut(self.begin) {
            *first = b'{';
        }
        self.out.push(b'}');
    }

    /// Inline, since a key's length is known then.
    #[inline(always)]
    fn write_key(&mut self, key: &[u8]) {
        self.out.extend_from_slice(key);
    }

    fn write_null(&mut self) {
        self.out.extend_from_slice(b"null");
    }

    fn write_shadows(&mut self, shadows: &[ShadowDifference<'_>]) {
        for (place, shadow) in shadows.iter().enumerate() {
            if place == 0 {
                self.write_key(key!("shadow"));
            }
            self.out.push(if place == 0 { b'[' } else { b',' });
            let mut object = JsonObjectWriter::begin(self.out);
            object.write_text(key!("rule"), shadow.rule);
            object.write_text(key!("policy"), shadow.policy);
            object.write_text(key!("verdict"), Some(shadow.verdict));
            object.write_text(key!("stage"), Some(shadow.stage));
            object.write_text(key!("reason"), Some(shadow.reason));
            object.end();
        }
        if !shadows.is_empty() {
            self.out.push(b']');
        }
    }

    #[inline(always)]
    fn write_number(&mut self, key: &[u8], value: Option<u64>) {
        self.write_key(key);
        match value {
            Some(value) => write_decimal(value, self.out),
            None => self.write_null(),
        }
    }

    fn write_time(&mut self, key: &[u8], time: Rfc3339) {
        self.write_key(key);
        self.out.push(b'"');
        self.out.extend_from_slice(&time.to_ascii());
        self.out.push(b'"');
    }

    /// A word of ours, or a name whose characters were checked where it was read: nothing to escape.
    #[inline(always)]
    fn write_name(&mut self, key: &[u8], value: Option<&str>) {
        self.write_key(key);
        match value {
            Some(value) => {
                self.out.push(b'"');
                self.out.extend_from_slice(value.as_bytes());
                self.out.push(b'"');
            }
            None => self.write_null(),
        }
    }

    fn write_address(&mut self, key: &[u8], address: Option<IpAddr>) {
        let Some(IpAddr::V4(address)) = address else {
            return self.write_display(key, address);
        };
        self.write_key(key);
        for (place, octet) in address.octets().into_iter().enumerate() {
            self.out.push(if place == 0 { b'"' } else { b'.' });
            write_decimal(octet.into(), self.out);
        }
        self.out.push(b'"');
    }

    /// Anything else that has nothing to escape.
    fn write_display(&mut self, key: &[u8], value: Option<impl Display>) {
        self.write_key(key);
        match value {
            Some(value) => drop(write!(self.out, "\"{value}\"")),
            None => self.write_null(),
        }
    }

    #[inline(always)]
    fn write_millis(&mut self, key: &[u8], micros: Option<u32>) {
        self.write_key(key);
        match micros {
            Some(micros) => write_thousandths(micros, self.out),
            None => self.write_null(),
        }
    }

    #[inline(always)]
    fn write_text(&mut self, key: &[u8], value: Option<&str>) {
        self.write_key(key);
        match value {
            Some(value) => self.write_quoted(&[value]),
            None => self.write_null(),
        }
    }

    fn write_url(&mut self, url: Option<&str>, query: QueryVisibility) {
        self.write_key(key!("url"));
        match (url.map(|url| (url, url.split_once('?'))), query) {
            (None, _) => self.write_null(),
            (Some((_, Some((before, _)))), QueryVisibility::Redacted) => {
                self.write_quoted(&[before, REDACTED])
            }
            (Some((url, _)), QueryVisibility::Shown | QueryVisibility::Redacted) => {
                self.write_quoted(&[url])
            }
        }
    }

    fn write_quoted(&mut self, parts: &[&str]) {
        self.out.push(b'"');
        for part in parts {
            write_escaped(part, self.out);
        }
        self.out.push(b'"');
    }
}

/// A number in decimal digits.
fn write_decimal(number: u64, out: &mut Vec<u8>) {
    let mut digits = [b'0'; 20];
    let (mut rest, mut used) = (number, 0);
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
        used += 1;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.get(digits.len() - used..).unwrap_or_default());
}

/// A thousandth of a number, with three places: `2.400`.
fn write_thousandths(number: u32, out: &mut Vec<u8>) {
    write_decimal((number / 1_000).into(), out);
    let [hundreds, tens, ones] = [100, 10, 1].map(|place| b'0' + (number / place % 10) as u8);
    out.extend_from_slice(&[b'.', hundreds, tens, ones]);
}

/// Nearly all text is printable ASCII and is copied whole. Bytes are looked at many at a time.
fn write_escaped(text: &str, out: &mut Vec<u8>) {
    let harmless = |byte: &u8| matches!(byte, 0x20..=0x7e) & (*byte != b'"') & (*byte != b'\\');
    let all = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(true, |so_far, byte| so_far & harmless(byte))
    };
    if text.as_bytes().chunks(64).all(all) {
        return out.extend_from_slice(text.as_bytes());
    }
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend_from_slice(&[b'\\', character as u8]),
            '\0'..='\x1f' | '\x7f'..='\u{9f}' => {
                drop(write!(out, "\\u{:04x}", u32::from(character)))
            }
            _ => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(text: &str) -> String {
        let mut out = Vec::new();
        JsonObjectWriter::begin(&mut out).write_quoted(&[text]);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_character_survives_and_none_is_a_control() {
        let all: String = ('\0'..='\u{2ff}')
            .chain(['\u{2028}', '\u{feff}', '\u{10ffff}'])
            .collect();
        let text = escaped(&all);
        assert!(!text.chars().any(char::is_control));
        assert_eq!(serde_json::from_str::<String>(&text).unwrap(), all);
        assert_eq!(escaped("a\"b\\c\n\x1b[2J"), r#""a\"b\\c\u000a\u001b[2J""#);
    }

    #[test]
    fn numbers_are_decimal() {
        for number in [0, 7, 10, 999, 1_000, 65_535, u64::from(u32::MAX), u64::MAX] {
            let mut out = Vec::new();
            write_decimal(number, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), number.to_string());
        }
        for (number, text) in [
            (0, "0.000"),
            (9, "0.009"),
            (2_400, "2.400"),
            (u32::MAX, "4294967.295"),
        ] {
            let mut out = Vec::new();
            write_thousandths(number, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }

    #[test]
    fn queries_are_redacted_only_when_asked() {
        for (url, query, shown) in [
            (
                "http://h/a?k=v?w",
                QueryVisibility::Shown,
                r#""url":"http://h/a?k=v?w""#,
            ),
            (
                "http://h/a?k=v?w",
                QueryVisibility::Redacted,
                r#""url":"http://h/a?redacted""#,
            ),
            (
                "http://h/a?",
                QueryVisibility::Redacted,
                r#""url":"http://h/a?redacted""#,
            ),
            (
                "http://h/a",
                QueryVisibility::Redacted,
                r#""url":"http://h/a""#,
            ),
        ] {
            let mut out = Vec::new();
            let mut object = JsonObjectWriter::begin(&mut out);
            object.write_url(Some(url), query);
            object.end();
            assert_eq!(String::from_utf8(out).unwrap(), format!("{{{shown}}}"));
        }
    }
}

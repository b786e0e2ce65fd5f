//! A line of the decision log: a JSON object with the fields of docs/decision-log.md in that order, `null` if a value is
//! unknown. The fields from `source` on come last, and only if they have a value.
//!
//! Text from clients and origins is escaped here. In addition to what JSON requires, DEL and the C1 controls are escaped,
//! so that a line is harmless on a terminal.

use std::fmt::Display;
use std::io::Write;
use std::net::IpAddr;
use std::time::Duration;

use crate::clock::Rfc3339;
use crate::trace_context::TraceId;

use super::query::QueryVisibility;

/// Declares the fields of a line, in order: `Variant "key" field: Type => writer;`. The writer is a method of
/// [`JsonObjectWriter`].
macro_rules! log_fields {
    ($($variant:ident $key:literal $field:ident: $type:ty => $write:ident;)+) => {
        /// The values of a line. Durations are in microseconds here, and in milliseconds on the line.
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct LogLine<'r> {
            $(pub(crate) $field: $type,)+
            /// The URL, if only the latest lines in memory show it.
            pub(crate) hidden_url: Option<&'r str>,
            /// The following fields are for the `squid` format only.
            pub(crate) outcome: LogOutcome,
            pub(crate) subject: LogSubject,
            /// `true` if the crawler is configured.
            pub(crate) is_configured: bool,
            pub(crate) client: Option<IpAddr>,
            /// From the request's head to the end of the response.
            pub(crate) duration: Duration,
        }

        impl LogLine<'_> {
            /// Appends the line and its line feed.
            pub(crate) fn render(&self, query: QueryVisibility, out: &mut Vec<u8>) {
                out.reserve(TYPICAL_LINE_BYTES);
                let mut object = JsonObjectWriter::begin(query, out);
                $(object.$write(key!($key), self.$field);)+
                object.end();
                out.push(b'\n');
            }
        }

        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum LogField {
            $($variant,)+
        }

        impl LogField {
            /// Every field with its key, in the order of a line.
            pub(crate) const ALL: [(Self, &'static str); [$($key),+].len()] =
                [$((Self::$variant, $key)),+];
        }
    };
}

/// A key with the preceding comma and the colon. Keys need no escapes.
macro_rules! key {
    ($name:literal) => {
        concat!(",\"", $name, "\":").as_bytes()
    };
}

log_fields! {
    Ts "ts" ts: Rfc3339 => write_time;
    Decision "decision" decision: &'r str => write_name;
    Crawler "crawler" crawler: Option<&'r str> => write_name;
    Stage "stage" stage: &'r str => write_name;
    Method "method" method: &'r str => write_short_text;
    Url "url" url: Option<&'r str> => write_url;
    Host "host" host: Option<&'r str> => write_text;
    Verdict "verdict" verdict: &'r str => write_name;
    Reason "reason" reason: &'r str => write_name;
    Rule "rule" rule: Option<&'r str> => write_name;
    Policy "policy" policy: Option<&'r str> => write_name;
    Revision "revision" revision: Option<&'r str> => write_name;
    Mode "mode" mode: &'r str => write_name;
    HeldMs "held_ms" held: Option<u32> => write_millis;
    OriginStatus "origin_status" origin_status: Option<u16> => write_status;
    SentStatus "sent_status" sent_status: Option<u16> => write_status;
    ContentType "content_type" content_type: Option<&'r str> => write_short_text;
    Bytes "bytes" bytes: u64 => write_number;
    DnsMs "dns_ms" dns: Option<u32> => write_millis;
    ConnectMs "connect_ms" connect: Option<u32> => write_millis;
    TlsMs "tls_ms" tls: Option<u32> => write_millis;
    TtfbMs "ttfb_ms" ttfb: Option<u32> => write_millis;
    Address "address" address: Option<IpAddr> => write_address;
    Error "error" error: Option<&'r str> => write_name;
    OriginHttp "origin_http" origin_http: Option<&'r str> => write_text_if_some;
    Parent "parent" parent: Option<&'r str> => write_text_if_some;
    Source "source" source: Option<&'r str> => write_text_if_some;
    Code "code" code: Option<u16> => write_status_if_some;
    RobotsAgent "robots_agent" robots_agent: Option<&'r str> => write_text_if_some;
    Cause "cause" cause: Option<&'r str> => write_text_if_some;
    Loss "loss" loss: Option<&'r str> => write_text_if_some;
    Repeat "repeat" repeat: bool => write_true;
    RepeatOf "repeat_of" repeat_of: Option<&'r str> => write_text_if_some;
    Entry "entry" entry: Option<&'r str> => write_text_if_some;
    Shadow "shadow" shadows: &'r [ShadowDifference<'r>] => write_shadows_if_any;
    Trace "trace" trace: Option<TraceId> => write_display_if_some;
    LeftOut "left_out" left_out: u64 => write_number_unless_zero;
    Dropped "dropped" dropped: u64 => write_number_unless_zero;
}

impl LogLine<'_> {
    /// Returns the line as the latest lines in memory show it.
    pub(super) fn with_hidden_url(&self) -> Self {
        match self.hidden_url {
            Some(url) => Self {
                url: Some(url),
                repeat: false,
                repeat_of: None,
                ..*self
            },
            None => *self,
        }
    }
}

/// The numbers of lines of this process that are missing in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MissingLines {
    /// Lines of allowed requests that are not in the sample (`logs.allows`).
    pub(crate) left_out: u64,
    /// Lines that were lost because the log was too slow or could not be written.
    pub(crate) dropped: u64,
}

/// The outcome of a request in the coarse terms of Squid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogOutcome {
    /// It was allowed.
    Allowed,
    /// The proxy refused it.
    Refused,
    /// The origin, the connection to it, or the proxy failed.
    Failed,
    /// The origin did not respond in time.
    TimedOut,
    /// The client sent no valid request.
    Unparsed,
}

/// The target of a request, besides its URL and host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogSubject {
    Unknown,
    Url { scheme: &'static str },
    Tunnel { port: u16 },
}

/// The decision of a shadow that differs from the active one.
#[derive(Debug)]
pub(crate) struct ShadowDifference<'r> {
    pub(crate) rule: Option<&'r str>,
    pub(crate) policy: Option<&'r str>,
    pub(crate) verdict: &'r str,
    pub(crate) stage: &'r str,
    pub(crate) reason: &'r str,
}

/// The maximum length of a method or content type: both are ASCII, and clients and origins choose their length.
const MAX_SHOWN: usize = 128;
/// The initial capacity for a line; most are shorter.
const TYPICAL_LINE_BYTES: usize = 1 << 10;

pub(super) fn truncate(text: &str) -> &str {
    text.get(..MAX_SHOWN).unwrap_or(text)
}

/// A JSON object that is being written. Writing to a `Vec` cannot fail.
struct JsonObjectWriter<'o> {
    query: QueryVisibility,
    out: &'o mut Vec<u8>,
    begin: usize,
}

impl<'o> JsonObjectWriter<'o> {
    fn begin(query: QueryVisibility, out: &'o mut Vec<u8>) -> Self {
        Self {
            query,
            begin: out.len(),
            out,
        }
    }

    /// Each key starts with a comma; that of the first one is replaced by the brace.
    fn end(self) {
        if let Some(first) = self.out.get_mut(self.begin) {
            *first = b'{';
        }
        self.out.push(b'}');
    }

    /// Inline, so that the length of the key is a constant.
    #[inline(always)]
    fn write_key(&mut self, key: &[u8]) {
        self.out.extend_from_slice(key);
    }

    fn write_null(&mut self) {
        self.out.extend_from_slice(b"null");
    }

    #[inline(always)]
    fn write_number(&mut self, key: &[u8], value: u64) {
        self.write_key(key);
        write_decimal(value, self.out);
    }

    #[inline(always)]
    fn write_status(&mut self, key: &[u8], status: Option<u16>) {
        match status {
            Some(status) => self.write_number(key, status.into()),
            None => {
                self.write_key(key);
                self.write_null();
            }
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

    fn write_status_if_some(&mut self, key: &[u8], status: Option<u16>) {
        if status.is_some() {
            self.write_status(key, status);
        }
    }

    fn write_time(&mut self, key: &[u8], time: Rfc3339) {
        self.write_key(key);
        self.out.push(b'"');
        self.out.extend_from_slice(&time.to_ascii());
        self.out.push(b'"');
    }

    /// Writes a constant, or a name whose characters were checked when it was parsed: nothing to escape.
    #[inline(always)]
    fn write_name<'n>(&mut self, key: &[u8], value: impl Into<Option<&'n str>>) {
        self.write_key(key);
        match value.into() {
            Some(value) => {
                self.out.push(b'"');
                self.out.extend_from_slice(value.as_bytes());
                self.out.push(b'"');
            }
            None => self.write_null(),
        }
    }

    #[inline(always)]
    fn write_text<'t>(&mut self, key: &[u8], value: impl Into<Option<&'t str>>) {
        self.write_key(key);
        match value.into() {
            Some(value) => self.write_quoted(value),
            None => self.write_null(),
        }
    }

    #[inline(always)]
    fn write_text_if_some(&mut self, key: &[u8], value: Option<&str>) {
        if value.is_some() {
            self.write_text(key, value);
        }
    }

    #[inline(always)]
    fn write_short_text<'t>(&mut self, key: &[u8], value: impl Into<Option<&'t str>>) {
        self.write_text(key, value.into().map(truncate));
    }

    fn write_url(&mut self, key: &[u8], url: Option<&str>) {
        self.write_key(key);
        match url {
            None => self.write_null(),
            Some(url) => {
                self.out.push(b'"');
                let out = &mut *self.out;
                self.query
                    .for_each_part(url, |part| write_escaped(part, out));
                self.out.push(b'"');
            }
        }
    }

    fn write_true(&mut self, key: &[u8], value: bool) {
        if value {
            self.write_key(key);
            self.out.extend_from_slice(b"true");
        }
    }

    fn write_number_unless_zero(&mut self, key: &[u8], value: u64) {
        if value > 0 {
            self.write_number(key, value);
        }
    }

    fn write_address(&mut self, key: &[u8], address: Option<IpAddr>) {
        let Some(IpAddr::V4(address)) = address else {
            return self.write_display(key, address);
        };
        self.write_key(key);
        for (index, octet) in address.octets().into_iter().enumerate() {
            self.out.push(if index == 0 { b'"' } else { b'.' });
            write_decimal(octet.into(), self.out);
        }
        self.out.push(b'"');
    }

    /// Writes another value with nothing to escape.
    fn write_display(&mut self, key: &[u8], value: Option<impl Display>) {
        self.write_key(key);
        match value {
            Some(value) => drop(write!(self.out, "\"{value}\"")),
            None => self.write_null(),
        }
    }

    fn write_display_if_some(&mut self, key: &[u8], value: Option<impl Display>) {
        if value.is_some() {
            self.write_display(key, value);
        }
    }

    fn write_shadows_if_any(&mut self, key: &[u8], shadows: &[ShadowDifference<'_>]) {
        for (index, shadow) in shadows.iter().enumerate() {
            if index == 0 {
                self.write_key(key);
            }
            self.out.push(if index == 0 { b'[' } else { b',' });
            let mut object = JsonObjectWriter::begin(self.query, self.out);
            object.write_text(key!("rule"), shadow.rule);
            object.write_text(key!("policy"), shadow.policy);
            object.write_text(key!("verdict"), shadow.verdict);
            object.write_text(key!("stage"), shadow.stage);
            object.write_text(key!("reason"), shadow.reason);
            object.end();
        }
        if !shadows.is_empty() {
            self.out.push(b']');
        }
    }

    fn write_quoted(&mut self, text: &str) {
        self.out.push(b'"');
        write_escaped(text, self.out);
        self.out.push(b'"');
    }
}

/// Writes a number in decimal digits.
fn write_decimal(number: u64, out: &mut Vec<u8>) {
    let mut digits = [b'0'; 20];
    let mut rest = number;
    let mut used = 0;
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

/// Writes a thousandth of a number, with three decimals: `2.400`.
fn write_thousandths(number: u32, out: &mut Vec<u8>) {
    write_decimal((number / 1_000).into(), out);
    let [hundreds, tens, ones] = [100, 10, 1].map(|divisor| b'0' + (number / divisor % 10) as u8);
    out.extend_from_slice(&[b'.', hundreds, tens, ones]);
}

/// Nearly all text is printable ASCII and is copied as a whole. The check processes many bytes at a time.
fn write_escaped(text: &str, out: &mut Vec<u8>) {
    if text.as_bytes().chunks(64).all(needs_no_escapes) {
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

#[inline(always)]
fn needs_no_escapes(bytes: &[u8]) -> bool {
    bytes.iter().fold(true, |so_far, byte| {
        so_far & matches!(byte, 0x20..=0x7e) & (*byte != b'"') & (*byte != b'\\')
    })
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn escaped(text: &str) -> String {
        let mut out = Vec::new();
        JsonObjectWriter::begin(QueryVisibility::Shown, &mut out).write_quoted(text);
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

    /// Passes the lines of `tests/ledger_files/decisions.jsonl` and `decisions.squid` to `write`.
    #[allow(
        clippy::too_many_lines,
        reason = "a value for each field of several lines"
    )]
    fn sample_lines(write: &mut dyn FnMut(&LogLine<'_>, QueryVisibility)) {
        let time = |millis| Rfc3339(SystemTime::UNIX_EPOCH + Duration::from_millis(millis));
        let shadows = [
            ShadowDifference {
                rule: Some("no-cgi"),
                policy: None,
                verdict: "reject",
                stage: "request",
                reason: "rule",
            },
            ShadowDifference {
                rule: None,
                policy: Some("next"),
                verdict: "allow",
                stage: "response",
                reason: "default",
            },
        ];
        let full = LogLine {
            ts: time(1_767_225_600_125),
            decision: "9f3c01ab-1f",
            crawler: Some("news-bot"),
            stage: "response",
            method: "GET",
            url: Some("http://www.example.com/a?b=\"c\\d\"&e=\u{9b}[2J\u{7f}\u{1b}\u{e4}\u{1f600}"),
            host: Some("www.example.com"),
            verdict: "shadow_reject",
            reason: "rule",
            rule: Some("next/no-pdf"),
            policy: Some("acme"),
            revision: Some("3f9c2a1b"),
            mode: "shadow",
            held: Some(1_250_000),
            origin_status: Some(200),
            sent_status: Some(200),
            content_type: Some("text/html"),
            bytes: u64::MAX,
            dns: Some(0),
            connect: Some(7),
            tls: Some(1_234),
            ttfb: Some(u32::MAX),
            address: Some([192, 0, 2, 7].into()),
            error: Some("client_left"),
            origin_http: None,
            parent: None,
            entry: None,
            source: Some("sitemap \u{85}"),
            code: None,
            robots_agent: None,
            cause: None,
            loss: None,
            repeat: false,
            repeat_of: None,
            shadows: &shadows,
            trace: TraceId::new([0xab; 16]),
            left_out: 0,
            dropped: 0,
            hidden_url: None,
            outcome: LogOutcome::Allowed,
            subject: LogSubject::Url { scheme: "http" },
            is_configured: true,
            client: Some([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1].into()),
            duration: Duration::from_millis(1_345),
        };
        write(&full, QueryVisibility::Shown);
        write(&full, QueryVisibility::Redacted);
        let long = "x".repeat(200);
        let sparse = LogLine {
            ts: time(0),
            crawler: None,
            method: &long,
            url: None,
            host: None,
            verdict: "reject",
            reason: "bad_request",
            rule: None,
            policy: None,
            revision: None,
            mode: "enforce",
            held: None,
            origin_status: None,
            sent_status: None,
            content_type: None,
            bytes: 0,
            dns: None,
            connect: None,
            tls: None,
            ttfb: None,
            address: None,
            error: None,
            source: None,
            shadows: &[],
            trace: None,
            outcome: LogOutcome::Unparsed,
            subject: LogSubject::Unknown,
            is_configured: false,
            client: None,
            duration: Duration::ZERO,
            ..full
        };
        write(&sparse, QueryVisibility::Shown);
        let tunnel = LogLine {
            method: "CONNECT",
            host: Some("h.test"),
            crawler: Some("anonymous"),
            address: Some([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1].into()),
            subject: LogSubject::Tunnel { port: 443 },
            outcome: LogOutcome::TimedOut,
            sent_status: Some(504),
            source: Some(""),
            shadows: &shadows[..1],
            ..sparse
        };
        write(&tunnel, QueryVisibility::Shown);
        let refused = LogLine {
            method: "GET",
            subject: LogSubject::Url { scheme: "https" },
            outcome: LogOutcome::Refused,
            origin_status: Some(404),
            sent_status: Some(451),
            content_type: Some(&long),
            code: Some(760),
            ..tunnel
        };
        write(&refused, QueryVisibility::Shown);
    }

    #[test]
    fn lines_are_those_of_version_0_1_0() {
        let mut json = Vec::new();
        let mut squid = Vec::new();
        sample_lines(&mut |line, query| {
            line.render(query, &mut json);
            super::super::squid::render(line, query, &mut squid);
        });
        let expected = include_str!("../../../tests/ledger_files/decisions.jsonl");
        assert_eq!(String::from_utf8(json).unwrap(), expected);
        let expected = include_str!("../../../tests/ledger_files/decisions.squid");
        assert_eq!(String::from_utf8(squid).unwrap(), expected);
    }
}

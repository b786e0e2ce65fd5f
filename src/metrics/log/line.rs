//! One line of the decision log: a JSON object with every field of operations.md, in that order, `null` where
//! nothing is known; behind them, only where there are any, `source` (the option of that name) and `shadow` (the verdicts
//! in shadow that differ).
//!
//! Text from clients and origins is escaped here: besides what JSON asks for, DEL and the C1 controls, so that a
//! line is harmless on a terminal.

use std::fmt::Display;
use std::io::Write;
use std::net::IpAddr;

use crate::clock::Rfc3339;

use super::QueryText;

/// What a line says. Durations are in microseconds here and in milliseconds on the line.
#[derive(Debug)]
pub(in crate::metrics) struct Line<'r> {
    pub(in crate::metrics) ts: Rfc3339,
    pub(in crate::metrics) decision: &'r str,
    pub(in crate::metrics) crawler: Option<&'r str>,
    pub(in crate::metrics) stage: &'r str,
    pub(in crate::metrics) method: &'r str,
    pub(in crate::metrics) url: Option<&'r str>,
    pub(in crate::metrics) host: Option<&'r str>,
    pub(in crate::metrics) verdict: &'r str,
    pub(in crate::metrics) reason: &'r str,
    pub(in crate::metrics) rule: Option<&'r str>,
    pub(in crate::metrics) policy: Option<&'r str>,
    pub(in crate::metrics) revision: Option<&'r str>,
    pub(in crate::metrics) mode: &'r str,
    pub(in crate::metrics) held: Option<u32>,
    pub(in crate::metrics) origin_status: Option<u16>,
    pub(in crate::metrics) sent_status: Option<u16>,
    pub(in crate::metrics) content_type: Option<&'r str>,
    pub(in crate::metrics) bytes: u64,
    pub(in crate::metrics) dns: Option<u32>,
    pub(in crate::metrics) connect: Option<u32>,
    pub(in crate::metrics) tls: Option<u32>,
    pub(in crate::metrics) ttfb: Option<u32>,
    pub(in crate::metrics) address: Option<IpAddr>,
    pub(in crate::metrics) error: Option<&'r str>,
    pub(in crate::metrics) source: Option<&'r str>,
    pub(in crate::metrics) shadows: &'r [ShadowLine<'r>],
}

/// A shadow that decides otherwise.
#[derive(Debug)]
pub(in crate::metrics) struct ShadowLine<'r> {
    pub(in crate::metrics) rule: Option<&'r str>,
    pub(in crate::metrics) policy: Option<&'r str>,
    pub(in crate::metrics) verdict: &'r str,
    pub(in crate::metrics) stage: &'r str,
    pub(in crate::metrics) reason: &'r str,
}

/// What stands for a query that is not shown.
pub(super) const REDACTED: &str = "?redacted";

/// How much of a method or content type is shown: both are ASCII, and as long as a client or origin likes.
const SHOWN: usize = 128;

impl Line<'_> {
    /// Appends the line and its line feed.
    pub(in crate::metrics) fn render(&self, query: QueryText, out: &mut Vec<u8>) {
        let mut object = Object { out, comma: b"{" };
        object.plain("ts", Some(&self.ts));
        object.text("decision", Some(self.decision));
        object.text("crawler", self.crawler);
        object.text("stage", Some(self.stage));
        object.text("method", Some(shortened(self.method)));
        object.url(self.url, query);
        object.text("host", self.host);
        object.text("verdict", Some(self.verdict));
        object.text("reason", Some(self.reason));
        object.text("rule", self.rule);
        object.text("policy", self.policy);
        object.text("revision", self.revision);
        object.text("mode", Some(self.mode));
        object.millis("held_ms", self.held);
        object.number("origin_status", self.origin_status);
        object.number("sent_status", self.sent_status);
        object.text("content_type", self.content_type.map(shortened));
        object.number("bytes", Some(self.bytes));
        object.millis("dns_ms", self.dns);
        object.millis("connect_ms", self.connect);
        object.millis("tls_ms", self.tls);
        object.millis("ttfb_ms", self.ttfb);
        object.plain("address", self.address.as_ref());
        object.text("error", self.error);
        if self.source.is_some() {
            object.text("source", self.source);
        }
        object.shadows(self.shadows);
        out.extend_from_slice(b"}\n");
    }
}

fn shortened(text: &str) -> &str {
    text.get(..SHOWN).unwrap_or(text)
}

/// A JSON object that is being written. Writing to a `Vec` cannot fail.
struct Object<'o> {
    out: &'o mut Vec<u8>,
    comma: &'static [u8],
}

impl Object<'_> {
    /// Keys are names of ours: nothing to escape.
    fn key(&mut self, key: &str) {
        self.out.extend_from_slice(self.comma);
        self.comma = b",";
        self.out.push(b'"');
        self.out.extend_from_slice(key.as_bytes());
        self.out.extend_from_slice(b"\":");
    }

    fn null(&mut self) {
        self.out.extend_from_slice(b"null");
    }

    fn shadows(&mut self, shadows: &[ShadowLine<'_>]) {
        for (place, shadow) in shadows.iter().enumerate() {
            if place == 0 {
                self.key("shadow");
            }
            self.out.push(if place == 0 { b'[' } else { b',' });
            let mut object = Object { out: self.out, comma: b"{" };
            object.text("rule", shadow.rule);
            object.text("policy", shadow.policy);
            object.text("verdict", Some(shadow.verdict));
            object.text("stage", Some(shadow.stage));
            object.text("reason", Some(shadow.reason));
            self.out.push(b'}');
        }
        if !shadows.is_empty() {
            self.out.push(b']');
        }
    }

    fn number(&mut self, key: &str, value: Option<impl Display>) {
        self.key(key);
        match value {
            Some(value) => drop(write!(self.out, "{value}")),
            None => self.null(),
        }
    }

    /// Text that has nothing to escape: times and addresses.
    fn plain(&mut self, key: &str, value: Option<impl Display>) {
        self.key(key);
        match value {
            Some(value) => drop(write!(self.out, "\"{value}\"")),
            None => self.null(),
        }
    }

    fn millis(&mut self, key: &str, micros: Option<u32>) {
        self.key(key);
        match micros {
            Some(micros) => drop(write!(self.out, "{}.{:03}", micros / 1_000, micros % 1_000)),
            None => self.null(),
        }
    }

    fn text(&mut self, key: &str, value: Option<&str>) {
        self.key(key);
        match value {
            Some(value) => self.quoted(&[value]),
            None => self.null(),
        }
    }

    fn url(&mut self, url: Option<&str>, query: QueryText) {
        self.key("url");
        match (url.map(|url| (url, url.split_once('?'))), query) {
            (None, _) => self.null(),
            (Some((_, Some((before, _)))), QueryText::Redacted) => self.quoted(&[before, REDACTED]),
            (Some((url, _)), QueryText::Shown | QueryText::Redacted) => self.quoted(&[url]),
        }
    }

    fn quoted(&mut self, parts: &[&str]) {
        self.out.push(b'"');
        for part in parts {
            escape(part, self.out);
        }
        self.out.push(b'"');
    }
}

/// Nearly all text is printable ASCII and is copied whole.
fn escape(text: &str, out: &mut Vec<u8>) {
    let harmless = |byte: &u8| matches!(byte, 0x20..=0x7e) && !matches!(byte, b'"' | b'\\');
    if text.as_bytes().iter().all(harmless) {
        return out.extend_from_slice(text.as_bytes());
    }
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend_from_slice(&[b'\\', character as u8]),
            '\0'..='\x1f' | '\x7f'..='\u{9f}' => drop(write!(out, "\\u{:04x}", u32::from(character))),
            _ => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(text: &str) -> String {
        let mut out = Vec::new();
        Object { out: &mut out, comma: b"" }.quoted(&[text]);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_character_survives_and_none_is_a_control() {
        let all: String = ('\0'..='\u{2ff}').chain(['\u{2028}', '\u{feff}', '\u{10ffff}']).collect();
        let text = escaped(&all);
        assert!(!text.chars().any(char::is_control));
        assert_eq!(serde_json::from_str::<String>(&text).unwrap(), all);
        assert_eq!(escaped("a\"b\\c\n\x1b[2J"), r#""a\"b\\c\u000a\u001b[2J""#);
    }

    #[test]
    fn queries_are_redacted_only_when_asked() {
        for (url, query, shown) in [
            ("http://h/a?k=v?w", QueryText::Shown, r#""url":"http://h/a?k=v?w""#),
            ("http://h/a?k=v?w", QueryText::Redacted, r#""url":"http://h/a?redacted""#),
            ("http://h/a?", QueryText::Redacted, r#""url":"http://h/a?redacted""#),
            ("http://h/a", QueryText::Redacted, r#""url":"http://h/a""#),
        ] {
            let mut out = Vec::new();
            Object { out: &mut out, comma: b"" }.url(Some(url), query);
            assert_eq!(String::from_utf8(out).unwrap(), shown);
        }
    }
}

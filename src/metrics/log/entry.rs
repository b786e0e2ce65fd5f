//! A parsed line of the decision log. Only the requested fields are kept.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

pub(crate) use super::line::LogField;

impl LogField {
    /// Returns the field with this key.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|(_, known)| *known == name)
            .map(|(field, _)| field)
    }
}

/// A set of requested fields.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogFieldSet(u64);

impl LogFieldSet {
    /// Returns a set of these fields and those that every decision has.
    pub(crate) fn from_fields(fields: impl IntoIterator<Item = LogField>) -> Self {
        let fields = fields.into_iter().chain([LogField::Ts, LogField::Verdict]);
        Self(fields.fold(0, |all, field| all | 1 << field as u64))
    }

    fn contains(self, field: LogField) -> bool {
        self.0 & 1 << field as u64 != 0
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum LogValue<'l> {
    /// Unknown.
    #[default]
    Null,
    Text(Cow<'l, str>),
    Number(f64),
    /// The names of rules or policies in `shadow`.
    List(Vec<String>),
}

impl LogValue<'_> {
    /// Returns the value as text; `None` for null and lists.
    pub(crate) fn text(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Text(text) => Some(Cow::Borrowed(text)),
            Self::Number(number) => Some(Cow::Owned(number.to_string())),
            Self::Null | Self::List(_) => None,
        }
    }

    /// Returns the value if it is a number.
    pub(crate) fn number(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Text(_) | Self::Null | Self::List(_) => None,
        }
    }
}

/// A decision, as far as its fields were requested.
#[derive(Debug)]
pub(crate) struct LogEntry<'l>([LogValue<'l>; LogField::ALL.len()]);

impl Default for LogEntry<'_> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| LogValue::Null))
    }
}

impl<'l> LogEntry<'l> {
    /// Parses a line.
    ///
    /// # Errors
    /// If it is not a JSON object, or one without a time and a verdict.
    pub(crate) fn parse(line: &'l [u8], wanted: LogFieldSet) -> serde_json::Result<Self> {
        let mut reader = serde_json::Deserializer::from_slice(line);
        let entry = wanted.deserialize(&mut reader)?;
        reader.end()?;
        for (field, name) in [(LogField::Ts, "ts"), (LogField::Verdict, "verdict")] {
            if !matches!(entry.value(field), LogValue::Text(_)) {
                return Err(serde_json::Error::custom(format!(
                    "not a decision: `{name}` is missing"
                )));
            }
        }
        Ok(entry)
    }

    /// Returns the value of a requested field.
    pub(crate) fn value(&self, field: LogField) -> &LogValue<'l> {
        self.0.get(field as usize).unwrap_or(&LogValue::Null)
    }

    /// Returns the text of a requested field; empty for null.
    pub(crate) fn text(&self, field: LogField) -> Cow<'_, str> {
        self.value(field).text().unwrap_or_default()
    }
}

impl<'l> DeserializeSeed<'l> for LogFieldSet {
    type Value = LogEntry<'l>;

    fn deserialize<D: Deserializer<'l>>(self, reader: D) -> Result<LogEntry<'l>, D::Error> {
        reader.deserialize_map(self)
    }
}

impl<'l> Visitor<'l> for LogFieldSet {
    type Value = LogEntry<'l>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a decision, which is a JSON object")
    }

    fn visit_map<A: MapAccess<'l>>(self, mut map: A) -> Result<LogEntry<'l>, A::Error> {
        let mut entry = LogEntry::default();
        let mut next = 0;
        while let Some(key) = map.next_key_seed(LogFieldSeed { expected: next })? {
            let Some(field) = key.filter(|field| self.contains(*field)) else {
                map.next_value::<IgnoredAny>()?;
                next = key.map_or(next, |field| field as usize + 1);
                continue;
            };
            if let Some(slot) = entry.0.get_mut(field as usize) {
                *slot = map.next_value()?;
            }
            next = field as usize + 1;
        }
        Ok(entry)
    }
}

/// Parses a key. All lines have the same order, so the field after the last one is tried first.
struct LogFieldSeed {
    expected: usize,
}

impl<'l> DeserializeSeed<'l> for LogFieldSeed {
    type Value = Option<LogField>;

    fn deserialize<D: Deserializer<'l>>(self, reader: D) -> Result<Option<LogField>, D::Error> {
        reader.deserialize_str(self)
    }
}

impl Visitor<'_> for LogFieldSeed {
    type Value = Option<LogField>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Option<LogField>, E> {
        match LogField::ALL.get(self.expected) {
            Some((field, name)) if *name == key => Ok(Some(*field)),
            Some(_) | None => Ok(LogField::from_name(key)),
        }
    }
}

impl<'l> Deserialize<'l> for LogValue<'l> {
    fn deserialize<D: Deserializer<'l>>(reader: D) -> Result<Self, D::Error> {
        reader.deserialize_any(LogValueVisitor)
    }
}

struct LogValueVisitor;

impl<'l> Visitor<'l> for LogValueVisitor {
    type Value = LogValue<'l>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text, a number, or null")
    }

    fn visit_unit<E: Error>(self) -> Result<LogValue<'l>, E> {
        Ok(LogValue::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<LogValue<'l>, E> {
        Ok(LogValue::Text(if value { "true" } else { "false" }.into()))
    }

    fn visit_borrowed_str<E: Error>(self, text: &'l str) -> Result<LogValue<'l>, E> {
        Ok(LogValue::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<LogValue<'l>, E> {
        Ok(LogValue::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<LogValue<'l>, E> {
        Ok(LogValue::Number(number as f64))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<LogValue<'l>, E> {
        Ok(LogValue::Number(number as f64))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<LogValue<'l>, E> {
        Ok(LogValue::Number(number))
    }

    fn visit_seq<A: SeqAccess<'l>>(self, mut items: A) -> Result<LogValue<'l>, A::Error> {
        let mut names = Vec::new();
        while let Some(ShadowElement { rule, policy }) = items.next_element()? {
            names.extend(rule.or(policy));
        }
        Ok(LogValue::List(names))
    }
}

/// An element of `shadow`, as far as it is used.
#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct ShadowElement {
    rule: Option<String>,
    policy: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> LogFieldSet {
        LogFieldSet::from_fields(LogField::ALL.map(|(field, _)| field))
    }

    #[test]
    fn fields_are_found_by_their_keys() {
        for (place, (field, name)) in LogField::ALL.into_iter().enumerate() {
            assert_eq!(field as usize, place);
            assert_eq!(LogField::from_name(name), Some(field));
        }
        assert_eq!(LogField::from_name("tsx"), None);
    }

    #[test]
    fn keys_may_have_any_order_and_unknown_keys_are_skipped() {
        let line = r#"{"zzz":{"ts":[1]},"verdict":"allow","bytes":5,"url":"a\u001b","held_ms":1.500,"rule":null,
            "shadow":[{"rule":null,"policy":"p","verdict":"x"},{"rule":"r"}],"ts":"t"}"#;
        let entry = LogEntry::parse(line.as_bytes(), all()).unwrap();
        assert_eq!(
            (entry.text(LogField::Ts), entry.text(LogField::Url)),
            ("t".into(), "a\u{1b}".into())
        );
        assert_eq!(
            (
                entry.value(LogField::Bytes).number(),
                entry.text(LogField::HeldMs)
            ),
            (Some(5.0), "1.5".into())
        );
        assert_eq!(entry.value(LogField::Rule), &LogValue::Null);
        assert_eq!(
            entry.value(LogField::Shadow),
            &LogValue::List(vec!["p".into(), "r".into()])
        );
        let few =
            LogEntry::parse(line.as_bytes(), LogFieldSet::from_fields([LogField::Bytes])).unwrap();
        assert_eq!(
            (few.value(LogField::Url), few.text(LogField::Verdict)),
            (&LogValue::Null, "allow".into())
        );
    }

    #[test]
    fn other_lines_are_errors() {
        for line in [
            &b""[..],
            b"{}",
            b"[]",
            b"null",
            b"{\"ts\":\"t\"}",
            b"{\"ts\":1,\"verdict\":\"allow\"}",
            b"{\"ts\":\"t\",\"verdict\":\"allow\"} x",
            b"{\"ts\":\"t\",\"verdict\":\"al\xff\"}",
            b"{\"ts\":\"t\",\"verdict\":\"allow\"",
            b"{\"ts\":\"t\",\"verdict\":\"a\x1bb\"}",
            b"1767225600.000      0 - TCP_MISS/200 0 GET http://a/ - HIER_NONE/- -",
        ] {
            assert!(
                LogEntry::parse(line, all()).is_err(),
                "{}",
                String::from_utf8_lossy(line)
            );
        }
        let deep = "[".repeat(100_000);
        assert!(LogEntry::parse(format!("{{\"zzz\":{deep}").as_bytes(), all()).is_err());
    }
}

//! JSON with places: every member and every item is a part of the report.

use std::sync::Arc;

use crate::input::{ImportError, Place, SourceText};
use crate::report::{PartId, Report};

const MAX_DEPTH: usize = 64;

/// A value with the part that it belongs to.
#[derive(Clone, Debug)]
pub(super) struct JsonNode {
    pub part: PartId,
    pub line: u32,
    pub value: JsonValue,
}

#[derive(Clone, Debug)]
pub(super) enum JsonValue {
    Object(Vec<(String, JsonNode)>),
    Array(Vec<JsonNode>),
    Text(String),
    /// A number, `true`, `false` or `null`, as it is written.
    Literal(String),
}

impl JsonNode {
    pub(super) fn get(&self, key: &str) -> Option<&JsonNode> {
        let JsonValue::Object(members) = &self.value else {
            return None;
        };
        let found = members.iter().rev().find(|(known, _)| known == key);
        found.map(|(_, node)| node)
    }

    pub(super) fn items(&self) -> &[JsonNode] {
        match &self.value {
            JsonValue::Array(items) => items,
            JsonValue::Object(_) | JsonValue::Text(_) | JsonValue::Literal(_) => &[],
        }
    }

    pub(super) fn members(&self) -> &[(String, JsonNode)] {
        match &self.value {
            JsonValue::Object(members) => members,
            JsonValue::Array(_) | JsonValue::Text(_) | JsonValue::Literal(_) => &[],
        }
    }

    /// Returns a text or a literal as text.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.value {
            JsonValue::Text(text) | JsonValue::Literal(text) => Some(text),
            JsonValue::Object(_) | JsonValue::Array(_) => None,
        }
    }

    pub(super) fn number(&self) -> Option<i64> {
        self.text()?.parse().ok()
    }

    /// Returns the parts of the value and of all values in it.
    pub(super) fn all_parts(&self) -> Vec<PartId> {
        let mut parts = vec![self.part];
        for (_, node) in self.members() {
            parts.extend(node.all_parts());
        }
        for node in self.items() {
            parts.extend(node.all_parts());
        }
        parts
    }
}

/// Reads a document.
pub(super) fn read(source: &SourceText, report: &mut Report) -> Result<JsonNode, ImportError> {
    let mut reader = JsonReader {
        chars: source.text.chars().collect(),
        at: 0,
        line: 1,
        line_start: 0,
        file: Arc::clone(&source.file),
        report,
    };
    let node = reader.value(None, 0)?;
    reader.skip_space();
    match reader.peek() {
        None => Ok(node),
        Some(_) => Err(reader.error("something after the end of the document")),
    }
}

struct JsonReader<'r> {
    chars: Vec<char>,
    at: usize,
    line: u32,
    line_start: usize,
    file: Arc<str>,
    report: &'r mut Report,
}

impl JsonReader<'_> {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += 1;
        if c == '\n' {
            self.line += 1;
            self.line_start = self.at;
        }
        Some(c)
    }

    fn skip_space(&mut self) {
        while self.peek().is_some_and(char::is_whitespace) {
            self.next();
        }
    }

    fn place(&self) -> Place {
        Place {
            file: Arc::clone(&self.file),
            line: self.line,
            column: u32::try_from(self.at - self.line_start + 1).unwrap_or(u32::MAX),
        }
    }

    fn error(&self, message: &str) -> ImportError {
        ImportError::invalid(&self.place(), format!("not valid JSON: {message}"))
    }

    fn expect(&mut self, c: char) -> Result<(), ImportError> {
        self.skip_space();
        if self.peek() != Some(c) {
            return Err(self.error(&format!("`{c}` expected")));
        }
        self.next();
        Ok(())
    }

    /// Reads a value. `key` is its place and its name, if it is a member.
    fn value(
        &mut self,
        key: Option<(Place, String)>,
        depth: usize,
    ) -> Result<JsonNode, ImportError> {
        if depth > MAX_DEPTH {
            return Err(self.error("nested too deeply"));
        }
        self.skip_space();
        let line = key.as_ref().map_or(self.line, |(place, _)| place.line);
        let name = key
            .as_ref()
            .map_or(String::new(), |(_, name)| format!("{name}: "));
        let place = key.map_or_else(|| self.place(), |(place, _)| place);
        match self.peek() {
            Some('{') => {
                let part = self.report.add(place, format!("{name}{{"));
                let value = JsonValue::Object(self.object(depth)?);
                Ok(JsonNode { part, line, value })
            }
            Some('[') => {
                let part = self.report.add(place, format!("{name}["));
                let value = JsonValue::Array(self.array(depth)?);
                Ok(JsonNode { part, line, value })
            }
            Some('"') => {
                let text = self.string()?;
                let part = self.report.add(place, format!("{name}{text}"));
                let value = JsonValue::Text(text);
                Ok(JsonNode { part, line, value })
            }
            Some(_) => {
                let mut text = String::new();
                while let Some(c) = self
                    .peek()
                    .filter(|c| c.is_ascii_alphanumeric() || "+-.".contains(*c))
                {
                    text.push(c);
                    self.next();
                }
                if text.is_empty() {
                    return Err(self.error("a value expected"));
                }
                let part = self.report.add(place, format!("{name}{text}"));
                let value = JsonValue::Literal(text);
                Ok(JsonNode { part, line, value })
            }
            None => Err(self.error("a value expected")),
        }
    }

    fn object(&mut self, depth: usize) -> Result<Vec<(String, JsonNode)>, ImportError> {
        self.expect('{')?;
        let mut members = Vec::new();
        self.skip_space();
        if self.peek() == Some('}') {
            self.next();
            return Ok(members);
        }
        loop {
            self.skip_space();
            let place = self.place();
            let key = self.string()?;
            self.expect(':')?;
            let value = self.value(Some((place, key.clone())), depth + 1)?;
            members.push((key, value));
            self.skip_space();
            match self.next() {
                Some(',') => {}
                Some('}') => return Ok(members),
                Some(_) | None => return Err(self.error("`,` or `}` expected")),
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Vec<JsonNode>, ImportError> {
        self.expect('[')?;
        let mut items = Vec::new();
        self.skip_space();
        if self.peek() == Some(']') {
            self.next();
            return Ok(items);
        }
        loop {
            items.push(self.value(None, depth + 1)?);
            self.skip_space();
            match self.next() {
                Some(',') => {}
                Some(']') => return Ok(items),
                Some(_) | None => return Err(self.error("`,` or `]` expected")),
            }
        }
    }

    fn string(&mut self) -> Result<String, ImportError> {
        let start = self.at;
        if self.peek() != Some('"') {
            return Err(self.error("a text expected"));
        }
        self.next();
        loop {
            match self.next() {
                Some('"') => break,
                Some('\\') => {
                    self.next();
                }
                Some(_) => {}
                None => return Err(self.error("a text that is not closed")),
            }
        }
        let raw: String = self
            .chars
            .get(start..self.at)
            .unwrap_or_default()
            .iter()
            .collect();
        serde_json::from_str(&raw).map_err(|error| self.error(&error.to_string()))
    }
}

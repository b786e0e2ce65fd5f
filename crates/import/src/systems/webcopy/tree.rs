//! The tree of tags that a project is, and its dump.

use std::fmt::Write as _;
use std::sync::Arc;

use crate::input::{ImportError, Place};

/// The maximum number of tags; elements of lists of numbers are not counted.
pub(super) const MAX_TAGS: u32 = 250_000;
/// The maximum depth of tags.
pub(super) const MAX_DEPTH: usize = 200;

/// A tag. Items of a list have no name.
#[derive(Clone, Debug)]
pub(super) struct NbtTag {
    pub name: String,
    /// Its number in the order of the document, from 0.
    pub index: usize,
    pub line: u32,
    pub column: u32,
    /// The number of parts of the source that it is made of, without the tags in it: elements and attributes
    /// of XML, numbers of a list.
    pub units: u32,
    pub value: NbtValue,
}

/// The value of a tag.
#[derive(Clone, Debug)]
pub(super) enum NbtValue {
    Integer {
        kind: NbtKind,
        value: i64,
    },
    Real {
        kind: NbtKind,
        value: f64,
    },
    Text(String),
    /// An array or a list of numbers, which are not kept.
    Numbers {
        kind: NbtKind,
        count: u32,
    },
    List {
        kind: NbtKind,
        items: Vec<NbtTag>,
    },
    Compound(Vec<NbtTag>),
}

/// The types of tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NbtKind {
    End,
    Byte,
    Short,
    Int,
    Long,
    Float,
    Double,
    ByteArray,
    Text,
    List,
    Compound,
    IntArray,
}

/// The types, by their numbers, with their names in XML.
const KINDS: [(NbtKind, &str); 12] = [
    (NbtKind::End, "End"),
    (NbtKind::Byte, "Byte"),
    (NbtKind::Short, "Short"),
    (NbtKind::Int, "Int"),
    (NbtKind::Long, "Long"),
    (NbtKind::Float, "Float"),
    (NbtKind::Double, "Double"),
    (NbtKind::ByteArray, "ByteArray"),
    (NbtKind::Text, "String"),
    (NbtKind::List, "List"),
    (NbtKind::Compound, "Compound"),
    (NbtKind::IntArray, "IntArray"),
];

impl NbtKind {
    pub(super) fn from_number(number: u8) -> Option<Self> {
        KINDS.get(usize::from(number)).map(|(kind, _)| *kind)
    }

    pub(super) fn from_name(name: &str) -> Option<Self> {
        let found = KINDS.iter().find(|(_, it)| it.eq_ignore_ascii_case(name));
        found.map(|(kind, _)| *kind)
    }

    fn name(self) -> &'static str {
        let found = KINDS.iter().find(|(kind, _)| *kind == self);
        found.map_or("", |(_, name)| name)
    }
}

/// Creates tags in the order of the document, within the limits.
#[derive(Default)]
pub(super) struct TagNumbers(u32);

impl TagNumbers {
    /// Returns the number of the next tag.
    pub(super) fn next(&mut self) -> Result<usize, String> {
        if self.0 >= MAX_TAGS {
            return Err(format!(
                "more than {MAX_TAGS} tags; save the project without its link map"
            ));
        }
        let index = self.0;
        self.0 += 1;
        usize::try_from(index).map_err(|error| error.to_string())
    }
}

impl NbtTag {
    /// Returns the tags in a compound or a list.
    pub(super) fn children(&self) -> &[Self] {
        match &self.value {
            NbtValue::List { items, .. } | NbtValue::Compound(items) => items,
            NbtValue::Integer { .. }
            | NbtValue::Real { .. }
            | NbtValue::Text(_)
            | NbtValue::Numbers { .. } => &[],
        }
    }

    /// Returns a tag of a compound.
    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        match &self.value {
            NbtValue::Compound(tags) => tags.iter().find(|tag| tag.name == name),
            NbtValue::Integer { .. }
            | NbtValue::Real { .. }
            | NbtValue::Text(_)
            | NbtValue::Numbers { .. }
            | NbtValue::List { .. } => None,
        }
    }

    pub(super) fn text(&self) -> Option<&str> {
        match &self.value {
            NbtValue::Text(text) => Some(text),
            NbtValue::Integer { .. }
            | NbtValue::Real { .. }
            | NbtValue::Numbers { .. }
            | NbtValue::List { .. }
            | NbtValue::Compound(_) => None,
        }
    }

    pub(super) fn integer(&self) -> Option<i64> {
        match &self.value {
            NbtValue::Integer { value, .. } => Some(*value),
            NbtValue::Real { .. }
            | NbtValue::Text(_)
            | NbtValue::Numbers { .. }
            | NbtValue::List { .. }
            | NbtValue::Compound(_) => None,
        }
    }

    /// Returns the items of a list of compounds; none for other tags.
    pub(super) fn compounds(&self) -> &[Self] {
        match &self.value {
            NbtValue::List {
                kind: NbtKind::Compound,
                items,
            } => items,
            NbtValue::List { .. }
            | NbtValue::Integer { .. }
            | NbtValue::Real { .. }
            | NbtValue::Text(_)
            | NbtValue::Numbers { .. }
            | NbtValue::Compound(_) => &[],
        }
    }

    /// Returns the tag and all tags in it, in the order of the document.
    pub(super) fn all(&self) -> Vec<&Self> {
        let mut found = vec![self];
        for child in self.children() {
            found.extend(child.all());
        }
        found
    }

    /// Returns the number of parts that the tag and all tags in it are made of.
    pub(super) fn all_units(&self) -> u32 {
        let children = self.children().iter().map(Self::all_units);
        children.fold(self.units, u32::saturating_add)
    }

    /// Writes the tag as one line, without the tags in it. `hides` replaces its value.
    pub(super) fn describe(&self, hides: bool) -> String {
        let name = match self.name.as_str() {
            "" => String::new(),
            name => format!(" {}", shorten(name)),
        };
        match &self.value {
            NbtValue::Integer { kind, .. } | NbtValue::Real { kind, .. } if hides => {
                format!("{}{name} = ***", kind.name())
            }
            NbtValue::Text(_) if hides => format!("String{name} = ***"),
            NbtValue::Integer { kind, value } => format!("{}{name} = {value}", kind.name()),
            NbtValue::Real { kind, value } => format!("{}{name} = {value}", kind.name()),
            NbtValue::Text(text) => {
                format!("String{name} = \"{}\"", shorten(&without_user(text)))
            }
            NbtValue::Numbers { kind, count } => format!("{}[{count}]{name}", kind.name()),
            NbtValue::List { kind, items } => {
                format!("List of {}{name} ({})", kind.name(), items.len())
            }
            NbtValue::Compound(_) => format!("Compound{name}"),
        }
    }

    /// Writes the tag and all tags in it, a line each. `depth` is that of the tag; no line is added after `max` lines.
    pub(super) fn dump(&self, max: usize) -> String {
        let mut lines = Vec::new();
        self.dump_into(0, false, max, &mut lines);
        if lines.len() >= max {
            lines.push("…".to_owned());
        }
        let mut text = String::new();
        for line in lines {
            let _ = writeln!(text, "{line}");
        }
        text
    }

    fn dump_into(&self, depth: usize, hides: bool, max: usize, lines: &mut Vec<String>) {
        if lines.len() >= max {
            return;
        }
        let hides = hides || is_secret(&self.name);
        lines.push(format!("{}{}", "  ".repeat(depth), self.describe(hides)));
        for child in self.children() {
            child.dump_into(depth + 1, hides, max, lines);
        }
    }
}

/// Returns `true` for tags whose values are not shown.
pub(super) fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let words = [
        "password",
        "credential",
        "token",
        "secret",
        "cookie",
        "authorization",
        "authentication",
    ];
    // The values of the forms that WebCopy sends before a crawl.
    name == "forms" || words.iter().any(|word| name.contains(word))
}

/// Replaces the user name and the password of a URL.
fn without_user(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return text.to_owned();
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest.get(..end).and_then(|authority| authority.rfind('@')) {
        Some(at) => format!("{scheme}://***{}", rest.get(at..).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// The maximum number of characters of a value.
const MAX_SHOWN: usize = 200;

/// Writes a text in one line, without control characters.
fn shorten(text: &str) -> String {
    let mut shown = String::new();
    for (count, c) in text.chars().enumerate() {
        if count == MAX_SHOWN {
            shown.push('…');
            break;
        }
        match c {
            c if c.is_control() => shown.extend(c.escape_debug()),
            // Line ends for those who read the text by lines.
            '\u{2028}' | '\u{2029}' => shown.extend(c.escape_unicode()),
            c => shown.push(c),
        }
    }
    shown
}

/// A project as a tree, with the file that it is from.
pub(super) struct NbtDocument {
    pub file: Arc<str>,
    pub root: NbtTag,
}

impl NbtDocument {
    pub(super) fn place(&self, tag: &NbtTag) -> Place {
        Place {
            file: Arc::clone(&self.file),
            line: tag.line,
            column: tag.column,
        }
    }

    pub(super) fn invalid(&self, tag: &NbtTag, message: impl Into<String>) -> ImportError {
        ImportError::invalid(&self.place(tag), message)
    }
}

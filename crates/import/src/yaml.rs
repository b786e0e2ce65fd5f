//! Writing of YAML as a person would write it: rules that fit on a line are on one, comments stay where
//! they belong.

use serde_json::{Map, Value as Json};

/// The maximum length of a line in flow style.
const WIDTH: usize = 120;

/// A value to be written.
#[derive(Clone, Debug, PartialEq)]
pub enum YamlNode {
    /// Text, quoted if YAML would read it as something else.
    Text(String),
    /// A number, `true`, `null`: written as it is.
    Literal(String),
    List(Vec<Item>),
    Map(Vec<YamlEntry>),
}

/// A key with its value, and comments above it.
#[derive(Clone, Debug, PartialEq)]
pub struct YamlEntry {
    pub notes: Vec<String>,
    pub key: String,
    pub value: YamlNode,
}

/// An item of a list, and comments above it. Without a node it is a comment only.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    pub notes: Vec<String>,
    pub node: Option<YamlNode>,
}

impl YamlEntry {
    pub fn new(key: impl Into<String>, value: YamlNode) -> Self {
        Self {
            notes: Vec::new(),
            key: key.into(),
            value,
        }
    }
}

impl YamlNode {
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// Creates a list of texts, or the text itself if there is one only.
    pub fn texts(texts: &[String]) -> Self {
        match texts {
            [text] => Self::text(text),
            _ => Self::list(texts.iter().map(Self::text)),
        }
    }

    pub fn list(nodes: impl IntoIterator<Item = Self>) -> Self {
        let items = nodes.into_iter().map(|node| Item {
            notes: Vec::new(),
            node: Some(node),
        });
        Self::List(items.collect())
    }

    pub fn from_json(json: &Json) -> Self {
        match json {
            Json::String(text) => Self::text(text),
            Json::Array(items) => Self::list(items.iter().map(Self::from_json)),
            Json::Object(map) => Self::from_map(map),
            Json::Null | Json::Bool(_) | Json::Number(_) => Self::Literal(json.to_string()),
        }
    }

    pub fn from_map(map: &Map<String, Json>) -> Self {
        let entries = map.iter();
        let entries = entries.map(|(key, value)| YamlEntry::new(key, Self::from_json(value)));
        Self::Map(entries.collect())
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Text(_) | Self::Literal(_) => false,
            Self::List(items) => items.is_empty(),
            Self::Map(entries) => entries.is_empty(),
        }
    }

    /// Writes the value in one line, unless a comment belongs inside.
    fn to_flow(&self) -> Option<String> {
        match self {
            Self::Text(text) => Some(scalar(text, true)),
            Self::Literal(text) => Some(text.clone()),
            Self::List(items) => {
                let items: Option<Vec<String>> = items.iter().map(Item::to_flow).collect();
                let items = items?;
                Some(if items.is_empty() {
                    "[]".to_owned()
                } else {
                    format!("[ {} ]", items.join(", "))
                })
            }
            Self::Map(entries) => {
                let entries: Option<Vec<String>> = entries.iter().map(YamlEntry::to_flow).collect();
                let entries = entries?;
                Some(if entries.is_empty() {
                    "{}".to_owned()
                } else {
                    format!("{{ {} }}", entries.join(", "))
                })
            }
        }
    }

    /// Returns `true` if the value is written over several lines however short it is: lists of rules.
    fn is_tall(&self) -> bool {
        let Self::Map(entries) = self else {
            return false;
        };
        let is_rules = |entry: &YamlEntry| entry.key == "rules" && !entry.value.is_empty();
        entries.iter().any(is_rules)
    }

    /// Writes the value after `KEY:` or `-`, from column `used` of a line that is indented by `indent`.
    fn write(&self, out: &mut String, indent: usize, used: usize) {
        let flow = self.to_flow().filter(|_| !self.is_tall());
        if let Some(flow) = flow.filter(|flow| used + flow.chars().count() <= WIDTH) {
            out.push_str(&flow);
            out.push('\n');
            return;
        }
        match self {
            Self::Text(text) => {
                out.push_str(&scalar(text, false));
                out.push('\n');
            }
            Self::Literal(text) => {
                out.push_str(text);
                out.push('\n');
            }
            Self::List(items) => {
                end_line(out);
                write_items(out, items, indent);
            }
            Self::Map(entries) => {
                end_line(out);
                write_entries(out, entries, indent);
            }
        }
    }
}

impl Item {
    fn to_flow(&self) -> Option<String> {
        let node = self.node.as_ref().filter(|_| self.notes.is_empty())?;
        node.to_flow()
    }
}

impl YamlEntry {
    fn to_flow(&self) -> Option<String> {
        if !self.notes.is_empty() {
            return None;
        }
        Some(format!(
            "{}: {}",
            scalar(&self.key, true),
            self.value.to_flow()?
        ))
    }
}

/// Writes a document: comments, then the entries of its mapping, with an empty line above each longer one.
pub fn write_document(head: &[String], entries: &[YamlEntry]) -> String {
    let mut out = String::new();
    write_notes(&mut out, head, 0);
    for (at, entry) in entries.iter().enumerate() {
        let before = out.len();
        write_entries(&mut out, std::slice::from_ref(entry), 0);
        let is_long = out
            .get(before..)
            .is_some_and(|text| text.lines().count() > 1);
        if before > 0 && (is_long || at == 0) {
            out.insert(before, '\n');
        }
    }
    out
}

/// Inserts a value into nested mappings, by a path such as `politeness.delay`.
pub fn insert(entries: &mut Vec<YamlEntry>, path: &str, value: YamlNode, notes: Vec<String>) {
    let (key, rest) = match path.split_once('.') {
        Some((key, rest)) => (key, Some(rest)),
        None => (path, None),
    };
    let at = entries.iter().position(|entry| entry.key == key);
    let Some(rest) = rest else {
        let entry = YamlEntry {
            notes,
            key: key.to_owned(),
            value,
        };
        match at.and_then(|at| entries.get_mut(at)) {
            Some(existing) => *existing = entry,
            None => entries.push(entry),
        }
        return;
    };
    let at = at.unwrap_or_else(|| {
        entries.push(YamlEntry::new(key, YamlNode::Map(Vec::new())));
        entries.len() - 1
    });
    if let Some(entry) = entries.get_mut(at) {
        if !matches!(entry.value, YamlNode::Map(_)) {
            entry.value = YamlNode::Map(Vec::new());
        }
        if let YamlNode::Map(nested) = &mut entry.value {
            insert(nested, rest, value, notes);
        }
    }
}

fn end_line(out: &mut String) {
    if out.ends_with(' ') {
        out.pop();
    }
    out.push('\n');
}

fn write_notes(out: &mut String, notes: &[String], indent: usize) {
    for line in notes.iter().flat_map(|note| note.lines()) {
        let line: String = line.chars().filter(|c| !c.is_control()).collect();
        out.push_str(&" ".repeat(indent));
        out.push_str(format!("# {line}").trim_end());
        out.push('\n');
    }
}

fn write_entries(out: &mut String, entries: &[YamlEntry], indent: usize) {
    for entry in entries {
        write_notes(out, &entry.notes, indent);
        out.push_str(&" ".repeat(indent));
        write_entry(out, entry, indent);
    }
}

fn write_entry(out: &mut String, entry: &YamlEntry, indent: usize) {
    let key = scalar(&entry.key, true);
    out.push_str(&key);
    out.push_str(": ");
    let used = indent + key.chars().count() + 2;
    entry.value.write(out, indent + 2, used);
}

fn write_items(out: &mut String, items: &[Item], indent: usize) {
    for item in items {
        write_notes(out, &item.notes, indent);
        let Some(node) = &item.node else {
            continue;
        };
        out.push_str(&" ".repeat(indent));
        out.push_str("- ");
        write_item(out, node, indent + 2);
    }
}

/// Writes an item after its dash. The first key of a mapping is on the line of the dash.
fn write_item(out: &mut String, node: &YamlNode, indent: usize) {
    let flow = node.to_flow().filter(|_| !node.is_tall());
    let fits = flow.is_some_and(|flow| indent + flow.chars().count() <= WIDTH);
    match node {
        YamlNode::Map(entries) if !fits => {
            if let Some((first, others)) = entries.split_first() {
                write_entry(out, first, indent);
                write_entries(out, others, indent);
            }
        }
        YamlNode::Text(_) | YamlNode::Literal(_) | YamlNode::List(_) | YamlNode::Map(_) => {
            node.write(out, indent, indent);
        }
    }
}

/// Writes text so that YAML reads the same text: plain if possible, else quoted.
fn scalar(text: &str, in_flow: bool) -> String {
    if is_plain(text, in_flow) {
        return text.to_owned();
    }
    let needs_escapes = text
        .chars()
        .any(|c| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{85}'));
    if !needs_escapes {
        return format!("'{}'", text.replace('\'', "''"));
    }
    // A string of JSON is a double-quoted one of YAML, but for characters that only YAML ends a line at.
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}') => {
                quoted.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

fn is_plain(text: &str, in_flow: bool) -> bool {
    let begins_plainly = text
        .chars()
        .next()
        .is_some_and(|c| c.is_ascii_alphanumeric() || matches!(c, '/' | '_' | '.'));
    let is_plain_char = |c: char| {
        c.is_alphanumeric()
            || matches!(c, '/' | '_' | '.' | '-' | '+' | '=' | '~' | '$' | '(' | ')')
            || (!in_flow && matches!(c, ' ' | ',' | ';'))
            || matches!(c, '*' | ';') && in_flow
    };
    begins_plainly
        && text.chars().all(is_plain_char)
        && !text.ends_with(' ')
        && !is_special_word(text)
        && !looks_like_number(text)
}

fn is_special_word(text: &str) -> bool {
    let word = text.to_ascii_lowercase();
    matches!(
        word.as_str(),
        "true" | "false" | "null" | "yes" | "no" | "on" | "off" | "y" | "n"
    )
}

/// Returns `true` if YAML 1.1 or 1.2 may read the text as a number or a date.
fn looks_like_number(text: &str) -> bool {
    let begins_like_one = text
        .trim_start_matches('.')
        .starts_with(|c: char| c.is_ascii_digit());
    let is_special = matches!(text.to_ascii_lowercase().as_str(), ".inf" | ".nan");
    let has_other = text.chars().any(|c| {
        c.is_alphabetic() && !matches!(c, 'e' | 'E' | 'x' | 'X' | 'o' | 'a'..='f' | 'A'..='F' | '_')
    });
    is_special || text.starts_with('.') && text.len() == 1 || (begins_like_one && !has_other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_are_read_back_as_the_same_text() {
        let mut random = fastrand::Rng::with_seed(5);
        let alphabet: Vec<char> = "ab0 1.:-#'\"\\{}[],&*!|>%@`~?=\n\t\u{2028}é/_eExo+$^()<"
            .chars()
            .collect();
        let fixed = [
            "",
            "no",
            "1e3",
            "0x1f",
            "2001-01-01",
            "-",
            "---",
            "a: b",
            "a #b",
            "=",
            "<<",
            "~",
            ".5",
            "1_000",
            "0o7",
        ];
        let random_texts = (0..20_000).map(|_| {
            let length = random.usize(..8);
            (0..length)
                .map(|_| alphabet[random.usize(..alphabet.len())])
                .collect::<String>()
        });
        let random_texts: Vec<String> = random_texts.collect();
        let texts = fixed
            .into_iter()
            .chain(random_texts.iter().map(String::as_str));
        for text in texts {
            for in_flow in [false, true] {
                let written = scalar(text, in_flow);
                let document = if in_flow {
                    format!("k: [ {written} ]\n")
                } else {
                    format!("k: {written}\n")
                };
                let read: Json = serde_saphyr::from_str(&document)
                    .unwrap_or_else(|error| panic!("{document:?}: {error}"));
                let read = if in_flow { &read["k"][0] } else { &read["k"] };
                assert_eq!(read, &Json::String(text.to_owned()), "{document:?}");
            }
        }
    }

    #[test]
    fn short_values_are_on_one_line_and_comments_stay_above_their_entry() {
        let mut entries = vec![YamlEntry::new("policy", YamlNode::Literal("1".to_owned()))];
        insert(
            &mut entries,
            "options.disposition",
            YamlNode::text("allow"),
            Vec::new(),
        );
        insert(
            &mut entries,
            "options.politeness.delay",
            YamlNode::text("3s"),
            vec!["why".to_owned()],
        );
        let rule = YamlNode::Map(vec![
            YamlEntry::new("id", YamlNode::text("a")),
            YamlEntry::new(
                "forbid",
                YamlNode::Map(vec![YamlEntry::new(
                    "ext",
                    YamlNode::texts(&["gif".to_owned(), "png".to_owned()]),
                )]),
            ),
        ]);
        let item = Item {
            notes: vec!["line 3".to_owned()],
            node: Some(rule),
        };
        entries.push(YamlEntry::new("rules", YamlNode::List(vec![item])));
        let text = write_document(&["head".to_owned()], &entries);
        assert_eq!(
            text,
            "# head\n\npolicy: 1\n\noptions:\n  disposition: allow\n  politeness:\n    # why\n    delay: 3s\n\n\
             rules:\n  # line 3\n  - { id: a, forbid: { ext: [ gif, png ] } }\n"
        );
    }
}

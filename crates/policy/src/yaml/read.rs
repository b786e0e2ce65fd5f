//! Readers: from nodes to values. Every mistake is reported, and reading goes on.
//!
//! A reader returns `None` after it has reported a problem, so that the caller can continue and
//! report more.

use std::ops::RangeInclusive;
use std::time::Duration;

use smallvec::SmallVec;

use super::node::{MappingEntry, MappingKey, Node, YamlValue};
use crate::diagnostics::problem::{Problem, SourceLocation};
use crate::diagnostics::problems::Problems;
use crate::model::units;
use crate::model::words::Word;

/// Reads a mapping key by key; [`Self::finish`] reports the keys that were never requested.
#[derive(Debug)]
pub struct MapReader<'n> {
    place: &'n SourceLocation,
    entries: &'n [MappingEntry],
    /// The keys requested so far. A rule has most: 19.
    known_keys: SmallVec<[&'static str; 20]>,
    /// `true` if keys that begin with [`EXTENSION_PREFIX`] are the author's own.
    has_extensions: bool,
}

/// The beginning of top-level keys that nothing reads: places for anchors, `x-blogs: &blogs […]`.
pub const EXTENSION_PREFIX: &str = "x-";

impl<'n> MapReader<'n> {
    /// Opens a mapping; `what` names it in the message if the node is not a mapping.
    pub fn open(node: &'n Node, subject: &str, problems: &mut Problems) -> Option<Self> {
        if let YamlValue::Mapping(entries) = &node.value {
            return Some(Self {
                place: &node.place,
                entries,
                known_keys: SmallVec::new(),
                has_extensions: false,
            });
        }
        problems.push(wrong_type(
            node,
            &format!("{subject} must be a mapping (`key: value`)"),
        ));
        None
    }

    /// Opens the mapping of a whole file, which may have keys that begin with [`EXTENSION_PREFIX`].
    pub fn open_document(node: &'n Node, subject: &str, problems: &mut Problems) -> Option<Self> {
        let map = Self::open(node, subject, problems)?;
        Some(Self {
            has_extensions: true,
            ..map
        })
    }

    /// Returns the location of the mapping.
    pub fn place(&self) -> &'n SourceLocation {
        self.place
    }

    /// Returns the value of a key; `None` if the key is missing. A key without a value has the
    /// value null.
    pub fn take(&mut self, key: &'static str) -> Option<&'n Node> {
        self.take_entry(key).map(|entry| &entry.value)
    }

    /// Returns the key and its value.
    pub fn take_entry(&mut self, key: &'static str) -> Option<&'n MappingEntry> {
        if !self.known_keys.contains(&key) {
            self.known_keys.push(key);
        }
        self.entries.iter().find(|e| *e.key.text == *key)
    }

    /// Returns the value of a required key.
    pub fn require(&mut self, key: &'static str, problems: &mut Problems) -> Option<&'n Node> {
        let found = self.take(key);
        if found.is_none() {
            problems.push(Problem::error(self.place, format!("`{key}` is missing")));
        }
        found
    }

    /// Reports every key that was never requested, with the nearest one that was.
    pub fn finish(self, problems: &mut Problems) {
        for entry in self
            .entries
            .iter()
            .filter(|e| !self.known_keys.contains(&&*e.key.text))
            .filter(|e| !(self.has_extensions && e.key.text.starts_with(EXTENSION_PREFIX)))
        {
            problems.push(unknown_key(&entry.key, &self.known_keys));
        }
    }
}

/// Returns the problem of an unknown key.
pub fn unknown_key(key: &MappingKey, allowed: &[&str]) -> Problem {
    Problem::error(&key.place, "unknown key")
        .with_found(&*key.text)
        .with_allowed_words(allowed.iter().copied())
}

/// Returns the problem of a node with a wrong value; `expected` is a complete clause.
pub fn wrong_type(node: &Node, expected: &str) -> Problem {
    let found = node.spelling().unwrap_or_else(|| node.kind_name());
    Problem::error(&node.place, expected).with_found(found)
}

/// Returns the entries of a mapping whose keys are names chosen by the author.
pub fn entries<'n>(node: &'n Node, subject: &str, problems: &mut Problems) -> &'n [MappingEntry] {
    if let YamlValue::Mapping(entries) = &node.value {
        return entries;
    }
    problems.push(wrong_type(
        node,
        &format!("{subject} must be a mapping (`name: value`)"),
    ));
    &[]
}

/// Returns the items of a list.
pub fn items<'n>(node: &'n Node, subject: &str, problems: &mut Problems) -> &'n [Node] {
    if let YamlValue::Sequence(items) = &node.value {
        return items;
    }
    problems.push(wrong_type(
        node,
        &format!("{subject} must be a list (`[a, b]`)"),
    ));
    &[]
}

/// Returns the items of a list, or a single value as a list of one.
pub fn one_or_many(node: &Node) -> &[Node] {
    if let YamlValue::Sequence(items) = &node.value {
        items
    } else {
        std::slice::from_ref(node)
    }
}

/// Reads text; numbers and booleans must be quoted.
pub fn text<'n>(node: &'n Node, problems: &mut Problems) -> Option<&'n str> {
    if let YamlValue::Text(text) = &node.value {
        return Some(text);
    }
    let problem = wrong_type(node, "expected text");
    problems.push(match node.spelling() {
        Some(spelling) => problem.with_help(format!("write \"{spelling}\" in quotes")),
        None => problem,
    });
    None
}

/// Reads any scalar as it is spelled, for text that may look like a number.
pub fn spelling<'n>(node: &'n Node, problems: &mut Problems) -> Option<&'n str> {
    let found = node.spelling();
    if found.is_none() {
        problems.push(wrong_type(node, "expected text"));
    }
    found
}

pub fn boolean(node: &Node, problems: &mut Problems) -> Option<bool> {
    if let YamlValue::Bool(value) = node.value {
        return Some(value);
    }
    let suggestion = match node.spelling() {
        Some("yes" | "on" | "Yes" | "On" | "y" | "1") => Some("true"),
        Some("no" | "off" | "No" | "Off" | "n" | "0") => Some("false"),
        _ => None,
    };
    let problem = wrong_type(node, "expected true or false");
    problems.push(Problem {
        suggestion: suggestion.map(Into::into),
        help: Some("allowed: true, false".into()),
        ..problem
    });
    None
}

/// Reads an integer in a range.
pub fn integer(node: &Node, range: RangeInclusive<i64>, problems: &mut Problems) -> Option<i64> {
    if let YamlValue::Int(number, _) = node.value
        && range.contains(&number)
    {
        return Some(number);
    }
    let (from, to) = range.into_inner();
    let expected = if to == i64::MAX && !is_beyond_integers(node) {
        format!("expected an integer of at least {from}")
    } else {
        format!("expected an integer from {from} to {to}")
    };
    problems.push(wrong_type(node, &expected));
    None
}

/// Returns `true` for digits that no integer can hold.
fn is_beyond_integers(node: &Node) -> bool {
    node.spelling().is_some_and(|digits| {
        !digits.is_empty()
            && digits.bytes().all(|byte| byte.is_ascii_digit())
            && digits.parse::<i64>().is_err()
    })
}

/// Reads a number, which may have a fraction, in a range.
pub fn decimal(node: &Node, range: RangeInclusive<f64>, problems: &mut Problems) -> Option<f64> {
    let number = match node.value {
        YamlValue::Int(number, _) => Some(number as f64),
        YamlValue::Float(number, _) => Some(number),
        YamlValue::Null
        | YamlValue::Bool(_)
        | YamlValue::Text(_)
        | YamlValue::Sequence(_)
        | YamlValue::Mapping(_) => None,
    };
    let fitting = number.filter(|n| range.contains(n));
    if fitting.is_none() {
        let (from, to) = range.into_inner();
        problems.push(wrong_type(
            node,
            &format!("expected a number from {from} to {to}"),
        ));
    }
    fitting
}

/// Reads a duration: `250ms`, `1.5s`, `10m`, `24h`, `7d`.
pub fn duration(node: &Node, problems: &mut Problems) -> Option<Duration> {
    let found = node.spelling().and_then(units::parse_duration);
    if found.is_none() {
        let ambiguous = node.spelling().and_then(units::durations_without_unit);
        problems.push(match ambiguous {
            Some((milliseconds, seconds)) => wrong_type(node, "expected a duration")
                .with_help(format!("write {milliseconds} or {seconds}")),
            None => wrong_unit(
                node,
                "expected a duration",
                "250ms, 1.5s, 10m, 24h, 7d",
                units::probable_duration,
            ),
        });
    }
    found
}

/// Reads a size in bytes: `512B`, `64KiB`, `10MiB`, `1GiB`.
pub fn size(node: &Node, problems: &mut Problems) -> Option<u64> {
    let found = node.spelling().and_then(units::parse_size);
    if found.is_none() {
        problems.push(wrong_unit(
            node,
            "expected a size",
            "512B, 64KiB, 10MiB, 1GiB",
            units::probable_size,
        ));
    }
    found
}

fn wrong_unit(
    node: &Node,
    expected: &str,
    examples: &str,
    probable: impl Fn(&str) -> Option<String>,
) -> Problem {
    Problem {
        suggestion: node.spelling().and_then(probable),
        ..wrong_type(node, expected).with_help(format!("written like {examples}"))
    }
}

/// Reads one of a closed set of words, and returns it.
pub fn fixed_word(
    node: &Node,
    words: &[&'static str],
    problems: &mut Problems,
) -> Option<&'static str> {
    word(
        node,
        words,
        |given| words.iter().copied().find(|word| *word == given),
        problems,
    )
}

/// Reads the word of a value of an enum.
pub fn enum_word<W: Word>(node: &Node, problems: &mut Problems) -> Option<W> {
    let words: Vec<&str> = W::ALL.iter().map(|value| value.as_str()).collect();
    let from_word = |word: &str| W::ALL.iter().copied().find(|value| value.as_str() == word);
    self::word(node, &words, from_word, problems)
}

/// Reads one of a closed set of words, and returns its meaning.
pub fn word<T>(
    node: &Node,
    words: &[&'static str],
    from_word: impl Fn(&str) -> Option<T>,
    problems: &mut Problems,
) -> Option<T> {
    let value = node.spelling().and_then(from_word);
    if value.is_none() {
        let problem = wrong_type(node, "not an allowed value");
        problems.push(problem.with_allowed_words(words.iter().copied()));
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml::parse;

    /// Reads one value and returns it with the messages.
    fn read<T>(
        text: &str,
        reader: impl Fn(&Node, &mut Problems) -> Option<T>,
    ) -> (Option<T>, Vec<String>) {
        let mut problems = Problems::new();
        let node = parse(&"p".into(), text, &mut problems).unwrap();
        let value = reader(&node, &mut problems);
        (
            value,
            problems
                .into_vec()
                .iter()
                .map(ToString::to_string)
                .collect(),
        )
    }

    #[test]
    fn scalars() {
        assert_eq!(read("10", |n, p| integer(n, 0..=10, p)).0, Some(10));
        assert_eq!(read("2s", duration).0, Some(Duration::from_secs(2)));
        assert_eq!(read("2KiB", size).0, Some(2048));
        assert_eq!(
            read("1.50", |n, p| spelling(n, p).map(String::from))
                .0
                .as_deref(),
            Some("1.50")
        );
        for (text, shown) in [
            (
                "5",
                "p:1:1: error: expected a duration; found `5`; written like 250ms, 1.5s, 10m, 24h, 7d; \
                   did you mean `5s`?",
            ),
            (
                "[1]",
                "p:1:1: error: expected a duration; found `a list`; written like 250ms, 1.5s, 10m, 24h, 7d",
            ),
        ] {
            assert_eq!(read(text, duration).1, [shown], "{text}");
        }
        let (_, problems) = read("yes", boolean);
        assert_eq!(
            problems,
            [
                "p:1:1: error: expected true or false; found `yes`; allowed: true, false; did you mean `true`?"
            ]
        );
        let (_, problems) = read("11", |n, p| integer(n, 0..=10, p));
        assert_eq!(
            problems,
            ["p:1:1: error: expected an integer from 0 to 10; found `11`"]
        );
        let (_, problems) = read("5", |n, p| text(n, p).map(String::from));
        assert_eq!(
            problems,
            ["p:1:1: error: expected text; found `5`; write \"5\" in quotes"]
        );
    }

    #[test]
    fn a_mapping_reports_all_its_mistakes() {
        let (_, problems) = read("lisen: 1\nadmin: x\nfoo: 2\n", |node, problems| {
            let mut map = MapReader::open(node, "the configuration", problems)?;
            map.require("listen", problems);
            let admin = map.take("admin").and_then(|n| boolean(n, problems));
            map.finish(problems);
            admin
        });
        assert_eq!(
            problems,
            [
                "p:1:1: error: `listen` is missing",
                "p:1:1: error: unknown key; found `lisen`; allowed: listen, admin; did you mean `listen`?",
                "p:2:8: error: expected true or false; found `x`; allowed: true, false",
                "p:3:1: error: unknown key; found `foo`; allowed: listen, admin",
            ]
        );
    }

    #[test]
    fn a_whole_file_may_have_keys_of_its_author() {
        let open = |node: &Node, problems: &mut Problems| {
            MapReader::open_document(node, "the file", problems)?.finish(problems);
            Some(())
        };
        assert!(read("x-hosts: 1\n", open).1.is_empty());
        assert_eq!(
            read("xhosts: 1\n", open).1,
            ["p:1:1: error: unknown key; found `xhosts`; allowed: "]
        );
    }

    #[test]
    fn wrong_units_are_corrected() {
        for (text, meant) in [
            ("5S", "5s"),
            ("5 seconds", "5s"),
            ("2min", "2m"),
            ("1.5 h", "1.5h"),
        ] {
            let message = read(text, duration).1.concat();
            assert!(
                message.ends_with(&format!("did you mean `{meant}`?")),
                "{message}"
            );
        }
        for (text, meant) in [("10MB", "10MiB"), ("64k", "64KiB"), ("7", "7B")] {
            let message = read(text, size).1.concat();
            assert!(
                message.ends_with(&format!("did you mean `{meant}`?")),
                "{message}"
            );
        }
        for text in ["soon", "5 moons", "-5s"] {
            let message = read(text, duration).1.concat();
            assert!(!message.contains("did you mean"), "{message}");
        }
    }

    #[test]
    fn words_suggest_the_nearest() {
        let (_, problems) = read("drpo", |n, p| {
            word(n, &["drop", "wait"], |w| (w == "drop").then_some(()), p)
        });
        assert!(
            problems[0].ends_with("allowed: drop, wait; did you mean `drop`?"),
            "{problems:?}"
        );
    }
}

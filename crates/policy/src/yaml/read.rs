//! Readers: from nodes to values, every mistake reported and none the last.
//!
//! Each reader gives `None` where it reported a problem, so that the caller goes on and reports more. Which keys a
//! mapping has and what they mean is the caller's business.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::node::{MappingEntry, MappingKey, Node, YamlValue};
use crate::diagnostics::problem::{Problem, SourceLocation};
use crate::diagnostics::problems::Problems;
use crate::model::units;

/// Reads one mapping key by key; what nobody asked for is reported at the end.
#[derive(Debug)]
pub struct MapReader<'n> {
    place: &'n SourceLocation,
    entries: &'n [MappingEntry],
    known_keys: Vec<&'static str>,
}

impl<'n> MapReader<'n> {
    /// Opens a mapping; `what` names it in the message if the node is none.
    pub fn open(node: &'n Node, what: &str, problems: &mut Problems) -> Option<Self> {
        if let YamlValue::Mapping(entries) = &node.value {
            return Some(Self {
                place: &node.place,
                entries,
                known_keys: Vec::new(),
            });
        }
        problems.push(wrong_type(
            node,
            &format!("{what} is a mapping (`key: value`)"),
        ));
        None
    }

    /// Where the mapping begins.
    pub fn place(&self) -> &'n SourceLocation {
        self.place
    }

    /// The value of a key; `None` if it is not there. `key:` with nothing behind it is there, as null.
    pub fn take(&mut self, key: &'static str) -> Option<&'n Node> {
        self.take_entry(key).map(|entry| &entry.value)
    }

    /// The key and its value.
    pub fn take_entry(&mut self, key: &'static str) -> Option<&'n MappingEntry> {
        if !self.known_keys.contains(&key) {
            self.known_keys.push(key);
        }
        self.entries.iter().find(|e| *e.key.text == *key)
    }

    /// The value of a key that must be there.
    pub fn require(&mut self, key: &'static str, problems: &mut Problems) -> Option<&'n Node> {
        let found = self.take(key);
        if found.is_none() {
            problems.push(Problem::error(self.place, format!("`{key}` is missing")));
        }
        found
    }

    /// Reports every key that was not asked for, with the nearest one that was.
    pub fn finish(self, problems: &mut Problems) {
        for entry in self
            .entries
            .iter()
            .filter(|e| !self.known_keys.contains(&&*e.key.text))
        {
            problems.push(unknown_key(&entry.key, &self.known_keys));
        }
    }
}

/// The problem of a key that is none of these.
pub fn unknown_key(key: &MappingKey, allowed: &[&str]) -> Problem {
    Problem::error(&key.place, "unknown key")
        .with_found(&*key.text)
        .with_allowed_words(allowed.iter().copied())
}

/// The problem of a node that is not what it should be; `expected` is a whole clause.
pub fn wrong_type(node: &Node, expected: &str) -> Problem {
    let found = node.spelling().unwrap_or_else(|| node.kind_name());
    Problem::error(&node.place, expected).with_found(found)
}

/// The keys and values of a mapping whose keys are names of the writer's own.
pub fn entries<'n>(node: &'n Node, what: &str, problems: &mut Problems) -> &'n [MappingEntry] {
    if let YamlValue::Mapping(entries) = &node.value {
        return entries;
    }
    problems.push(wrong_type(
        node,
        &format!("{what} is a mapping (`name: value`)"),
    ));
    &[]
}

/// The items of a list.
pub fn items<'n>(node: &'n Node, what: &str, problems: &mut Problems) -> &'n [Node] {
    if let YamlValue::Sequence(items) = &node.value {
        return items;
    }
    problems.push(wrong_type(node, &format!("{what} is a list (`[a, b]`)")));
    &[]
}

/// The items of a list, or the one value that stands in place of a list.
pub fn one_or_many(node: &Node) -> &[Node] {
    if let YamlValue::Sequence(items) = &node.value {
        items
    } else {
        std::slice::from_ref(node)
    }
}

/// Text; a number or a boolean must be in quotes.
pub fn text<'n>(node: &'n Node, problems: &mut Problems) -> Option<&'n str> {
    if let YamlValue::Text(text) = &node.value {
        return Some(text);
    }
    let problem = wrong_type(node, "text is needed here");
    problems.push(match node.spelling() {
        Some(spelling) => problem.with_help(format!("write \"{spelling}\" in quotes")),
        None => problem,
    });
    None
}

/// Any scalar as it is written: where text is meant, and what is written may look like a number.
pub fn spelling<'n>(node: &'n Node, problems: &mut Problems) -> Option<&'n str> {
    let found = node.spelling();
    if found.is_none() {
        problems.push(wrong_type(node, "text is needed here"));
    }
    found
}

/// `true` or `false`.
pub fn boolean(node: &Node, problems: &mut Problems) -> Option<bool> {
    if let YamlValue::Bool(value) = node.value {
        return Some(value);
    }
    let near = match node.spelling() {
        Some("yes" | "on" | "Yes" | "On" | "y" | "1") => Some("true"),
        Some("no" | "off" | "No" | "Off" | "n" | "0") => Some("false"),
        _ => None,
    };
    let problem = wrong_type(node, "true or false is needed here");
    problems.push(Problem {
        suggestion: near.map(Into::into),
        help: Some("allowed: true, false".into()),
        ..problem
    });
    None
}

/// A whole number in a range.
pub fn integer(node: &Node, range: RangeInclusive<i64>, problems: &mut Problems) -> Option<i64> {
    if let YamlValue::Int(number, _) = node.value
        && range.contains(&number)
    {
        return Some(number);
    }
    let (from, to) = range.into_inner();
    let expected = match (from, to) {
        (_, i64::MAX) => format!("a whole number of at least {from} is needed here"),
        (_, _) => format!("a whole number from {from} to {to} is needed here"),
    };
    problems.push(wrong_type(node, &expected));
    None
}

/// A number, fractions allowed, in a range.
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
            &format!("a number from {from} to {to} is needed here"),
        ));
    }
    fitting
}

/// A duration: `250ms`, `1.5s`, `10m`, `24h`, `7d`.
pub fn duration(node: &Node, problems: &mut Problems) -> Option<Duration> {
    let found = node.spelling().and_then(units::parse_duration);
    if found.is_none() {
        problems.push(missing_unit_problem(
            node,
            "a duration is needed here",
            "250ms, 1.5s, 10m, 24h, 7d",
            "s",
        ));
    }
    found
}

/// A size in bytes: `512B`, `64KiB`, `10MiB`, `1GiB`.
pub fn size(node: &Node, problems: &mut Problems) -> Option<u64> {
    let found = node.spelling().and_then(units::parse_size);
    if found.is_none() {
        problems.push(missing_unit_problem(
            node,
            "a size is needed here",
            "512B, 64KiB, 10MiB, 1GiB",
            "B",
        ));
    }
    found
}

fn missing_unit_problem(node: &Node, expected: &str, examples: &str, unit: &str) -> Problem {
    let problem = wrong_type(node, expected).with_help(format!("written like {examples}"));
    match &node.value {
        YamlValue::Int(_, number) => Problem {
            suggestion: Some(format!("{number}{unit}")),
            ..problem
        },
        YamlValue::Null
        | YamlValue::Bool(_)
        | YamlValue::Float(..)
        | YamlValue::Text(_)
        | YamlValue::Sequence(_)
        | YamlValue::Mapping(_) => problem,
    }
}

/// One of a closed set of words.
pub fn word<T>(
    node: &Node,
    words: &[&'static str],
    from_word: impl Fn(&str) -> Option<T>,
    problems: &mut Problems,
) -> Option<T> {
    let value = node.spelling().and_then(from_word);
    if value.is_none() {
        let problem = wrong_type(node, "not one of the words that are allowed here");
        problems.push(problem.with_allowed_words(words.iter().copied()));
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml::parse;

    /// Reads one value and gives the messages.
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
                "p:1:1: error: a duration is needed here; found `5`; written like 250ms, 1.5s, 10m, 24h, 7d; \
                   did you mean `5s`?",
            ),
            (
                "[1]",
                "p:1:1: error: a duration is needed here; found `a list`; written like 250ms, 1.5s, 10m, 24h, 7d",
            ),
        ] {
            assert_eq!(read(text, duration).1, [shown], "{text}");
        }
        let (_, problems) = read("yes", boolean);
        assert_eq!(
            problems,
            [
                "p:1:1: error: true or false is needed here; found `yes`; allowed: true, false; did you mean `true`?"
            ]
        );
        let (_, problems) = read("11", |n, p| integer(n, 0..=10, p));
        assert_eq!(
            problems,
            ["p:1:1: error: a whole number from 0 to 10 is needed here; found `11`"]
        );
        let (_, problems) = read("5", |n, p| text(n, p).map(String::from));
        assert_eq!(
            problems,
            ["p:1:1: error: text is needed here; found `5`; write \"5\" in quotes"]
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
                "p:2:8: error: true or false is needed here; found `x`; allowed: true, false",
                "p:3:1: error: unknown key; found `foo`; allowed: listen, admin",
            ]
        );
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

//! Descriptions of tests and conditions for explanations and comparisons. This is not the syntax of
//! policies.

use std::fmt;

use crate::policy::condition::{Atom, AtomTest, Condition, Truth};
use crate::policy::list::{ListItems, PolicyList};
use crate::policy::pattern::{CaseSensitivity, CountTestKind, Ranges, TextForm, TextKind};

/// The maximum number of values in a description.
const MAX_OPERANDS: usize = 4;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestDescription {
    /// The kind: `under`, `regex`, `cidr`, `in`; `is` for numbers and counts.
    pub kind: &'static str,
    /// The alternative values.
    pub values: Vec<String>,
}

impl TestDescription {
    /// Returns the words between the field's value and the test's values.
    pub fn phrase(&self, truth: Truth) -> &'static str {
        let (yes, no) = match self.kind {
            "prefix" => ("begins with", "does not begin with"),
            "suffix" => ("ends with", "does not end with"),
            "contains" => ("contains", "does not contain"),
            "regex" => ("matches", "does not match"),
            "glob" => ("matches", "does not match"),
            "domain" | "cidr" => ("is in", "is not in"),
            "in" => ("is in the list", "is not in the list"),
            "ext" => ("has the extension", "does not have the extension"),
            "under" => ("is under", "is not under"),
            "surt" => (
                "has a SURT that begins with",
                "has a SURT that does not begin with",
            ),
            CONTENT_KIND => (
                "is a success with content",
                "is not a success with content, and the rule only matches those",
            ),
            _ => ("is", "is not"),
        };
        if truth == Truth::No { no } else { yes }
    }

    /// The first values.
    pub fn operands(&self) -> String {
        let shown = self
            .values
            .get(..MAX_OPERANDS)
            .unwrap_or(&self.values)
            .join(", ");
        match self.values.len().saturating_sub(MAX_OPERANDS) {
            0 => shown,
            more => format!("{shown} or one of {more} more"),
        }
    }
}

/// The kind of the test for 2xx with content, which rules on type and size imply.
pub const CONTENT_KIND: &str = "content";

impl fmt::Display for TestDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.operands())
    }
}

impl Condition {
    /// Describes the condition in one line: `path under /old and not (host exact a.example)`.
    pub fn describe(&self, lists: &[PolicyList]) -> String {
        match self {
            Self::Always => "always".into(),
            Self::All(parts) => join_parts(parts, " and ", lists),
            Self::Any(parts) => join_parts(parts, " or ", lists),
            Self::Not(part) => format!("not ({})", part.describe(lists)),
            Self::Atom(atom) => {
                let words = describe_test(atom, lists);
                let values: Vec<String> = words.values.iter().map(|value| quoted(value)).collect();
                format!(
                    "{} {} {}{}",
                    describe_field(atom),
                    words.kind,
                    values.join(", "),
                    describe_comparison(atom, lists)
                )
            }
        }
    }
}

/// Quotes a value that could be mistaken for several.
fn quoted(value: &str) -> String {
    let is_unclear = value.is_empty() || value.contains(", ") || value.starts_with('\'');
    match is_unclear {
        true => format!("'{}'", value.replace('\'', "''")),
        false => value.to_owned(),
    }
}

/// Describes the comparison, unless it is the usual one: ` (case: ignore, norm: true)`.
fn describe_comparison(atom: &Atom, lists: &[PolicyList]) -> String {
    let test = match &atom.test {
        AtomTest::Text(test) => Some(test),
        AtomTest::InList(list) => match lists.get(*list).map(|list| &list.items) {
            Some(ListItems::Patterns(patterns)) => patterns.tests().first(),
            Some(ListItems::Set(_) | ListItems::Prefixes(_) | ListItems::Networks(_)) | None => {
                None
            }
        },
        AtomTest::Number(_) | AtomTest::Address(_) => None,
    };
    let Some(test) = test else {
        return String::new();
    };
    let ignores_case = test.case == CaseSensitivity::Insensitive && !atom.field.ignores_case();
    let is_normalized = test.form == TextForm::Normalized;
    match (ignores_case, is_normalized) {
        (false, false) => String::new(),
        (true, false) => " (case: ignore)".to_owned(),
        (false, true) => " (norm: true)".to_owned(),
        (true, true) => " (case: ignore, norm: true)".to_owned(),
    }
}

fn join_parts(parts: &[Condition], word: &str, lists: &[PolicyList]) -> String {
    let parts: Vec<String> = parts
        .iter()
        .map(|part| match part {
            Condition::All(_) | Condition::Any(_) => format!("({})", part.describe(lists)),
            Condition::Always | Condition::Not(_) | Condition::Atom(_) => part.describe(lists),
        })
        .collect();
    parts.join(word)
}

/// Describes what an atom tests: `path`, `repeats of path`.
pub(super) fn describe_field(atom: &Atom) -> String {
    let field = atom.field.full_keyword();
    let AtomTest::Text(test) = &atom.test else {
        return field;
    };
    match &test.kind {
        TextKind::Count(kind, _) => format!("{} of {field}", count_name(*kind)),
        TextKind::Literal(..) | TextKind::Regex(_) => field,
    }
}

fn count_name(kind: CountTestKind) -> &'static str {
    match kind {
        CountTestKind::Length => "length",
        CountTestKind::Segments => "segments",
        CountTestKind::Repeats => "repeats",
        CountTestKind::Params => "parameters",
    }
}

/// Describes the test of an atom.
pub(super) fn describe_test(atom: &Atom, lists: &[PolicyList]) -> TestDescription {
    let (kind, values) = match &atom.test {
        AtomTest::Text(test) => return describe_text_test(atom, &test.kind),
        AtomTest::Number(ranges) => ("is", describe_ranges(ranges)),
        AtomTest::Address(networks) => {
            ("cidr", networks.0.iter().map(ToString::to_string).collect())
        }
        AtomTest::InList(list) => {
            let name = lists.get(*list).map(|list| list.name.to_string());
            ("in", name.into_iter().collect())
        }
    };
    TestDescription { kind, values }
}

fn describe_text_test(atom: &Atom, kind: &TextKind) -> TestDescription {
    let (kind, values) = match kind {
        TextKind::Literal(kind, texts) => (
            kind.as_str(),
            texts.iter().map(ToString::to_string).collect(),
        ),
        TextKind::Regex(regexes) => match &*atom.sources {
            [] => (
                "regex",
                regexes.iter().map(|regex| regex.as_str().into()).collect(),
            ),
            [first, ..] => {
                let texts = atom.sources.iter().map(|source| source.text.to_string());
                (first.kind, texts.collect())
            }
        },
        TextKind::Count(_, ranges) => ("is", describe_ranges(ranges)),
    };
    TestDescription { kind, values }
}

fn describe_ranges(ranges: &Ranges) -> Vec<String> {
    ranges
        .0
        .iter()
        .map(|range| match *range {
            (from, to) if from == to => from.to_string(),
            (from, u64::MAX) => format!("{from} or more"),
            (0, to) => format!("{to} or less"),
            (from, to) => format!("{from} to {to}"),
        })
        .collect()
}

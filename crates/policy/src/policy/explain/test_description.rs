//! Tests and conditions in words, for explanations and comparisons; not the form that a policy is written in.

use std::fmt;

use crate::policy::condition::{Atom, AtomTest, Condition, Truth};
use crate::policy::list::PolicyList;
use crate::policy::pattern::{Ranges, TextKind};
use crate::policy::source::word_of_field;

/// The most operands that are listed.
const MAX_OPERANDS: usize = 4;

/// What a test asks, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestDescription {
    /// The kind: `under`, `regex`, `cidr`, `in`; `is` for numbers and counts.
    pub kind: &'static str,
    /// The values, any of which may fit.
    pub values: Vec<String>,
}

impl TestDescription {
    /// How a sentence goes on between the field's value and the operands.
    pub fn phrase(&self, truth: Truth) -> &'static str {
        let (yes, no) = match self.kind {
            "prefix" => ("begins with", "does not begin with"),
            "suffix" => ("ends with", "does not end with"),
            "contains" => ("contains", "does not contain"),
            "regex" => ("matches", "does not match"),
            "glob" => ("fits", "does not fit"),
            "domain" | "cidr" => ("is in", "is not in"),
            "in" => ("is in the list", "is not in the list"),
            "ext" => ("has the extension", "has not the extension"),
            "under" => ("is under", "is not under"),
            "surt" => (
                "has a SURT that begins with",
                "has no SURT that begins with",
            ),
            CONTENT_KIND => (
                "is a success with content",
                "is no success with content, and only those are judged",
            ),
            _ => ("is", "is not"),
        };
        if truth == Truth::No { no } else { yes }
    }

    /// The values, the first few of them.
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

/// The kind that stands for what rules on type and size judge: 2xx with content.
pub const CONTENT_KIND: &str = "content";

impl fmt::Display for TestDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.operands())
    }
}

impl Condition {
    /// The condition in one line: `path under /old and not (host exact a.example)`.
    pub fn describe(&self, lists: &[PolicyList]) -> String {
        match self {
            Self::Always => "always".into(),
            Self::All(parts) => join_parts(parts, " and ", lists),
            Self::Any(parts) => join_parts(parts, " or ", lists),
            Self::Not(part) => format!("not ({})", part.describe(lists)),
            Self::Atom(atom) => {
                let words = describe_test(atom, lists);
                format!(
                    "{} {} {}",
                    describe_field(atom),
                    words.kind,
                    words.values.join(", ")
                )
            }
        }
    }
}

fn join_parts(parts: &[Condition], word: &str, lists: &[PolicyList]) -> String {
    let one = |part: &Condition| match part {
        Condition::All(_) | Condition::Any(_) => format!("({})", part.describe(lists)),
        Condition::Always | Condition::Not(_) | Condition::Atom(_) => part.describe(lists),
    };
    parts.iter().map(one).collect::<Vec<_>>().join(word)
}

/// What an atom looks at: `path`, `repeats of path`.
pub(super) fn describe_field(atom: &Atom) -> String {
    let field = word_of_field(&atom.field);
    let AtomTest::Text(test) = &atom.test else {
        return field;
    };
    match count_name(&test.kind) {
        Some(thing) => format!("{thing} of {field}"),
        None => field,
    }
}

fn count_name(kind: &TextKind) -> Option<&'static str> {
    if let TextKind::Length(_) = kind {
        return Some("length");
    }
    if let TextKind::Segments(_) = kind {
        return Some("segments");
    }
    if let TextKind::Repeats(_) = kind {
        return Some("repeats");
    }
    if let TextKind::Params(_) = kind {
        Some("parameters")
    } else {
        None
    }
}

/// The test of an atom in words.
pub(super) fn describe_test(atom: &Atom, lists: &[PolicyList]) -> TestDescription {
    let words = |kind, values| TestDescription { kind, values };
    match &atom.test {
        AtomTest::Text(test) => describe_text_test(atom, &test.kind),
        AtomTest::Number(ranges) => words("is", describe_ranges(ranges)),
        AtomTest::Address(networks) => {
            words("cidr", networks.0.iter().map(ToString::to_string).collect())
        }
        AtomTest::InList(list) => words(
            "in",
            lists
                .get(*list)
                .map(|list| list.name.to_string())
                .into_iter()
                .collect(),
        ),
    }
}

fn describe_text_test(atom: &Atom, kind: &TextKind) -> TestDescription {
    let texts = |kind, all: &[Box<str>]| {
        let values = all.iter().map(ToString::to_string).collect();
        TestDescription { kind, values }
    };
    match kind {
        TextKind::Exact(all) => texts("exact", all),
        TextKind::Prefix(all) => texts("prefix", all),
        TextKind::Suffix(all) => texts("suffix", all),
        TextKind::Contains(all) => texts("contains", all),
        TextKind::Domain(all) => texts("domain", all),
        TextKind::Ext(all) => texts("ext", all),
        TextKind::Under(all) => texts("under", all),
        TextKind::Surt(all) => texts("surt", all),
        TextKind::Regex(all) => {
            let kind = atom.sources.first().map_or("regex", |written| written.kind);
            let written = atom.sources.iter().map(|written| written.text.to_string());
            let values: Vec<String> = if atom.sources.is_empty() {
                all.iter().map(|r| r.as_str().into()).collect()
            } else {
                written.collect()
            };
            TestDescription { kind, values }
        }
        TextKind::Length(ranges)
        | TextKind::Segments(ranges)
        | TextKind::Repeats(ranges)
        | TextKind::Params(ranges) => TestDescription {
            kind: "is",
            values: describe_ranges(ranges),
        },
    }
}

fn describe_ranges(ranges: &Ranges) -> Vec<String> {
    let one = |(from, to): &(u64, u64)| match (*from, *to) {
        (from, to) if from == to => from.to_string(),
        (from, u64::MAX) => format!("{from} or more"),
        (0, to) => format!("{to} or less"),
        (from, to) => format!("{from} to {to}"),
    };
    ranges.0.iter().map(one).collect()
}

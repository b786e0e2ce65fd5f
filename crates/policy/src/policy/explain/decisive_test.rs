//! Grounds: on which tests the value of a condition rests, each with what it looked at.
//!
//! Unlike the rest of an explanation they are found by asking the conditions again, with the same facts: a trail
//! remembers what came out, not why. Facts only ever become known, so the answer is the one that was given.

use std::fmt;

use super::test_description::{TestDescription, describe_field, describe_test};
use crate::policy::condition::{Atom, AtomTest, Condition, Truth};
use crate::policy::fact::{Fact, Facts};
use crate::policy::field::{Field, ValueType};
use crate::policy::list::PolicyList;
use crate::policy::pattern::{TextForm, TextKind, TextTest};
use crate::urls::target::normalise_text;

/// One test that had its part in what a condition came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisiveTest {
    /// What was looked at: `path`, `param.sid`, `length of url`.
    pub field: String,
    /// What was there.
    pub observed: ObservedValue,
    /// The test. Of one that holds its operands are the values that fit, of any other all of them.
    pub test: TestDescription,
    /// Whether the test holds.
    pub truth: Truth,
}

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObservedValue {
    /// It is known; absent text is empty.
    Value(String),
    /// It is known that there is none.
    Absent,
    /// It is not known: a stage that was not run, or what a tunnel hides.
    Unknown,
}

impl ObservedValue {
    /// The value; `None` where there is none, or none is known.
    pub fn value(&self) -> Option<&str> {
        if let Self::Value(value) = self {
            Some(value)
        } else {
            None
        }
    }
}

impl DecisiveTest {
    fn restates_value(&self, value: &str) -> bool {
        self.test.phrase(self.truth) == "is" && self.test.values == [value]
    }
}

impl fmt::Display for DecisiveTest {
    /// `path /cgi-bin/x is under /cgi-bin`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.field)?;
        match &self.observed {
            // It would stand there twice.
            ObservedValue::Value(value) if self.restates_value(value) => {}
            ObservedValue::Value(value) if value.is_empty() => f.write_str("(empty) ")?,
            ObservedValue::Value(value) => write!(f, "{value} ")?,
            ObservedValue::Absent => f.write_str("(absent) ")?,
            ObservedValue::Unknown if self.truth == Truth::Unknown => {
                return write!(f, "is not known: {}", self.test);
            }
            // What a tunnel hides is all the same for this test.
            ObservedValue::Unknown => f.write_str("(any) ")?,
        }
        f.write_str(self.test.phrase(self.truth))?;
        match self.test.operands() {
            operands if operands.is_empty() => Ok(()),
            operands => write!(f, " {operands}"),
        }
    }
}

impl Condition {
    /// The tests on which its value rests: the first part that decides, or all parts where all had to agree. Where the
    /// value is unknown, those that are.
    pub fn decisive_tests(&self, facts: &Facts<'_>, lists: &[PolicyList]) -> Vec<DecisiveTest> {
        let mut grounds = Vec::new();
        collect_tests(self, facts, lists, &mut grounds);
        grounds
    }
}

fn collect_tests(
    condition: &Condition,
    facts: &Facts<'_>,
    lists: &[PolicyList],
    grounds: &mut Vec<DecisiveTest>,
) {
    match condition {
        Condition::Always => {}
        Condition::All(parts) => collect_decisive(parts, Truth::No, facts, lists, grounds),
        Condition::Any(parts) => collect_decisive(parts, Truth::Yes, facts, lists, grounds),
        Condition::Not(part) => collect_tests(part, facts, lists, grounds),
        Condition::Atom(atom) => grounds.push(explain_atom(atom, facts, lists)),
    }
}

fn collect_decisive(
    parts: &[Condition],
    deciding: Truth,
    facts: &Facts<'_>,
    lists: &[PolicyList],
    grounds: &mut Vec<DecisiveTest>,
) {
    let truth = |part: &Condition| part.evaluate(facts, lists);
    if let Some(part) = parts.iter().find(|part| truth(part) == deciding) {
        return collect_tests(part, facts, lists, grounds);
    }
    let open = parts.iter().any(|part| truth(part) == Truth::Unknown);
    for part in parts
        .iter()
        .filter(|part| !open || truth(part) == Truth::Unknown)
    {
        collect_tests(part, facts, lists, grounds);
    }
}

fn explain_atom(atom: &Atom, facts: &Facts<'_>, lists: &[PolicyList]) -> DecisiveTest {
    let truth = atom.evaluate(facts, lists);
    let (field, seen) = (describe_field(atom), observe(atom, facts));
    let AtomTest::Text(test) = &atom.test else {
        return DecisiveTest {
            field,
            observed: seen,
            test: describe_test(atom, lists),
            truth,
        };
    };
    if let Some(count) = seen.value().and_then(|text| test.kind.count(text)) {
        return DecisiveTest {
            field,
            observed: ObservedValue::Value(count.to_string()),
            test: describe_test(atom, lists),
            truth,
        };
    }
    match (truth, field_texts(&atom.field, facts)) {
        (Truth::Yes, Some(texts)) => explain_match(atom, test, texts, lists),
        (_, _) => DecisiveTest {
            field,
            observed: seen,
            test: describe_test(atom, lists),
            truth,
        },
    }
}

/// The text that passes, and the first value that it fits.
fn explain_match(
    atom: &Atom,
    test: &TextTest,
    texts: Vec<String>,
    lists: &[PolicyList],
) -> DecisiveTest {
    let text = texts
        .into_iter()
        .find(|text| test.matches(text))
        .unwrap_or_default();
    let alone = |at: usize| Atom {
        field: atom.field.clone(),
        test: AtomTest::Text(TextTest {
            kind: with_only_value(&test.kind, at),
            ..test.clone()
        }),
        sources: atom.sources.get(at).cloned().into_iter().collect(),
    };
    let passes = |atom: &Atom| {
        if let AtomTest::Text(test) = &atom.test {
            test.matches(&text)
        } else {
            false
        }
    };
    let value = (0..count_values(&test.kind)).map(alone).find(passes);
    let words = value.as_ref().map_or_else(
        || describe_test(atom, lists),
        |value| describe_test(value, lists),
    );
    let seen = ObservedValue::Value(if test.form == TextForm::Normalised {
        normalise_text(&text).into()
    } else {
        text
    });
    DecisiveTest {
        field: describe_field(atom),
        observed: seen,
        test: words,
        truth: Truth::Yes,
    }
}

/// The value of an atom's field.
fn observe(atom: &Atom, facts: &Facts<'_>) -> ObservedValue {
    fn from_fact<T: ToString>(fact: Fact<Option<T>>) -> ObservedValue {
        match fact {
            Fact::Known(Some(value)) => ObservedValue::Value(value.to_string()),
            Fact::Known(None) => ObservedValue::Absent,
            Fact::Unknown => ObservedValue::Unknown,
        }
    }
    match atom.field.value_type() {
        ValueType::Text => field_texts(&atom.field, facts).map_or(ObservedValue::Unknown, |all| {
            ObservedValue::Value(all.join(", "))
        }),
        ValueType::Number => from_fact(atom.field.number(facts)),
        ValueType::Address => from_fact(atom.field.address(facts)),
    }
}

/// Every text of a field; `None` if it is not known.
fn field_texts(field: &Field, facts: &Facts<'_>) -> Option<Vec<String>> {
    let mut all = Vec::new();
    let known = field.any_text_matches(facts, |text| {
        all.push(text.to_owned());
        false
    });
    (known != Fact::Unknown).then_some(all)
}

/// How many values a test on text has, any of which may fit.
fn count_values(kind: &TextKind) -> usize {
    match kind {
        TextKind::Exact(all)
        | TextKind::Prefix(all)
        | TextKind::Suffix(all)
        | TextKind::Contains(all)
        | TextKind::Domain(all)
        | TextKind::Ext(all)
        | TextKind::Under(all)
        | TextKind::Surt(all) => all.len(),
        TextKind::Regex(all) => all.len(),
        TextKind::Length(_)
        | TextKind::Segments(_)
        | TextKind::Repeats(_)
        | TextKind::Params(_) => 0,
    }
}

/// The same test with one of its values.
fn with_only_value(kind: &TextKind, at: usize) -> TextKind {
    let one = |all: &[Box<str>]| all.get(at).cloned().into_iter().collect::<Box<[_]>>();
    match kind {
        TextKind::Exact(all) => TextKind::Exact(one(all)),
        TextKind::Prefix(all) => TextKind::Prefix(one(all)),
        TextKind::Suffix(all) => TextKind::Suffix(one(all)),
        TextKind::Contains(all) => TextKind::Contains(one(all)),
        TextKind::Domain(all) => TextKind::Domain(one(all)),
        TextKind::Ext(all) => TextKind::Ext(one(all)),
        TextKind::Under(all) => TextKind::Under(one(all)),
        TextKind::Surt(all) => TextKind::Surt(one(all)),
        TextKind::Regex(all) => TextKind::Regex(all.get(at).cloned().into_iter().collect()),
        TextKind::Length(_)
        | TextKind::Segments(_)
        | TextKind::Repeats(_)
        | TextKind::Params(_) => kind.clone(),
    }
}

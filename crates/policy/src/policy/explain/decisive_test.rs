//! The tests that decide the value of a condition, each with the observed value.
//!
//! Unlike the rest of an explanation they are found by evaluating the conditions again with the
//! same facts, since a trail records outcomes only. Facts never change once they are known, so the
//! result is the same.

use std::fmt;

use super::test_description::{TestDescription, describe_field, describe_test};
use crate::policy::condition::{Atom, AtomTest, Condition, Truth};
use crate::policy::fact::{Fact, Facts};
use crate::policy::field::{Field, ValueType};
use crate::policy::list::PolicyList;
use crate::policy::pattern::{TextForm, TextKind, TextTest};
use crate::urls::target::normalize_text;

/// A test that decided the value of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisiveTest {
    /// The observed field: `path`, `param.sid`, `length of url`.
    pub field: String,
    /// The observed value.
    pub observed: ObservedValue,
    /// The test. If it holds, its values are those that match; otherwise all of them.
    pub test: TestDescription,
    /// The result of the test.
    pub truth: Truth,
}

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObservedValue {
    /// A known value; missing text is empty.
    Value(String),
    /// Known to be missing.
    Absent,
    /// Unknown: its stage was not run, or a tunnel hides it.
    Unknown,
}

impl ObservedValue {
    /// The value, if it is known and present.
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
    /// Writes `path /cgi-bin/x is under /cgi-bin`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.field)?;
        match &self.observed {
            // The phrase repeats the value.
            ObservedValue::Value(value) if self.restates_value(value) => {}
            ObservedValue::Value(value) if value.is_empty() => f.write_str("(empty) ")?,
            ObservedValue::Value(value) => write!(f, "{value} ")?,
            ObservedValue::Absent => f.write_str("(absent) ")?,
            ObservedValue::Unknown if self.truth == Truth::Unknown => {
                return write!(f, "is not known: {}", self.test);
            }
            // The test has the same result for every value that the tunnel may hide.
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
    /// Returns the tests that decide the value: those of the first decisive part, or of all parts
    /// if all had to agree. If the value is unknown, returns the unknown tests.
    pub fn decisive_tests(&self, facts: &Facts<'_>, lists: &[PolicyList]) -> Vec<DecisiveTest> {
        let mut tests = Vec::new();
        collect_tests(self, facts, lists, &mut tests);
        tests
    }
}

fn collect_tests(
    condition: &Condition,
    facts: &Facts<'_>,
    lists: &[PolicyList],
    tests: &mut Vec<DecisiveTest>,
) {
    match condition {
        Condition::Always => {}
        Condition::All(parts) => collect_decisive(parts, Truth::No, facts, lists, tests),
        Condition::Any(parts) => collect_decisive(parts, Truth::Yes, facts, lists, tests),
        Condition::Not(part) => collect_tests(part, facts, lists, tests),
        Condition::Atom(atom) => tests.push(explain_atom(atom, facts, lists)),
    }
}

fn collect_decisive(
    parts: &[Condition],
    deciding: Truth,
    facts: &Facts<'_>,
    lists: &[PolicyList],
    tests: &mut Vec<DecisiveTest>,
) {
    let parts: Vec<(&Condition, Truth)> = parts
        .iter()
        .map(|part| (part, part.evaluate(facts, lists)))
        .collect();
    if let Some((part, _)) = parts.iter().find(|(_, truth)| *truth == deciding) {
        return collect_tests(part, facts, lists, tests);
    }
    let is_unknown = parts.iter().any(|(_, truth)| *truth == Truth::Unknown);
    for (part, truth) in parts {
        if !is_unknown || truth == Truth::Unknown {
            collect_tests(part, facts, lists, tests);
        }
    }
}

fn explain_atom(atom: &Atom, facts: &Facts<'_>, lists: &[PolicyList]) -> DecisiveTest {
    let truth = atom.evaluate(facts, lists);
    let mut observed = observe(atom, facts);
    if let AtomTest::Text(test) = &atom.test {
        if let Some(count) = observed.value().and_then(|text| test.kind.count(text)) {
            observed = ObservedValue::Value(count.to_string());
        } else if truth == Truth::Yes
            && let Some(texts) = field_texts(&atom.field, facts)
        {
            return explain_match(atom, test, texts, lists);
        }
    }
    DecisiveTest {
        field: describe_field(atom),
        observed,
        test: describe_test(atom, lists),
        truth,
    }
}

/// Explains a test that holds: by the text that passes and the first value that it matches.
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
    let matching = test.first_matching_value(&text).map(|at| {
        let kind = with_only_value(&test.kind, at);
        (at, TextTest::new(kind, test.case, test.form))
    });
    let description = match matching {
        None => describe_test(atom, lists),
        Some((at, test)) => {
            let atom = Atom {
                field: atom.field.clone(),
                test: AtomTest::Text(test),
                sources: atom.sources.get(at).cloned().into_iter().collect(),
            };
            describe_test(&atom, lists)
        }
    };
    let observed = ObservedValue::Value(if test.form == TextForm::Normalized {
        normalize_text(&text).into()
    } else {
        text
    });
    DecisiveTest {
        field: describe_field(atom),
        observed,
        test: description,
        truth: Truth::Yes,
    }
}

/// Returns the value of an atom's field.
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

/// Returns all texts of a field; `None` if it is unknown.
fn field_texts(field: &Field, facts: &Facts<'_>) -> Option<Vec<String>> {
    let mut all = Vec::new();
    let known = field.any_text_matches(facts, |text| {
        all.push(text.to_owned());
        false
    });
    (known != Fact::Unknown).then_some(all)
}

/// Returns the test with only one of its values.
fn with_only_value(kind: &TextKind, at: usize) -> TextKind {
    match kind {
        TextKind::Literal(kind, all) => {
            TextKind::Literal(*kind, all.get(at).cloned().into_iter().collect())
        }
        TextKind::Regex(all) => TextKind::Regex(all.get(at).cloned().into_iter().collect()),
        TextKind::Count(..) => kind.clone(),
    }
}

//! Grounds: on which tests the value of a condition rests, each with what it looked at.
//!
//! Unlike the rest of an explanation they are found by asking the conditions again, with the same facts: a trail
//! remembers what came out, not why. Facts only ever become known, so the answer is the one that was given.

use std::fmt;

use super::test_words::{TestWords, field_words, of_atom};
use crate::policy::condition::{Atom, Condition, Test, Truth};
use crate::policy::fact::{Fact, Facts};
use crate::policy::field::{Field, ValueType};
use crate::policy::list::List;
use crate::policy::pattern::{Form, TextKind, TextTest};
use crate::vocab::target::normalise_text;

/// One test that had its part in what a condition came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ground {
    /// What was looked at: `path`, `param.sid`, `length of url`.
    pub field: String,
    /// What was there.
    pub seen: Seen,
    /// The test. Of one that holds its operands are the values that fit, of any other all of them.
    pub test: TestWords,
    /// Whether the test holds.
    pub truth: Truth,
}

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It is known; absent text is empty.
    Value(String),
    /// It is known that there is none.
    Absent,
    /// It is not known: a stage that was not run, or what a tunnel hides.
    Unknown,
}

impl Seen {
    /// The value; `None` where there is none, or none is known.
    pub fn value(&self) -> Option<&str> {
        if let Self::Value(value) = self {
            Some(value)
        } else {
            None
        }
    }
}

impl Ground {
    fn is_the_value(&self, value: &str) -> bool {
        self.test.phrase(self.truth) == "is" && self.test.values == [value]
    }
}

impl fmt::Display for Ground {
    /// `path /cgi-bin/x is under /cgi-bin`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.field)?;
        match &self.seen {
            // It would stand there twice.
            Seen::Value(value) if self.is_the_value(value) => {}
            Seen::Value(value) if value.is_empty() => f.write_str("(empty) ")?,
            Seen::Value(value) => write!(f, "{value} ")?,
            Seen::Absent => f.write_str("(absent) ")?,
            Seen::Unknown if self.truth == Truth::Unknown => {
                return write!(f, "is not known: {}", self.test);
            }
            // What a tunnel hides is all the same for this test.
            Seen::Unknown => f.write_str("(any) ")?,
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
    pub fn grounds(&self, facts: &Facts<'_>, lists: &[List]) -> Vec<Ground> {
        let mut grounds = Vec::new();
        collect(self, facts, lists, &mut grounds);
        grounds
    }
}

fn collect(condition: &Condition, facts: &Facts<'_>, lists: &[List], grounds: &mut Vec<Ground>) {
    match condition {
        Condition::Always => {}
        Condition::All(parts) => decisive(parts, Truth::No, facts, lists, grounds),
        Condition::Any(parts) => decisive(parts, Truth::Yes, facts, lists, grounds),
        Condition::Not(part) => collect(part, facts, lists, grounds),
        Condition::Atom(atom) => grounds.push(ground(atom, facts, lists)),
    }
}

fn decisive(
    parts: &[Condition],
    deciding: Truth,
    facts: &Facts<'_>,
    lists: &[List],
    grounds: &mut Vec<Ground>,
) {
    let truth = |part: &Condition| part.evaluate(facts, lists);
    if let Some(part) = parts.iter().find(|part| truth(part) == deciding) {
        return collect(part, facts, lists, grounds);
    }
    let open = parts.iter().any(|part| truth(part) == Truth::Unknown);
    for part in parts
        .iter()
        .filter(|part| !open || truth(part) == Truth::Unknown)
    {
        collect(part, facts, lists, grounds);
    }
}

fn ground(atom: &Atom, facts: &Facts<'_>, lists: &[List]) -> Ground {
    let truth = atom.evaluate(facts, lists);
    let (field, seen) = (field_words(atom), seen(atom, facts));
    let Test::Text(test) = &atom.test else {
        return Ground {
            field,
            seen,
            test: of_atom(atom, lists),
            truth,
        };
    };
    if let Some(count) = seen.value().and_then(|text| test.kind.counted(text)) {
        return Ground {
            field,
            seen: Seen::Value(count.to_string()),
            test: of_atom(atom, lists),
            truth,
        };
    }
    match (truth, texts(&atom.field, facts)) {
        (Truth::Yes, Some(texts)) => fitting(atom, test, texts, lists),
        (_, _) => Ground {
            field,
            seen,
            test: of_atom(atom, lists),
            truth,
        },
    }
}

/// The text that passes, and the first value that it fits.
fn fitting(atom: &Atom, test: &TextTest, texts: Vec<String>, lists: &[List]) -> Ground {
    let text = texts
        .into_iter()
        .find(|text| test.matches(text))
        .unwrap_or_default();
    let alone = |at: usize| Atom {
        field: atom.field.clone(),
        test: Test::Text(TextTest {
            kind: only(&test.kind, at),
            ..test.clone()
        }),
        written: atom.written.get(at).cloned().into_iter().collect(),
    };
    let passes = |atom: &Atom| {
        if let Test::Text(test) = &atom.test {
            test.matches(&text)
        } else {
            false
        }
    };
    let value = (0..values(&test.kind)).map(alone).find(passes);
    let words = value
        .as_ref()
        .map_or_else(|| of_atom(atom, lists), |value| of_atom(value, lists));
    let seen = Seen::Value(if test.form == Form::Normalised {
        normalise_text(&text).into()
    } else {
        text
    });
    Ground {
        field: field_words(atom),
        seen,
        test: words,
        truth: Truth::Yes,
    }
}

/// The value of an atom's field.
fn seen(atom: &Atom, facts: &Facts<'_>) -> Seen {
    fn shown<T: ToString>(fact: Fact<Option<T>>) -> Seen {
        match fact {
            Fact::Known(Some(value)) => Seen::Value(value.to_string()),
            Fact::Known(None) => Seen::Absent,
            Fact::Unknown => Seen::Unknown,
        }
    }
    match atom.field.value_type() {
        ValueType::Text => {
            texts(&atom.field, facts).map_or(Seen::Unknown, |all| Seen::Value(all.join(", ")))
        }
        ValueType::Number => shown(atom.field.number(facts)),
        ValueType::Address => shown(atom.field.address(facts)),
    }
}

/// Every text of a field; `None` if it is not known.
fn texts(field: &Field, facts: &Facts<'_>) -> Option<Vec<String>> {
    let mut all = Vec::new();
    let known = field.any_text(facts, |text| {
        all.push(text.to_owned());
        false
    });
    (known != Fact::Unknown).then_some(all)
}

/// How many values a test on text has, any of which may fit.
fn values(kind: &TextKind) -> usize {
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
fn only(kind: &TextKind, at: usize) -> TextKind {
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

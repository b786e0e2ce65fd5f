//! What follows from one test on a text for another test on the same text.

use std::borrow::Cow;

use crate::policy::field::Field;
use crate::policy::pattern::{Case, Form, Ranges, TextKind, TextTest};

/// Whether every text of a field of URLs passes.
pub(super) fn always_passes(field: &Field, test: &TextTest) -> bool {
    let any = |values: &[Box<str>], text: &str| values.iter().any(|value| **value == *text);
    match &test.kind {
        TextKind::Prefix(values) => any(values, "") || *field == Field::Path && any(values, "/"),
        TextKind::Contains(values) | TextKind::Suffix(values) => any(values, ""),
        // `under: /` is kept without its slash.
        TextKind::Under(values) => *field == Field::Path && any(values, ""),
        TextKind::Exact(_)
        | TextKind::Regex(_)
        | TextKind::Domain(_)
        | TextKind::Ext(_)
        | TextKind::Surt(_)
        | TextKind::Length(_)
        | TextKind::Segments(_)
        | TextKind::Repeats(_)
        | TextKind::Params(_) => false,
    }
}

/// The only texts that pass, if they can be told one by one.
pub(super) fn only_texts<'t>(field: &Field, test: &'t TextTest) -> Option<&'t [Box<str>]> {
    match &test.kind {
        TextKind::Exact(texts) if tells_case(field, test) && test.form == Form::Canonical => {
            Some(texts)
        }
        TextKind::Exact(_)
        | TextKind::Prefix(_)
        | TextKind::Suffix(_)
        | TextKind::Contains(_)
        | TextKind::Regex(_)
        | TextKind::Domain(_)
        | TextKind::Ext(_)
        | TextKind::Under(_)
        | TextKind::Surt(_)
        | TextKind::Length(_)
        | TextKind::Segments(_)
        | TextKind::Repeats(_)
        | TextKind::Params(_) => None,
    }
}

/// Whether a text that passes is written as the test says: fields that never distinguish case hold lower case alone,
/// and so do the values compared with them.
fn tells_case(field: &Field, test: &TextTest) -> bool {
    test.case == Case::Distinguish || field.ignores_case()
}

/// Whether every text of the field that passes `a` passes `b`.
pub(super) fn implies(field: &Field, a: &TextTest, b: &TextTest) -> bool {
    if let Some(texts) = only_texts(field, a) {
        return texts.iter().all(|text| b.matches(text));
    }
    if a.form != b.form {
        return false;
    }
    if let Some((a, b)) = counts(&a.kind, &b.kind) {
        return within(a, b);
    }
    if let (TextKind::Regex(ones), TextKind::Regex(others)) = (&a.kind, &b.kind) {
        let is_there = |one: &str| others.iter().any(|other| other.as_str() == one);
        return a.case == b.case && ones.iter().all(|one| is_there(one.as_str()));
    }
    let (Some((one, values)), Some((other, others))) = (shape(&a.kind), shape(&b.kind)) else {
        return false;
    };
    let folds = !tells_case(field, b) || other == Shape::Ext;
    if !folds && !tells_case(field, a) {
        return false;
    }
    values.iter().all(|p| {
        others
            .iter()
            .any(|q| one_implies(one, &folded(p, folds), other, &folded(q, folds)))
    })
}

/// Whether no text of the field passes both.
pub(super) fn excludes(field: &Field, a: &TextTest, b: &TextTest) -> bool {
    if let Some(texts) = only_texts(field, a) {
        return !texts.iter().any(|text| b.matches(text));
    }
    if let Some(texts) = only_texts(field, b) {
        return !texts.iter().any(|text| a.matches(text));
    }
    if a.form != b.form {
        return false;
    }
    if let Some((a, b)) = counts(&a.kind, &b.kind) {
        return apart(a, b);
    }
    let (Some((one, values)), Some((other, others))) = (shape(&a.kind), shape(&b.kind)) else {
        return false;
    };
    // Texts that are different in lower case are different.
    let apart = |p: &str, q: &str| one_excludes(one, p, other, q) || one_excludes(other, q, one, p);
    values.iter().all(|p| {
        others
            .iter()
            .all(|q| apart(&folded(p, true), &folded(q, true)))
    })
}

/// Whether every number of some ranges is in others.
pub(super) fn within(a: &Ranges, b: &Ranges) -> bool {
    a.0.iter()
        .all(|(from, to)| b.0.iter().any(|(least, most)| least <= from && to <= most))
}

/// Whether no number is in both.
pub(super) fn apart(a: &Ranges, b: &Ranges) -> bool {
    !a.0.iter()
        .any(|(from, to)| b.0.iter().any(|(least, most)| least <= to && from <= most))
}

/// The ranges of two tests that count the same.
fn counts<'t>(a: &'t TextKind, b: &'t TextKind) -> Option<(&'t Ranges, &'t Ranges)> {
    match (a, b) {
        (TextKind::Length(a), TextKind::Length(b))
        | (TextKind::Segments(a), TextKind::Segments(b))
        | (TextKind::Repeats(a), TextKind::Repeats(b))
        | (TextKind::Params(a), TextKind::Params(b)) => Some((a, b)),
        _ => None,
    }
}

/// The kinds of test that compare with a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Exact,
    Prefix,
    Suffix,
    Contains,
    Domain,
    Ext,
    Under,
    Surt,
}

fn shape(kind: &TextKind) -> Option<(Shape, &[Box<str>])> {
    Some(match kind {
        TextKind::Exact(values) => (Shape::Exact, values),
        TextKind::Prefix(values) => (Shape::Prefix, values),
        TextKind::Suffix(values) => (Shape::Suffix, values),
        TextKind::Contains(values) => (Shape::Contains, values),
        TextKind::Domain(values) => (Shape::Domain, values),
        TextKind::Ext(values) => (Shape::Ext, values),
        TextKind::Under(values) => (Shape::Under, values),
        TextKind::Surt(values) => (Shape::Surt, values),
        TextKind::Regex(_)
        | TextKind::Length(_)
        | TextKind::Segments(_)
        | TextKind::Repeats(_)
        | TextKind::Params(_) => return None,
    })
}

fn folded(text: &str, folds: bool) -> Cow<'_, str> {
    if folds {
        text.to_ascii_lowercase().into()
    } else {
        text.into()
    }
}

/// Whether `text` is `parent` or goes on with `between` before or behind it.
fn goes_below(text: &str, parent: &str) -> bool {
    text.strip_prefix(parent)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether `text` is `end`, or ends in a dot and `end`.
fn ends_in_label(text: &str, end: &str) -> bool {
    text.strip_suffix(end)
        .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// Whether a text ends in a dot and `end`.
fn ends_in_dot_and(text: &str, end: &str) -> bool {
    text.strip_suffix(end)
        .is_some_and(|rest| rest.ends_with('.'))
}

fn one_implies(a: Shape, p: &str, b: Shape, q: &str) -> bool {
    match (a, b) {
        (Shape::Exact, Shape::Exact) => p == q,
        (Shape::Exact | Shape::Prefix | Shape::Under, Shape::Prefix) => p.starts_with(q),
        (Shape::Exact | Shape::Under, Shape::Under) => goes_below(p, q),
        (Shape::Prefix, Shape::Under) => {
            p.strip_prefix(q).is_some_and(|rest| rest.starts_with('/'))
        }
        (Shape::Exact | Shape::Suffix | Shape::Domain, Shape::Suffix) => p.ends_with(q),
        (Shape::Exact | Shape::Suffix, Shape::Ext) => ends_in_dot_and(p, q),
        (Shape::Ext, Shape::Ext) | (Shape::Domain, Shape::Domain) => ends_in_label(p, q),
        (Shape::Suffix, Shape::Domain) => ends_in_dot_and(p, q),
        (Shape::Surt, Shape::Surt) => p.starts_with(q),
        (
            Shape::Exact
            | Shape::Prefix
            | Shape::Suffix
            | Shape::Contains
            | Shape::Domain
            | Shape::Under,
            Shape::Contains,
        ) => p.contains(q),
        _ => false,
    }
}

/// As far as it can be told from the first test; the other way round is asked as well.
fn one_excludes(a: Shape, p: &str, b: Shape, q: &str) -> bool {
    match (a, b) {
        // What passes must be this text.
        (
            Shape::Exact,
            Shape::Exact
            | Shape::Prefix
            | Shape::Suffix
            | Shape::Contains
            | Shape::Under
            | Shape::Ext,
        ) => !one_implies(a, p, b, q),
        (Shape::Prefix, Shape::Prefix) | (Shape::Surt, Shape::Surt) => {
            !p.starts_with(q) && !q.starts_with(p)
        }
        (Shape::Prefix, Shape::Under) => !q.starts_with(p) && !goes_below(p, q),
        (Shape::Under, Shape::Under) => !goes_below(p, q) && !goes_below(q, p),
        (Shape::Suffix, Shape::Suffix) => !p.ends_with(q) && !q.ends_with(p),
        (Shape::Ext, Shape::Ext) | (Shape::Domain, Shape::Domain) => {
            !ends_in_label(p, q) && !ends_in_label(q, p)
        }
        (Shape::Suffix, Shape::Ext) => !ends_in_dot_and(p, q) && !format!(".{q}").ends_with(p),
        _ => false,
    }
}

//! Implications between two tests of the same text.

use std::borrow::Cow;

use crate::policy::field::Field;
use crate::policy::pattern::{CaseSensitivity, Ranges, TextForm, TextKind, TextTest};

/// Returns `true` if every text of a URL field passes the test.
pub(super) fn always_passes(field: &Field, test: &TextTest) -> bool {
    match &test.kind {
        TextKind::Prefix(values) => {
            contains(values, "") || *field == Field::Path && contains(values, "/")
        }
        TextKind::Contains(values) | TextKind::Suffix(values) => contains(values, ""),
        // `under: /` is stored without its slash.
        TextKind::Under(values) => *field == Field::Path && contains(values, ""),
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

fn contains(values: &[Box<str>], text: &str) -> bool {
    values.iter().any(|value| **value == *text)
}

/// Returns the only texts that pass a test, if they can be enumerated.
pub(super) fn only_texts<'t>(field: &Field, test: &'t TextTest) -> Option<&'t [Box<str>]> {
    match &test.kind {
        TextKind::Exact(texts)
            if compares_verbatim(field, test) && test.form == TextForm::Canonical =>
        {
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

/// Returns `true` if a passing text is spelled as in the test. Fields that ignore case contain
/// lower case only, as do the values compared with them.
fn compares_verbatim(field: &Field, test: &TextTest) -> bool {
    test.case == CaseSensitivity::Sensitive || field.ignores_case()
}

/// Returns `true` if every text of the field that passes `a` passes `b`.
pub(super) fn implies(field: &Field, a: &TextTest, b: &TextTest) -> bool {
    if let Some(texts) = only_texts(field, a) {
        return texts.iter().all(|text| b.matches(text));
    }
    if a.form != b.form {
        return false;
    }
    if let Some((a, b)) = count_ranges(&a.kind, &b.kind) {
        return ranges_within(a, b);
    }
    if let (TextKind::Regex(ones), TextKind::Regex(others)) = (&a.kind, &b.kind) {
        return a.case == b.case
            && ones
                .iter()
                .all(|one| others.iter().any(|other| other.as_str() == one.as_str()));
    }
    let (Some((one, values)), Some((other, others))) = (comparison(&a.kind), comparison(&b.kind))
    else {
        return false;
    };
    let folds = !compares_verbatim(field, b) || other == ComparisonKind::Ext;
    if !folds && !compares_verbatim(field, a) {
        return false;
    }
    values.iter().all(|p| {
        others
            .iter()
            .any(|q| value_implies(one, &fold_case(p, folds), other, &fold_case(q, folds)))
    })
}

/// Returns `true` if no text of the field passes both tests.
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
    if let Some((a, b)) = count_ranges(&a.kind, &b.kind) {
        return ranges_disjoint(a, b);
    }
    let (Some((one, values)), Some((other, others))) = (comparison(&a.kind), comparison(&b.kind))
    else {
        return false;
    };
    // Texts that differ in lower case differ.
    values.iter().all(|p| {
        let p = fold_case(p, true);
        others.iter().all(|q| {
            let q = fold_case(q, true);
            value_excludes(one, &p, other, &q) || value_excludes(other, &q, one, &p)
        })
    })
}

/// Returns `true` if every number in `a` is in `b`.
pub(super) fn ranges_within(a: &Ranges, b: &Ranges) -> bool {
    a.0.iter()
        .all(|(from, to)| b.0.iter().any(|(least, most)| least <= from && to <= most))
}

/// Returns `true` if no number is in both.
pub(super) fn ranges_disjoint(a: &Ranges, b: &Ranges) -> bool {
    !a.0.iter()
        .any(|(from, to)| b.0.iter().any(|(least, most)| least <= to && from <= most))
}

/// Returns the ranges of two tests of the same count.
fn count_ranges<'t>(a: &'t TextKind, b: &'t TextKind) -> Option<(&'t Ranges, &'t Ranges)> {
    match (a, b) {
        (TextKind::Length(a), TextKind::Length(b))
        | (TextKind::Segments(a), TextKind::Segments(b))
        | (TextKind::Repeats(a), TextKind::Repeats(b))
        | (TextKind::Params(a), TextKind::Params(b)) => Some((a, b)),
        _ => None,
    }
}

/// The kinds of tests that compare with a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ComparisonKind {
    Exact,
    Prefix,
    Suffix,
    Contains,
    Domain,
    Ext,
    Under,
    Surt,
}

fn comparison(kind: &TextKind) -> Option<(ComparisonKind, &[Box<str>])> {
    Some(match kind {
        TextKind::Exact(values) => (ComparisonKind::Exact, values),
        TextKind::Prefix(values) => (ComparisonKind::Prefix, values),
        TextKind::Suffix(values) => (ComparisonKind::Suffix, values),
        TextKind::Contains(values) => (ComparisonKind::Contains, values),
        TextKind::Domain(values) => (ComparisonKind::Domain, values),
        TextKind::Ext(values) => (ComparisonKind::Ext, values),
        TextKind::Under(values) => (ComparisonKind::Under, values),
        TextKind::Surt(values) => (ComparisonKind::Surt, values),
        TextKind::Regex(_)
        | TextKind::Length(_)
        | TextKind::Segments(_)
        | TextKind::Repeats(_)
        | TextKind::Params(_) => return None,
    })
}

fn fold_case(text: &str, folds: bool) -> Cow<'_, str> {
    if folds {
        text.to_ascii_lowercase().into()
    } else {
        text.into()
    }
}

/// Returns `true` if `text` is `parent` or a path below it.
fn is_path_below(text: &str, parent: &str) -> bool {
    text.strip_prefix(parent)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns `true` if `text` is `end`, or ends in a dot and `end`.
fn ends_in_label(text: &str, end: &str) -> bool {
    text.strip_suffix(end)
        .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// Returns `true` if `text` ends in a dot and `end`.
fn ends_in_dot_and(text: &str, end: &str) -> bool {
    text.strip_suffix(end)
        .is_some_and(|rest| rest.ends_with('.'))
}

fn value_implies(a: ComparisonKind, p: &str, b: ComparisonKind, q: &str) -> bool {
    match (a, b) {
        (ComparisonKind::Exact, ComparisonKind::Exact) => p == q,
        (
            ComparisonKind::Exact | ComparisonKind::Prefix | ComparisonKind::Under,
            ComparisonKind::Prefix,
        ) => p.starts_with(q),
        (ComparisonKind::Exact | ComparisonKind::Under, ComparisonKind::Under) => {
            is_path_below(p, q)
        }
        (ComparisonKind::Prefix, ComparisonKind::Under) => {
            p.strip_prefix(q).is_some_and(|rest| rest.starts_with('/'))
        }
        (
            ComparisonKind::Exact | ComparisonKind::Suffix | ComparisonKind::Domain,
            ComparisonKind::Suffix,
        ) => p.ends_with(q),
        (ComparisonKind::Exact | ComparisonKind::Suffix, ComparisonKind::Ext) => {
            ends_in_dot_and(p, q)
        }
        (ComparisonKind::Ext, ComparisonKind::Ext)
        | (ComparisonKind::Domain, ComparisonKind::Domain) => ends_in_label(p, q),
        (ComparisonKind::Suffix, ComparisonKind::Domain) => ends_in_dot_and(p, q),
        (ComparisonKind::Surt, ComparisonKind::Surt) => p.starts_with(q),
        (
            ComparisonKind::Exact
            | ComparisonKind::Prefix
            | ComparisonKind::Suffix
            | ComparisonKind::Contains
            | ComparisonKind::Domain
            | ComparisonKind::Under,
            ComparisonKind::Contains,
        ) => p.contains(q),
        _ => false,
    }
}

/// Returns `true` if the first test rules out the second. Callers check both directions.
fn value_excludes(a: ComparisonKind, p: &str, b: ComparisonKind, q: &str) -> bool {
    match (a, b) {
        // The only passing text is `p`.
        (
            ComparisonKind::Exact,
            ComparisonKind::Exact
            | ComparisonKind::Prefix
            | ComparisonKind::Suffix
            | ComparisonKind::Contains
            | ComparisonKind::Under
            | ComparisonKind::Ext,
        ) => !value_implies(a, p, b, q),
        (ComparisonKind::Prefix, ComparisonKind::Prefix)
        | (ComparisonKind::Surt, ComparisonKind::Surt) => !p.starts_with(q) && !q.starts_with(p),
        (ComparisonKind::Prefix, ComparisonKind::Under) => {
            !q.starts_with(p) && !is_path_below(p, q)
        }
        (ComparisonKind::Under, ComparisonKind::Under) => {
            !is_path_below(p, q) && !is_path_below(q, p)
        }
        (ComparisonKind::Suffix, ComparisonKind::Suffix) => !p.ends_with(q) && !q.ends_with(p),
        (ComparisonKind::Ext, ComparisonKind::Ext)
        | (ComparisonKind::Domain, ComparisonKind::Domain) => {
            !ends_in_label(p, q) && !ends_in_label(q, p)
        }
        (ComparisonKind::Suffix, ComparisonKind::Ext) => {
            !ends_in_dot_and(p, q) && !format!(".{q}").ends_with(p)
        }
        _ => false,
    }
}

//! Implications between two tests of the same text.

use std::borrow::Cow;

use crate::policy::field::Field;
use crate::policy::pattern::{
    CaseSensitivity, LiteralTestKind as Kind, Ranges, TextForm, TextKind, TextTest,
};

/// Returns `true` if every text of a URL field passes the test.
pub(super) fn always_passes(field: &Field, test: &TextTest) -> bool {
    let TextKind::Literal(kind, values) = &test.kind else {
        return false;
    };
    match kind {
        Kind::Prefix => contains(values, "") || *field == Field::Path && contains(values, "/"),
        Kind::Contains | Kind::Suffix => contains(values, ""),
        // `under: /` is stored without its slash.
        Kind::Under => *field == Field::Path && contains(values, ""),
        Kind::Exact | Kind::Domain | Kind::Ext | Kind::Surt => false,
    }
}

fn contains(values: &[Box<str>], text: &str) -> bool {
    values.iter().any(|value| **value == *text)
}

/// Returns the only texts that pass a test, if they can be enumerated.
pub(super) fn only_texts<'t>(field: &Field, test: &'t TextTest) -> Option<&'t [Box<str>]> {
    match &test.kind {
        TextKind::Literal(Kind::Exact, texts)
            if compares_verbatim(field, test) && test.form == TextForm::Canonical =>
        {
            Some(texts)
        }
        TextKind::Literal(..) | TextKind::Regex(_) | TextKind::Count(..) => None,
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
    match (&a.kind, &b.kind) {
        (TextKind::Count(one, a), TextKind::Count(other, b)) => one == other && ranges_within(a, b),
        (TextKind::Regex(ones), TextKind::Regex(others)) => {
            a.case == b.case
                && ones
                    .iter()
                    .all(|one| others.iter().any(|other| other.as_str() == one.as_str()))
        }
        (TextKind::Literal(one, values), TextKind::Literal(other, others)) => {
            let folds = !compares_verbatim(field, b) || *other == Kind::Ext;
            (folds || compares_verbatim(field, a))
                && values.iter().all(|p| {
                    let p = fold_case(p, folds);
                    others
                        .iter()
                        .any(|q| value_implies(*one, &p, *other, &fold_case(q, folds)))
                })
        }
        (TextKind::Literal(..) | TextKind::Regex(_) | TextKind::Count(..), _) => false,
    }
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
    match (&a.kind, &b.kind) {
        (TextKind::Count(one, a), TextKind::Count(other, b)) => {
            one == other && ranges_disjoint(a, b)
        }
        (TextKind::Literal(one, values), TextKind::Literal(other, others)) => {
            // Texts that differ in lower case differ.
            values.iter().all(|p| {
                let p = fold_case(p, true);
                others.iter().all(|q| {
                    let q = fold_case(q, true);
                    value_excludes(*one, &p, *other, &q) || value_excludes(*other, &q, *one, &p)
                })
            })
        }
        (TextKind::Literal(..) | TextKind::Regex(_) | TextKind::Count(..), _) => false,
    }
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

fn value_implies(a: Kind, p: &str, b: Kind, q: &str) -> bool {
    match (a, b) {
        (Kind::Exact, Kind::Exact) => p == q,
        (Kind::Exact | Kind::Prefix | Kind::Under, Kind::Prefix) => p.starts_with(q),
        (Kind::Exact | Kind::Under, Kind::Under) => is_path_below(p, q),
        (Kind::Prefix, Kind::Under) => p.strip_prefix(q).is_some_and(|rest| rest.starts_with('/')),
        (Kind::Exact | Kind::Suffix | Kind::Domain, Kind::Suffix) => p.ends_with(q),
        (Kind::Exact | Kind::Suffix, Kind::Ext) => ends_in_dot_and(p, q),
        (Kind::Ext, Kind::Ext) | (Kind::Domain, Kind::Domain) => ends_in_label(p, q),
        (Kind::Suffix, Kind::Domain) => ends_in_dot_and(p, q),
        (Kind::Surt, Kind::Surt) => p.starts_with(q),
        (
            Kind::Exact | Kind::Prefix | Kind::Suffix | Kind::Contains | Kind::Domain | Kind::Under,
            Kind::Contains,
        ) => p.contains(q),
        _ => false,
    }
}

/// Returns `true` if the first test rules out the second. Callers check both directions.
fn value_excludes(a: Kind, p: &str, b: Kind, q: &str) -> bool {
    match (a, b) {
        // The only passing text is `p`.
        (
            Kind::Exact,
            Kind::Exact | Kind::Prefix | Kind::Suffix | Kind::Contains | Kind::Under | Kind::Ext,
        ) => !value_implies(a, p, b, q),
        (Kind::Prefix, Kind::Prefix) | (Kind::Surt, Kind::Surt) => {
            !p.starts_with(q) && !q.starts_with(p)
        }
        (Kind::Prefix, Kind::Under) => !q.starts_with(p) && !is_path_below(p, q),
        (Kind::Under, Kind::Under) => !is_path_below(p, q) && !is_path_below(q, p),
        (Kind::Suffix, Kind::Suffix) => !p.ends_with(q) && !q.ends_with(p),
        (Kind::Ext, Kind::Ext) | (Kind::Domain, Kind::Domain) => {
            !ends_in_label(p, q) && !ends_in_label(q, p)
        }
        (Kind::Suffix, Kind::Ext) => !ends_in_dot_and(p, q) && !format!(".{q}").ends_with(p),
        _ => false,
    }
}

//! Conditions of rules as conditions of a policy.

use crate::draft::ConditionDraft;
use crate::expression::{Anchoring, Dialect, SourceExpression};
use crate::report::AssumptionEffect;

use crate::systems::urls::{canonical_beginning, check_condition, check_host, url_prefix};

use super::source::{
    CloudViewAtom, CloudViewField, CloudViewKind, CloudViewMatcher, CloudViewNorm,
};

/// Something that an atom means only under an assumption.
pub(super) struct AtomAssumption {
    pub part: crate::report::PartId,
    pub text: String,
    pub effect: AssumptionEffect,
}

/// Translates a condition.
pub(super) fn condition(
    matcher: &CloudViewMatcher,
    assumptions: &mut Vec<AtomAssumption>,
) -> Result<ConditionDraft, String> {
    match matcher {
        CloudViewMatcher::And(parts) => {
            let parts: Result<Vec<_>, _> =
                parts.iter().map(|it| condition(it, assumptions)).collect();
            Ok(ConditionDraft::all(parts?))
        }
        CloudViewMatcher::Or(parts) => {
            let parts: Result<Vec<_>, _> =
                parts.iter().map(|it| condition(it, assumptions)).collect();
            Ok(any(parts?))
        }
        CloudViewMatcher::Not(part) => Ok(condition(part, assumptions)?.negated()),
        CloudViewMatcher::Length { field, min, max } => {
            let bound = |value: &Option<u64>| value.map_or(String::new(), |it| it.to_string());
            let range = format!("[{}:{}]", bound(min), bound(max));
            Ok(ConditionDraft::test(field.as_str(), "length", [range]))
        }
        CloudViewMatcher::Atom(atom) => {
            assumptions.extend(assumption(atom));
            let condition = atom_condition(atom, assumptions)?;
            check_condition(&condition)?;
            Ok(condition)
        }
    }
}

/// Combines alternatives; those that compare the same field in the same way become one test.
fn any(parts: Vec<ConditionDraft>) -> ConditionDraft {
    let mut merged: Vec<ConditionDraft> = Vec::new();
    for part in parts {
        match merged.iter_mut().find(|known| compare_alike(known, &part)) {
            Some(known) => add_values(known, &part),
            None => merged.push(part),
        }
    }
    ConditionDraft::any(merged)
}

fn compare_alike(one: &ConditionDraft, other: &ConditionDraft) -> bool {
    let (ConditionDraft::Test(one), ConditionDraft::Test(other)) = (one, other) else {
        return false;
    };
    one.field == other.field && one.kind == other.kind && one.ignore_case == other.ignore_case
}

fn add_values(known: &mut ConditionDraft, part: &ConditionDraft) {
    if let (ConditionDraft::Test(known), ConditionDraft::Test(part)) = (known, part) {
        known.values.extend(part.values.iter().cloned());
    }
}

fn assumption(atom: &CloudViewAtom) -> Option<AtomAssumption> {
    let (text, effect) = if atom.pattern.has_bare_dots {
        (
            "a bare `.` means a dot, as in the examples of the manual, though values are expressions"
                .to_owned(),
            AssumptionEffect::Either,
        )
    } else if atom.pattern.plain.is_none() {
        (
            format!("the value is the expression `{}`", atom.pattern.expression),
            AssumptionEffect::Either,
        )
    } else if is_rewritten(atom) {
        (
            "URLs are in canonical form: the host in lower case, without a default port".to_owned(),
            AssumptionEffect::Either,
        )
    } else {
        let has_escapes = matches!(
            atom.field,
            CloudViewField::Url | CloudViewField::Path | CloudViewField::Query
        );
        if atom.norm != CloudViewNorm::Norm || !has_escapes {
            return None;
        }
        (
            "URLs do not write plain characters as escapes (`%61` for `a`), which `norm` undoes"
                .to_owned(),
            AssumptionEffect::RefusesMore,
        )
    };
    Some(AtomAssumption {
        part: atom.part,
        text,
        effect,
    })
}

/// Returns `true` if the value is the beginning of a URL that has another form here.
fn is_rewritten(atom: &CloudViewAtom) -> bool {
    let plain = atom.pattern.plain.as_deref().unwrap_or_default();
    atom.field == CloudViewField::Url && canonical_beginning(plain) != plain
}

fn atom_condition(
    atom: &CloudViewAtom,
    assumptions: &mut Vec<AtomAssumption>,
) -> Result<ConditionDraft, String> {
    match &atom.pattern.plain {
        Some(plain) => plain_condition(atom, plain),
        None => expression_condition(atom, &atom.pattern.expression, assumptions),
    }
}

fn compares_without_case(field: CloudViewField) -> bool {
    matches!(field, CloudViewField::Host | CloudViewField::Scheme)
}

fn ignores_case(atom: &CloudViewAtom) -> bool {
    atom.norm != CloudViewNorm::None && !compares_without_case(atom.field)
}

fn plain_condition(atom: &CloudViewAtom, plain: &str) -> Result<ConditionDraft, String> {
    if plain.is_empty() && !matches!(atom.kind, CloudViewKind::Exact | CloudViewKind::Domain) {
        return Ok(ConditionDraft::Always);
    }
    if plain.contains('*') {
        let expression = regex_syntax::escape(plain);
        return expression_condition(atom, &expression, &mut Vec::new());
    }
    let text = match atom.field {
        CloudViewField::Host | CloudViewField::Scheme => plain.to_ascii_lowercase(),
        CloudViewField::Url => canonical_beginning(plain),
        CloudViewField::Path | CloudViewField::Query => plain.to_owned(),
    };
    let field = atom.field.as_str();
    let ignore_case = ignores_case(atom);
    let is_host = atom.kind == CloudViewKind::Domain
        || atom.kind == CloudViewKind::Exact && atom.field == CloudViewField::Host;
    if is_host {
        check_host(&text)?;
    }
    let condition = match atom.kind {
        CloudViewKind::Domain => ConditionDraft::is("domain", [text]),
        CloudViewKind::Exact if ignore_case => ConditionDraft::test(field, "exact", [text]),
        CloudViewKind::Exact if atom.field == CloudViewField::Path => {
            ConditionDraft::test(field, "exact", [text])
        }
        CloudViewKind::Exact => ConditionDraft::is(field, [text]),
        CloudViewKind::Prefix if atom.field == CloudViewField::Url => {
            return Ok(url_prefix(&text, ignore_case));
        }
        CloudViewKind::Prefix => ConditionDraft::test(field, "prefix", [text]),
        CloudViewKind::Suffix => match extension(atom, &text) {
            Some(extension) => return Ok(ConditionDraft::is("ext", [extension])),
            None => ConditionDraft::test(field, "suffix", [text]),
        },
        CloudViewKind::Inside => ConditionDraft::test(field, "contains", [text]),
    };
    Ok(condition.ignoring_case(ignore_case))
}

/// Returns the extension that a suffix of the path means.
fn extension(atom: &CloudViewAtom, text: &str) -> Option<String> {
    let is_extension =
        |it: &&str| !it.is_empty() && it.chars().all(|c| c.is_ascii_alphanumeric() || c == '.');
    let extension = text.strip_prefix('.').filter(is_extension)?;
    let fits = atom.field == CloudViewField::Path && ignores_case(atom);
    fits.then(|| extension.to_ascii_lowercase())
}

fn expression_condition(
    atom: &CloudViewAtom,
    expression: &str,
    assumptions: &mut Vec<AtomAssumption>,
) -> Result<ConditionDraft, String> {
    let group = if expression.contains('|') {
        format!("(?:{expression})")
    } else {
        expression.to_owned()
    };
    let text = match atom.kind {
        CloudViewKind::Exact => format!("^{group}$"),
        CloudViewKind::Prefix => format!("^{group}"),
        CloudViewKind::Suffix => format!("{group}$"),
        CloudViewKind::Inside => expression.to_owned(),
        CloudViewKind::Domain => format!("(?:^|\\.){group}$"),
    };
    let translated = SourceExpression {
        text: &text,
        dialect: Dialect::Java,
        anchoring: Anchoring::Search,
        ignore_case: ignores_case(atom),
    }
    .translate(atom.field.as_str())?;
    if let Some((text, effect)) = translated.assumption {
        assumptions.push(AtomAssumption {
            part: atom.part,
            text,
            effect,
        });
    }
    Ok(translated.condition)
}

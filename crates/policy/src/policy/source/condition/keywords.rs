//! The keywords of conditions: fields, shortcuts and kinds of test.

use crate::policy::field::{Field, ValueType};
use crate::policy::source::tree::{CountTestKind, TextTestKind};
use crate::robots::usage::normalise_purpose;

/// Keywords that combine conditions.
pub(crate) const BOOLEAN: [&str; 4] = ["all", "any", "not", "always"];

/// Shortcuts: a field and a kind of test in one keyword.
pub(crate) static SHORTCUTS: [(&str, Field, TextTestKind); 7] = [
    ("domain", Field::Host, TextTestKind::Domain),
    ("ext", Field::Path, TextTestKind::Ext),
    ("under", Field::Path, TextTestKind::Under),
    ("url_prefix", Field::Url, TextTestKind::Prefix),
    ("in_query", Field::Query, TextTestKind::Contains),
    ("site", Field::Url, TextTestKind::Site),
    ("surt", Field::Url, TextTestKind::Surt),
];

/// Fields with a fixed name.
pub(crate) static FIELDS: [(&str, Field); 24] = [
    ("url", Field::Url),
    ("scheme", Field::Scheme),
    ("host", Field::Host),
    ("port", Field::Port),
    ("authority", Field::Authority),
    ("path", Field::Path),
    ("path_and_query", Field::PathAndQuery),
    ("rel_path", Field::RelPath),
    ("rel_path_and_query", Field::RelPathAndQuery),
    ("query", Field::Query),
    ("authority_path_query", Field::AuthorityPathQuery),
    ("method", Field::Method),
    ("crawler", Field::Crawler),
    ("referer", Field::Referer),
    ("dest", Field::Dest),
    ("depth", Field::Depth),
    ("address", Field::Address),
    ("content_type", Field::ContentType),
    ("status", Field::Status),
    ("size", Field::Size),
    ("title", Field::Title),
    ("body_prefix", Field::BodyPrefix),
    ("meta_robots", Field::MetaRobots),
    ("canonical", Field::Canonical),
];

/// Fields whose keyword includes a name.
pub(crate) const FAMILIES: [&str; 3] = ["param.NAME", "header.NAME", "usage.NAME"];

/// Kinds of test on text.
pub(crate) const TEXT_KINDS: [(&str, TextTestKind); 6] = [
    ("exact", TextTestKind::Exact),
    ("prefix", TextTestKind::Prefix),
    ("suffix", TextTestKind::Suffix),
    ("contains", TextTestKind::Contains),
    ("regex", TextTestKind::Regex),
    ("glob", TextTestKind::Glob),
];

/// Kinds of test that count.
pub(crate) const COUNT_KINDS: [(&str, CountTestKind); 4] = [
    ("length", CountTestKind::Length),
    ("segments", CountTestKind::Segments),
    ("repeats", CountTestKind::Repeats),
    ("params", CountTestKind::Params),
];

/// Returns every keyword that can be a key of a condition.
pub(crate) fn all_keywords() -> impl Iterator<Item = &'static str> {
    let fields = FIELDS.iter().map(|(word, _)| *word);
    let shortcuts = SHORTCUTS.iter().map(|(word, ..)| *word);
    BOOLEAN
        .into_iter()
        .chain(shortcuts)
        .chain(["in"])
        .chain(fields)
        .chain(FAMILIES)
}

/// Returns the field that a keyword names.
pub(crate) fn field_from_word(word: &str) -> Option<Field> {
    if let Some((_, field)) = FIELDS.iter().find(|(name, _)| *name == word) {
        return Some(field.clone());
    }
    let (family, name) = word.split_once('.')?;
    match (family, name) {
        (_, "") => None,
        ("param", name) => Some(Field::Param(name.into())),
        ("header", name) => Some(Field::Header(name.to_ascii_lowercase().into())),
        ("usage", name) => Some(Field::Usage(
            normalise_purpose(name).unwrap_or_else(|| name.into()),
        )),
        _ => None,
    }
}

/// Returns the keyword of a field.
pub(crate) fn word_of_field(field: &Field) -> String {
    if let Field::Param(name) = field {
        return format!("param.{name}");
    }
    if let Field::Header(name) = field {
        return format!("header.{name}");
    }
    if let Field::Usage(name) = field {
        return format!("usage.{name}");
    }
    FIELDS
        .iter()
        .find(|(_, known)| known == field)
        .map_or_else(String::new, |(word, _)| (*word).to_owned())
}

/// Returns the kinds of test that a field accepts, and the modifiers `case` and `norm`.
pub(crate) fn allowed_kinds(field: &Field) -> Vec<&'static str> {
    match field.value_type() {
        ValueType::Number => vec!["exact", "min", "max", "in"],
        ValueType::Address => vec!["cidr", "in"],
        ValueType::Text => {
            let text = TEXT_KINDS.iter().map(|(word, _)| *word);
            let counts = COUNT_KINDS.iter().map(|(word, _)| *word);
            let fitting = counts.filter(|word| *word == "length" || is_url_part(field));
            text.chain(fitting).chain(["in", "case", "norm"]).collect()
        }
    }
}

/// Returns `true` if the field is a part of a URL with a path or a query, so that segments or
/// parameters can be counted.
pub(crate) fn is_url_part(field: &Field) -> bool {
    matches!(
        field,
        Field::Url
            | Field::Path
            | Field::PathAndQuery
            | Field::RelPath
            | Field::RelPathAndQuery
            | Field::Query
            | Field::AuthorityPathQuery
    )
}

/// Returns the kind of test of a value without a kind.
pub(crate) fn default_kind(field: &Field) -> TextTestKind {
    if matches!(field, Field::Path | Field::PathAndQuery) {
        TextTestKind::Prefix
    } else if matches!(field, Field::Title | Field::BodyPrefix) {
        TextTestKind::Contains
    } else {
        TextTestKind::Exact
    }
}

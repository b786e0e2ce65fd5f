//! The keywords of conditions: fields, shortcuts and kinds of test.

use crate::policy::field::{FIXED_FIELDS, Field, ValueType};
use crate::policy::pattern::CountTestKind;
use crate::policy::source::tree::TextTestKind;
use crate::robots::usage::normalize_purpose;

/// Keywords that combine conditions, with their descriptions.
pub(crate) const BOOLEAN: [(&str, &str); 4] = [
    ("all", "Every one of these conditions."),
    ("any", "At least one of these conditions."),
    (
        "not",
        "The opposite of the condition; of a list of values, none of them.",
    ),
    ("always", "Always true."),
];

/// The keyword of list membership, and its description.
pub(crate) const IN: (&str, &str) = (
    "in",
    "Membership in a list; the field follows from its kind.",
);

/// Shortcuts: a field and a kind of test in one keyword, with a description.
pub(crate) static SHORTCUTS: [(&str, Field, TextTestKind, &str); 7] = [
    (
        "domain",
        Field::Host,
        TextTestKind::Domain,
        "The host is this domain or a subdomain of it.",
    ),
    (
        "ext",
        Field::Path,
        TextTestKind::Ext,
        "The path ends in this extension, in any case; the dot is optional.",
    ),
    (
        "under",
        Field::Path,
        TextTestKind::Under,
        "The path is this directory or below it.",
    ),
    (
        "url_prefix",
        Field::Url,
        TextTestKind::Prefix,
        "The URL begins with this.",
    ),
    (
        "in_query",
        Field::Query,
        TextTestKind::Contains,
        "The query contains this.",
    ),
    (
        "site",
        Field::Url,
        TextTestKind::Site,
        "The URL begins with this; without a path, with or without www.",
    ),
    (
        "surt",
        Field::Url,
        TextTestKind::Surt,
        "The SURT form of the URL begins with this: com,example,)/path.",
    ),
];

/// Kinds of test on text, with their descriptions.
pub(crate) const TEXT_KINDS: [(&str, TextTestKind, &str); 6] = [
    ("exact", TextTestKind::Exact, "The whole value."),
    (
        "prefix",
        TextTestKind::Prefix,
        "The beginning of the value.",
    ),
    ("suffix", TextTestKind::Suffix, "The end of the value."),
    ("contains", TextTestKind::Contains, "Any part of the value."),
    (
        "regex",
        TextTestKind::Regex,
        "A regular expression in linear time, not anchored; no look-around, no back-references.",
    ),
    (
        "glob",
        TextTestKind::Glob,
        "A pattern for the whole value: * matches any run of characters, including / and ?; everything else matches itself.",
    ),
];

/// Kinds of test that count, with their descriptions.
pub(crate) const COUNT_KINDS: [(&str, CountTestKind, &str); 4] = [
    ("length", CountTestKind::Length, "The number of characters."),
    (
        "segments",
        CountTestKind::Segments,
        "The number of path segments that are not empty.",
    ),
    (
        "repeats",
        CountTestKind::Repeats,
        "The number of occurrences of the most frequent path segment.",
    ),
    (
        "params",
        CountTestKind::Params,
        "The number of query parameters.",
    ),
];

/// Returns every keyword that can be a key of a condition.
pub(crate) fn all_keywords() -> impl Iterator<Item = &'static str> {
    BOOLEAN
        .iter()
        .map(|(word, _)| *word)
        .chain(SHORTCUTS.iter().map(|(word, ..)| *word))
        .chain([IN.0])
        .chain(FIXED_FIELDS.iter().map(Field::keyword))
        .chain(Field::families().map(|field| field.keyword()))
}

/// Returns the field with this fixed keyword.
pub(crate) fn fixed_field(word: &str) -> Option<&'static Field> {
    FIXED_FIELDS.iter().find(|field| field.keyword() == word)
}

/// Returns the field that a keyword names.
pub(crate) fn field_from_word(word: &str) -> Option<Field> {
    if let Some(field) = fixed_field(word) {
        return Some(field.clone());
    }
    let (family, name) = word.split_once('.')?;
    match (family, name) {
        (_, "") => None,
        ("param", name) => Some(Field::Param(name.into())),
        ("header", name) => Some(Field::Header(name.to_ascii_lowercase().into())),
        ("usage", name) => Some(Field::Usage(
            normalize_purpose(name).unwrap_or_else(|| name.into()),
        )),
        _ => None,
    }
}

/// Returns the kinds of test that a field accepts, and the modifiers `case` and `norm`.
pub(crate) fn allowed_kinds(field: &Field) -> Vec<&'static str> {
    match field.value_type() {
        ValueType::Number => vec!["exact", "min", "max", "in"],
        ValueType::Address => vec!["cidr", "in"],
        ValueType::Text => {
            let text_kinds = TEXT_KINDS.iter().map(|(word, ..)| *word);
            let count_kinds = COUNT_KINDS
                .iter()
                .filter(|(_, kind, _)| counts(field, *kind))
                .map(|(word, ..)| *word);
            text_kinds
                .chain(count_kinds)
                .chain(["in", "case", "norm"])
                .collect()
        }
    }
}

/// Returns `true` if a test of the field can count this.
pub(crate) fn counts(field: &Field, kind: CountTestKind) -> bool {
    kind == CountTestKind::Length || field.has_path_or_query()
}

//! The keywords of conditions: fields, shortcuts and kinds of test.

use crate::policy::field::{Field, ValueType};
use crate::policy::source::tree::{CountTestKind, TextTestKind};
use crate::robots::usage::normalise_purpose;

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

/// Fields with a fixed name, with their descriptions.
pub(crate) static FIELDS: [(&str, Field, &str); 24] = [
    (
        "url",
        Field::Url,
        "The whole URL in canonical form; bare values are exact.",
    ),
    ("scheme", Field::Scheme, "http or https."),
    (
        "host",
        Field::Host,
        "The host; use domain to include subdomains.",
    ),
    (
        "port",
        Field::Port,
        "The port, including the scheme's default.",
    ),
    (
        "authority",
        Field::Authority,
        "The host, with the port unless that is the scheme's default.",
    ),
    ("path", Field::Path, "The path; bare values are prefixes."),
    (
        "path_and_query",
        Field::PathAndQuery,
        "Path and query; bare values are prefixes.",
    ),
    (
        "rel_path",
        Field::RelPath,
        "The path without its leading slash; bare values are exact.",
    ),
    (
        "rel_path_and_query",
        Field::RelPathAndQuery,
        "Path and query without the leading slash; bare values are exact.",
    ),
    (
        "query",
        Field::Query,
        "The query without its question mark; bare values are exact.",
    ),
    (
        "authority_path_query",
        Field::AuthorityPathQuery,
        "The URL without its scheme; bare values are exact.",
    ),
    ("method", Field::Method, "The method."),
    (
        "crawler",
        Field::Crawler,
        "The crawler's name; anonymous for a client without one.",
    ),
    (
        "referer",
        Field::Referer,
        "The Referer; empty if it is missing.",
    ),
    (
        "dest",
        Field::Dest,
        "The purpose of the response: navigation or embed.",
    ),
    (
        "depth",
        Field::Depth,
        "The number of links from a start page, if known.",
    ),
    (
        "address",
        Field::Address,
        "The address that the proxy would connect to: networks.",
    ),
    (
        "content_type",
        Field::ContentType,
        "Type and subtype of the response; image/* is a family. Applies to successful responses with content only.",
    ),
    (
        "status",
        Field::Status,
        "The status of the response: 404, 5xx.",
    ),
    (
        "size",
        Field::Size,
        "The size of the response in bytes: \"[1MiB:]\". Applies to successful responses with content only.",
    ),
    (
        "title",
        Field::Title,
        "The title of the document; bare values are substrings.",
    ),
    (
        "body_prefix",
        Field::BodyPrefix,
        "The first bytes of the document; bare values are substrings.",
    ),
    (
        "meta_robots",
        Field::MetaRobots,
        "The robots directives of the response or the document.",
    ),
    (
        "canonical",
        Field::Canonical,
        "The canonical URL that the response or the document names.",
    ),
];

/// Fields whose keyword includes a name, with their descriptions.
pub(crate) const FAMILIES: [(&str, &str); 3] = [
    (
        "param.NAME",
        "Any occurrence of a query parameter, decoded; empty if it is missing.",
    ),
    (
        "header.NAME",
        "A header field of the response; empty if it is missing.",
    ),
    (
        "usage.NAME",
        "The site's preference for a use such as train-ai: allow, deny, unset.",
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
        .chain(FIELDS.iter().map(|(word, ..)| *word))
        .chain(FAMILIES.iter().map(|(word, _)| *word))
}

/// Returns the description of a field with a fixed name; empty for other keywords.
pub(crate) fn description(word: &str) -> &'static str {
    FIELDS
        .iter()
        .find(|(known, ..)| *known == word)
        .map_or("", |(_, _, description)| description)
}

/// Returns the field that a keyword names.
pub(crate) fn field_from_word(word: &str) -> Option<Field> {
    if let Some((_, field, _)) = FIELDS.iter().find(|(name, ..)| *name == word) {
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
        .find(|(_, known, _)| known == field)
        .map_or_else(String::new, |(word, ..)| (*word).to_owned())
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
    kind == CountTestKind::Length || is_url_part(field)
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

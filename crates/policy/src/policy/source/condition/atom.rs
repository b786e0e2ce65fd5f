//! The reader of tests: `FIELD: VALUE`, `FIELD: { KIND: VALUE }`, and the shortcuts.

use crate::diagnostics::problem::Problem;
use crate::diagnostics::problems::Problems;
use crate::policy::field::{Field, ValueType};
use crate::policy::pattern::{CaseSensitivity, TextForm};
use crate::policy::source::read_text;
use crate::policy::source::tree::{
    Located, LocatedText, SourceAtom, SourceCondition, SourceRange, SourceTest, TextTestKind,
};
use crate::yaml::read::{self, MapReader, unknown_key, wrong_type};
use crate::yaml::{MappingEntry, Node, YamlValue};

use super::{keywords, read_values};

/// Reads a key of a condition other than `all`, `any`, `not` and `always`.
pub(super) fn read_atom(entry: &MappingEntry, problems: &mut Problems) -> Option<SourceCondition> {
    let word = &*entry.key.text;
    if word == keywords::IN.0 {
        let lists = read_texts(&entry.value, problems)?;
        return Some(SourceCondition::Atom(new_atom(
            entry,
            None,
            SourceTest::In(lists),
        )));
    }
    if let Some((_, field, kind, _)) = keywords::SHORTCUTS.iter().find(|(w, ..)| *w == word) {
        let test = SourceTest::Text(*kind, read_texts(&entry.value, problems)?);
        return Some(SourceCondition::Atom(new_atom(
            entry,
            Some(field.clone()),
            test,
        )));
    }
    let Some(field) = keywords::field_from_word(word) else {
        problems.push(unknown_word(entry));
        return None;
    };
    match field.value_type() {
        ValueType::Text => read_text_field(entry, &field, problems),
        ValueType::Number => read_number_field(entry, &field, problems),
        ValueType::Address => read_address_field(entry, &field, problems),
    }
}

fn unknown_word(entry: &MappingEntry) -> Problem {
    let word = &*entry.key.text;
    if keywords::TEXT_KINDS.iter().any(|(kind, ..)| *kind == word) {
        let problem = Problem::error(&entry.key.place, "a kind of test belongs inside a field")
            .with_found(word);
        return problem.with_help(format!("write `path: {{ {word}: … }}`"));
    }
    let allowed: Vec<&str> = keywords::all_keywords().collect();
    Problem {
        message: "unknown field".into(),
        ..unknown_key(&entry.key, &allowed)
    }
}

fn new_atom(entry: &MappingEntry, field: Option<Field>, test: SourceTest) -> SourceAtom {
    SourceAtom {
        place: entry.key.place.clone(),
        word: entry.key.text.clone(),
        field,
        test,
        case: CaseSensitivity::Sensitive,
        form: TextForm::Canonical,
    }
}

/// Combines conditions that must all hold.
fn join_all(mut parts: Vec<SourceCondition>) -> Option<SourceCondition> {
    if parts.len() < 2 {
        parts.pop()
    } else {
        Some(SourceCondition::All(parts))
    }
}

fn read_text_field(
    entry: &MappingEntry,
    field: &Field,
    problems: &mut Problems,
) -> Option<SourceCondition> {
    if let YamlValue::Mapping(kinds) = &entry.value.value {
        return read_text_kinds(entry, field, kinds, problems);
    }
    let values = read_texts(&entry.value, problems)?;
    if *field == Field::ContentType {
        return Some(media_type_condition(entry, field, values));
    }
    let test = SourceTest::Text(field.default_kind(), values);
    Some(SourceCondition::Atom(new_atom(
        entry,
        Some(field.clone()),
        test,
    )))
}

/// Builds the test of media types without a kind: `image/*` matches all types that begin with
/// `image/`.
fn media_type_condition(
    entry: &MappingEntry,
    field: &Field,
    values: Vec<LocatedText>,
) -> SourceCondition {
    let (families, types): (Vec<LocatedText>, Vec<LocatedText>) =
        values.into_iter().partition(|v| v.value.ends_with("/*"));
    let prefixes: Vec<LocatedText> = families
        .into_iter()
        .map(|family| Located {
            value: family.value.trim_end_matches('*').into(),
            ..family
        })
        .collect();
    let mut atoms: Vec<SourceCondition> = [
        (TextTestKind::Exact, types),
        (TextTestKind::Prefix, prefixes),
    ]
    .into_iter()
    .filter(|(_, values)| !values.is_empty())
    .map(|(kind, values)| new_atom(entry, Some(field.clone()), SourceTest::Text(kind, values)))
    .map(SourceCondition::Atom)
    .collect();
    match atoms.pop() {
        Some(only) if atoms.is_empty() => only,
        last => SourceCondition::Any(atoms.into_iter().chain(last).collect()),
    }
}

fn read_text_kinds(
    entry: &MappingEntry,
    field: &Field,
    kinds: &[MappingEntry],
    problems: &mut Problems,
) -> Option<SourceCondition> {
    let before = problems.len();
    let case = find_modifier(kinds, "case").map_or(CaseSensitivity::Sensitive, |node| {
        read_letter_case(node, problems)
    });
    let form =
        find_modifier(kinds, "norm").map_or(TextForm::Canonical, |node| read_form(node, problems));
    let mut parts = Vec::new();
    for kind in kinds
        .iter()
        .filter(|kind| !matches!(&*kind.key.text, "case" | "norm"))
    {
        if let Some(test) = read_text_kind(kind, field, problems) {
            parts.push(SourceCondition::Atom(SourceAtom {
                case,
                form,
                ..new_atom(entry, Some(field.clone()), test)
            }));
        }
    }
    if parts.is_empty() && problems.len() == before {
        let problem = Problem::error(&entry.value.place, "a kind of test is missing")
            .with_found(&*entry.key.text);
        problems.push(Problem {
            suggestion: None,
            ..problem.with_allowed_words(keywords::allowed_kinds(field))
        });
    }
    if problems.len() == before {
        join_all(parts)
    } else {
        None
    }
}

fn find_modifier<'n>(kinds: &'n [MappingEntry], word: &str) -> Option<&'n Node> {
    kinds
        .iter()
        .find(|kind| *kind.key.text == *word)
        .map(|kind| &kind.value)
}

fn read_letter_case(node: &Node, problems: &mut Problems) -> CaseSensitivity {
    let case = read::word(
        node,
        &["ignore"],
        |word| (word == "ignore").then_some(CaseSensitivity::Insensitive),
        problems,
    );
    case.unwrap_or(CaseSensitivity::Sensitive)
}

fn read_form(node: &Node, problems: &mut Problems) -> TextForm {
    match read::boolean(node, problems) {
        Some(true) => TextForm::Normalized,
        Some(false) | None => TextForm::Canonical,
    }
}

fn read_text_kind(
    kind: &MappingEntry,
    field: &Field,
    problems: &mut Problems,
) -> Option<SourceTest> {
    let word = &*kind.key.text;
    if word == "in" {
        return read_texts(&kind.value, problems).map(SourceTest::In);
    }
    if let Some((_, kind_word, _)) = keywords::TEXT_KINDS.iter().find(|(w, ..)| *w == word) {
        return read_texts(&kind.value, problems)
            .map(|values| SourceTest::Text(*kind_word, values));
    }
    let count = keywords::COUNT_KINDS
        .iter()
        .find(|(w, count, _)| *w == word && keywords::counts(field, *count));
    if let Some((_, count, _)) = count {
        return read_ranges(&kind.value, problems).map(|ranges| SourceTest::Count(*count, ranges));
    }
    problems.push(Problem {
        message: "unknown kind of test for this field".into(),
        ..unknown_key(&kind.key, &keywords::allowed_kinds(field))
    });
    None
}

fn read_number_field(
    entry: &MappingEntry,
    field: &Field,
    problems: &mut Problems,
) -> Option<SourceCondition> {
    let test = match entry.value.get("in") {
        Some(list) => {
            let mut map = MapReader::open(&entry.value, "a test", problems)?;
            map.take("in");
            map.finish(problems);
            SourceTest::In(read_texts(list, problems)?)
        }
        None => SourceTest::Number(read_ranges(unwrap_exact(&entry.value), problems)?),
    };
    Some(SourceCondition::Atom(new_atom(
        entry,
        Some(field.clone()),
        test,
    )))
}

/// Unwraps `{exact: 404}`, which means the same as `404`.
fn unwrap_exact(node: &Node) -> &Node {
    let YamlValue::Mapping(entries) = &node.value else {
        return node;
    };
    if entries.len() == 1 {
        node.get("exact").unwrap_or(node)
    } else {
        node
    }
}

fn read_address_field(
    entry: &MappingEntry,
    field: &Field,
    problems: &mut Problems,
) -> Option<SourceCondition> {
    let YamlValue::Mapping(kinds) = &entry.value.value else {
        let networks = SourceTest::Networks(read_texts(&entry.value, problems)?);
        return Some(SourceCondition::Atom(new_atom(
            entry,
            Some(field.clone()),
            networks,
        )));
    };
    let before = problems.len();
    let mut parts = Vec::new();
    for kind in kinds {
        let test = match &*kind.key.text {
            "cidr" => read_texts(&kind.value, problems).map(SourceTest::Networks),
            "in" => read_texts(&kind.value, problems).map(SourceTest::In),
            _ => {
                problems.push(unknown_key(&kind.key, &["cidr", "in"]));
                None
            }
        };
        parts.extend(
            test.map(|test| SourceCondition::Atom(new_atom(entry, Some(field.clone()), test))),
        );
    }
    if kinds.is_empty() {
        problems.push(
            wrong_type(&entry.value, "a kind of test is missing")
                .with_allowed_words(["cidr", "in"]),
        );
    }
    if problems.len() == before {
        join_all(parts)
    } else {
        None
    }
}

/// Reads one text or several; numbers and booleans are taken as spelled.
fn read_texts(node: &Node, problems: &mut Problems) -> Option<Vec<LocatedText>> {
    let nodes = read_values(node, problems)?;
    let read = nodes.iter().map(|node| read_text(node, problems));
    // Collect first, so that every mistake is reported, not only the first.
    read.collect::<Vec<_>>().into_iter().collect()
}

fn read_ranges(node: &Node, problems: &mut Problems) -> Option<Vec<Located<SourceRange>>> {
    let nodes = read_values(node, problems)?;
    let read = nodes.iter().map(|node| {
        let value = read_range(node, problems)?;
        Some(Located {
            place: node.place.clone(),
            value,
        })
    });
    read.collect::<Vec<_>>().into_iter().collect()
}

fn read_range(node: &Node, problems: &mut Problems) -> Option<SourceRange> {
    if let YamlValue::Mapping(_) = node.value {
        let mut map = MapReader::open(node, "a range", problems)?;
        let before = problems.len();
        let min = map.take("min").and_then(|node| read_text(node, problems));
        let max = map.take("max").and_then(|node| read_text(node, problems));
        map.finish(problems);
        if min.is_none() && max.is_none() && problems.len() == before {
            problems.push(Problem::error(&node.place, "a range needs `min` or `max`"));
        }
        return (problems.len() == before).then_some(SourceRange::Between(min, max));
    }
    if let YamlValue::Sequence(_) = node.value {
        let problem = wrong_type(node, "expected a number or a range");
        problems.push(problem.with_help(
            "write a range as quoted text: \"[30:]\", \"[:5]\", or `{ min: 1, max: 5 }`",
        ));
        return None;
    }
    read::spelling(node, problems).map(|text| SourceRange::Literal(text.into()))
}

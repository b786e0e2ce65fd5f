//! Atoms as they are written: `FIELD: VALUE`, `FIELD: { KIND: VALUE }`, and the shortcuts.

use crate::policy::field::{Field, ValueType};
use crate::policy::pattern::{Case, Form};
use crate::policy::source::tree::{
    At, CountWord, SourceAtom, SourceCondition, SourceRange, SourceTest, Text, TextWord,
};
use crate::vocab::problem::Problem;
use crate::vocab::problems::Problems;
use crate::yaml::read::{self, MapReader, unknown_key, wrong_type};
use crate::yaml::{Entry, Node, Value};

use super::{values, words};

/// Reads a key of a condition that is not one of `all`, `any`, `not`, `always`.
pub(super) fn read(entry: &Entry, problems: &mut Problems) -> Option<SourceCondition> {
    let word = &*entry.key.text;
    if word == "in" {
        let lists = texts(&entry.value, problems)?;
        return Some(SourceCondition::Atom(atom(
            entry,
            None,
            SourceTest::In(lists),
        )));
    }
    if let Some((_, field, kind)) = words::SHORTCUTS.iter().find(|(w, ..)| *w == word) {
        let test = SourceTest::Text(*kind, texts(&entry.value, problems)?);
        return Some(SourceCondition::Atom(atom(
            entry,
            Some(field.clone()),
            test,
        )));
    }
    let Some(field) = words::field(word) else {
        problems.push(unknown_word(entry));
        return None;
    };
    match field.value_type() {
        ValueType::Text => text_field(entry, &field, problems),
        ValueType::Number => number_field(entry, &field, problems),
        ValueType::Address => address_field(entry, &field, problems),
    }
}

fn unknown_word(entry: &Entry) -> Problem {
    let word = &*entry.key.text;
    if words::TEXT_KINDS.iter().any(|(kind, _)| *kind == word) {
        let problem =
            Problem::error(&entry.key.place, "a kind of test stands inside a field").found(word);
        return problem.help(format!("write `path: {{ {word}: … }}`"));
    }
    let allowed: Vec<&str> = words::all().collect();
    Problem {
        message: "no such field".into(),
        ..unknown_key(&entry.key, &allowed)
    }
}

fn atom(entry: &Entry, field: Option<Field>, test: SourceTest) -> SourceAtom {
    SourceAtom {
        place: entry.key.place.clone(),
        word: entry.key.text.clone(),
        field,
        test,
        case: Case::Distinguish,
        form: Form::Canonical,
    }
}

/// One condition of several that must all hold.
fn joined(mut parts: Vec<SourceCondition>) -> Option<SourceCondition> {
    if parts.len() < 2 {
        parts.pop()
    } else {
        Some(SourceCondition::All(parts))
    }
}

fn text_field(entry: &Entry, field: &Field, problems: &mut Problems) -> Option<SourceCondition> {
    if let Value::Mapping(kinds) = &entry.value.value {
        return text_kinds(entry, field, kinds, problems);
    }
    let values = texts(&entry.value, problems)?;
    if *field == Field::ContentType {
        return Some(media_types(entry, field, values));
    }
    let test = SourceTest::Text(words::bare_kind(field), values);
    Some(SourceCondition::Atom(atom(
        entry,
        Some(field.clone()),
        test,
    )))
}

/// Bare media types: `image/*` stands for all that begin with `image/`.
fn media_types(entry: &Entry, field: &Field, values: Vec<Text>) -> SourceCondition {
    let (families, types): (Vec<Text>, Vec<Text>) =
        values.into_iter().partition(|v| v.value.ends_with("/*"));
    let prefix = |v: Text| At {
        value: v.value.trim_end_matches('*').into(),
        ..v
    };
    let tests = [
        (TextWord::Exact, types),
        (
            TextWord::Prefix,
            families.into_iter().map(prefix).collect::<Vec<_>>(),
        ),
    ];
    let atoms = tests.into_iter().filter(|(_, values)| !values.is_empty());
    let mut atoms: Vec<SourceCondition> = atoms
        .map(|(kind, values)| atom(entry, Some(field.clone()), SourceTest::Text(kind, values)))
        .map(SourceCondition::Atom)
        .collect();
    match atoms.pop() {
        Some(only) if atoms.is_empty() => only,
        last => SourceCondition::Any(atoms.into_iter().chain(last).collect()),
    }
}

fn text_kinds(
    entry: &Entry,
    field: &Field,
    kinds: &[Entry],
    problems: &mut Problems,
) -> Option<SourceCondition> {
    let before = problems.len();
    let case =
        modifier(kinds, "case").map_or(Case::Distinguish, |node| ignore_case(node, problems));
    let form = modifier(kinds, "norm").map_or(Form::Canonical, |node| normalised(node, problems));
    let mut parts = Vec::new();
    for kind in kinds
        .iter()
        .filter(|kind| !matches!(&*kind.key.text, "case" | "norm"))
    {
        if let Some(test) = text_kind(kind, field, problems) {
            parts.push(SourceCondition::Atom(SourceAtom {
                case,
                form,
                ..atom(entry, Some(field.clone()), test)
            }));
        }
    }
    if parts.is_empty() && problems.len() == before {
        let problem = Problem::error(&entry.value.place, "no kind of test").found(&*entry.key.text);
        problems.push(Problem {
            near: None,
            ..problem.allowed(words::kinds(field))
        });
    }
    if problems.len() == before {
        joined(parts)
    } else {
        None
    }
}

fn modifier<'n>(kinds: &'n [Entry], word: &str) -> Option<&'n Node> {
    kinds
        .iter()
        .find(|kind| *kind.key.text == *word)
        .map(|kind| &kind.value)
}

fn ignore_case(node: &Node, problems: &mut Problems) -> Case {
    let case = read::word(
        node,
        &["ignore"],
        |word| (word == "ignore").then_some(Case::Ignore),
        problems,
    );
    case.unwrap_or(Case::Distinguish)
}

fn normalised(node: &Node, problems: &mut Problems) -> Form {
    match read::boolean(node, problems) {
        Some(true) => Form::Normalised,
        Some(false) | None => Form::Canonical,
    }
}

fn text_kind(kind: &Entry, field: &Field, problems: &mut Problems) -> Option<SourceTest> {
    let word = &*kind.key.text;
    if word == "in" {
        return texts(&kind.value, problems).map(SourceTest::In);
    }
    if let Some((_, kind_word)) = words::TEXT_KINDS.iter().find(|(w, _)| *w == word) {
        return texts(&kind.value, problems).map(|values| SourceTest::Text(*kind_word, values));
    }
    let count = words::COUNT_KINDS.iter().find(|(w, _)| *w == word);
    match count {
        Some((_, count)) if *count == CountWord::Length || words::is_of_url(field) => {
            ranges(&kind.value, problems).map(|ranges| SourceTest::Count(*count, ranges))
        }
        _ => {
            let problem = unknown_key(&kind.key, &words::kinds(field));
            problems.push(Problem {
                message: "no such kind of test for this field".into(),
                ..problem
            });
            None
        }
    }
}

fn number_field(entry: &Entry, field: &Field, problems: &mut Problems) -> Option<SourceCondition> {
    let test = match entry.value.get("in") {
        Some(list) => {
            let mut map = MapReader::open(&entry.value, "a test", problems)?;
            map.take("in");
            map.finish(problems);
            SourceTest::In(texts(list, problems)?)
        }
        None => SourceTest::Number(ranges(exactly(&entry.value), problems)?),
    };
    Some(SourceCondition::Atom(atom(
        entry,
        Some(field.clone()),
        test,
    )))
}

/// `{exact: 404}` says the same as `404`.
fn exactly(node: &Node) -> &Node {
    let Value::Mapping(entries) = &node.value else {
        return node;
    };
    if entries.len() == 1 {
        node.get("exact").unwrap_or(node)
    } else {
        node
    }
}

fn address_field(entry: &Entry, field: &Field, problems: &mut Problems) -> Option<SourceCondition> {
    let field = || Some(field.clone());
    let Value::Mapping(kinds) = &entry.value.value else {
        let networks = SourceTest::Networks(texts(&entry.value, problems)?);
        return Some(SourceCondition::Atom(atom(entry, field(), networks)));
    };
    let before = problems.len();
    let mut parts = Vec::new();
    for kind in kinds {
        let test = match &*kind.key.text {
            "cidr" => texts(&kind.value, problems).map(SourceTest::Networks),
            "in" => texts(&kind.value, problems).map(SourceTest::In),
            _ => {
                problems.push(unknown_key(&kind.key, &["cidr", "in"]));
                None
            }
        };
        parts.extend(test.map(|test| SourceCondition::Atom(atom(entry, field(), test))));
    }
    if kinds.is_empty() {
        problems.push(wrong_type(&entry.value, "no kind of test").allowed(["cidr", "in"]));
    }
    if problems.len() == before {
        joined(parts)
    } else {
        None
    }
}

/// One text or several; numbers and booleans count as they are written.
fn texts(node: &Node, problems: &mut Problems) -> Option<Vec<Text>> {
    let nodes = values(node, problems)?;
    let read = nodes.iter().map(|node| {
        let value = read::spelling(node, problems)?.into();
        Some(At {
            place: node.place.clone(),
            value,
        })
    });
    // Every mistake is reported, not only the first.
    read.collect::<Vec<_>>().into_iter().collect()
}

fn ranges(node: &Node, problems: &mut Problems) -> Option<Vec<At<SourceRange>>> {
    let nodes = values(node, problems)?;
    let read = nodes.iter().map(|node| {
        let value = range(node, problems)?;
        Some(At {
            place: node.place.clone(),
            value,
        })
    });
    read.collect::<Vec<_>>().into_iter().collect()
}

fn range(node: &Node, problems: &mut Problems) -> Option<SourceRange> {
    if let Value::Mapping(_) = node.value {
        let mut map = MapReader::open(node, "a range", problems)?;
        let end = |map: &mut MapReader<'_>, key, problems: &mut Problems| {
            let node = map.take(key)?;
            let value = read::spelling(node, problems)?.into();
            Some(At {
                place: node.place.clone(),
                value,
            })
        };
        let before = problems.len();
        let (min, max) = (
            end(&mut map, "min", problems),
            end(&mut map, "max", problems),
        );
        map.finish(problems);
        if min.is_none() && max.is_none() && problems.len() == before {
            problems.push(Problem::error(
                &node.place,
                "a range without `min` and `max`",
            ));
        }
        return (problems.len() == before).then_some(SourceRange::Between(min, max));
    }
    if let Value::Sequence(_) = node.value {
        let problem = wrong_type(node, "a number or a range is needed here");
        problems.push(
            problem.help("ranges are text in quotes: \"[30:]\", \"[:5]\", or `{ min: 1, max: 5 }`"),
        );
        return None;
    }
    read::spelling(node, problems).map(|text| SourceRange::Written(text.into()))
}

//! The language reference names every word of the language, and every option with its default, its stage, and its support
//! in this version.
//!
//! `UPDATE_EXPECT=1 cargo test --test it reference` rewrites these columns of the table of options.

use std::collections::BTreeMap;
use std::fs;

use crawlgate::policy::cases::FACT_KEYS;
use crawlgate::policy::options::schema::{
    EssentialValues, OPEN_MAPS, OptionDeadline, OptionShape, OptionSpec, OptionSupport, SPECS,
};
use crawlgate::policy::source::MemoryFileSystem;

use super::compiled;

const PATH: &str = "docs/policy/reference.md";
const BEGIN: &str = "<!-- options -->\n";
const END: &str = "<!-- /options -->";

/// Returns the last three columns of the row of an option.
fn columns(spec: &OptionSpec) -> [String; 3] {
    let default = format_default(spec.shape);
    let support = match spec.support {
        OptionSupport::Supported => "yes".to_owned(),
        OptionSupport::IgnoredExcept(counted) => refused("no", counted),
    };
    [default, acts_at(spec.deadline).to_owned(), support]
}

fn acts_at(acts: OptionDeadline) -> &'static str {
    match acts {
        OptionDeadline::Connect => "connect",
        OptionDeadline::Until(stage) => stage.as_str(),
    }
}

/// Describes the values that a policy of the proxy cannot have.
fn refused(otherwise: &str, counted: EssentialValues) -> String {
    match counted {
        EssentialValues::AllButDefault => "refused".to_owned(),
        EssentialValues::Word(word) => format!("{otherwise}; `{word}` refused"),
        EssentialValues::Items => format!("{otherwise}; any item refused"),
    }
}

/// Formats the default of a shape for the table.
fn format_default(shape: OptionShape) -> String {
    let json = shape.default_value().to_json();
    if matches!(shape, OptionShape::Disposition) {
        return "must be given".to_owned();
    }
    match json.as_str() {
        Some(text) => format!("`{text}`"),
        None if json.is_null() => "none".to_owned(),
        None => format!("`{json}`"),
    }
}

/// Joins the values of several options of one row, or returns a single value if all are equal.
fn joined(mut values: Vec<String>) -> String {
    if values.iter().all(|value| *value == values[0]) {
        values.truncate(1);
    }
    values.join(", ")
}

/// Returns a row with the correct last three columns; a row without an option is returned unchanged.
fn expected(row: &str, specs: &mut BTreeMap<&str, &OptionSpec>) -> String {
    let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
    let [paths, values, ..] = cells.as_slice() else {
        return row.to_owned();
    };
    let of_row: Vec<&OptionSpec> = paths
        .split(", ")
        .filter_map(|path| specs.remove(path.trim_matches('`')))
        .collect();
    if of_row.is_empty() {
        return row.to_owned();
    }
    let all: Vec<[String; 3]> = of_row.iter().map(|spec| columns(spec)).collect();
    fn column(all: &[[String; 3]], index: usize) -> String {
        joined(all.iter().map(|columns| columns[index].clone()).collect())
    }
    format!(
        "| {paths} | {values} | {} | {} | {} |",
        column(&all, 0),
        column(&all, 1),
        column(&all, 2)
    )
}

#[test]
fn the_table_of_options_is_the_programs() {
    let text = fs::read_to_string(PATH).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (table, after) = rest.split_once(END).unwrap();
    let mut specs: BTreeMap<&str, &OptionSpec> =
        SPECS.iter().map(|spec| (spec.path, spec)).collect();
    let rows: Vec<String> = table.lines().map(|row| expected(row, &mut specs)).collect();
    assert!(specs.is_empty(), "{PATH} leaves out {:?}", specs.keys());
    for map in OPEN_MAPS {
        let row = rows
            .iter()
            .find(|row| row.starts_with(&format!("| `{}` ", map.path)));
        let acts = acts_at(map.deadline);
        assert!(
            row.is_some_and(|row| row.ends_with(&format!("| none | {acts} | yes |"))),
            "{}",
            map.path
        );
    }
    let expected = rows.join("\n") + "\n";
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(PATH, format!("{before}{BEGIN}{expected}{END}{after}")).unwrap();
        return;
    }
    for (row, expected) in table.lines().zip(expected.lines()) {
        assert_eq!(row, expected, "{PATH}; UPDATE_EXPECT=1 rewrites it");
    }
}

/// Returns the words that an error message lists as allowed in place of `nonsense`.
fn allowed(body: &str) -> Vec<String> {
    let text = format!("policy: 1\nname: t\noptions: {{ disposition: allow }}\n{body}\n");
    let files = MemoryFileSystem::new().with_file("policy.yaml", text);
    let Err(errors) = compiled(&files, "policy.yaml") else {
        panic!("{body} is accepted")
    };
    let (_, rest) = errors
        .split_once("allowed: ")
        .unwrap_or_else(|| panic!("{body}: {errors}"));
    let list = rest.lines().next().unwrap().split("; ").next().unwrap();
    list.split(", ").map(String::from).collect()
}

#[test]
fn every_word_of_the_language_is_in_the_reference() {
    // Another test is rewriting the file.
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        return;
    }
    let text = fs::read_to_string(PATH).unwrap();
    let mut words: Vec<String> = FACT_KEYS.iter().map(|key| (*key).to_owned()).collect();
    for body in [
        "nonsense: 1",
        "on_invalid_rule: nonsense",
        "lists: { a: { kind: nonsense, items: [x] } }",
        "rules: [{ id: a, nonsense: 1, forbid: { under: /a } }]",
        "rules: [{ id: a, forbid: { nonsense: 1 } }]",
        "rules: [{ id: a, forbid: { path: { nonsense: x } } }]",
        "rules: [{ id: a, forbid: { address: { nonsense: x } } }]",
        "rules: [{ id: a, stage: nonsense, forbid: { under: /a } }]",
        "rules: [{ id: a, mode: nonsense, forbid: { under: /a } }]",
        "rules: [{ id: a, when: { under: /a }, then: nonsense }]",
        "rules: [{ id: a, match: nonsense, rules: [] }]",
        "rules: [{ id: a, forbid: { under: /a }, reject: nonsense }]",
        "cases: [{ url: 'http://h/', expect: nonsense }]",
    ] {
        words.extend(allowed(body));
    }
    assert!(words.len() > 90, "{words:?}");
    let missing: Vec<&String> = words
        .iter()
        .filter(|word| !text.contains(&format!("`{word}")))
        .collect();
    assert!(missing.is_empty(), "{PATH} does not name {missing:?}");
}

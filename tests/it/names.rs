//! The rules of CONTRIBUTING.md on names and doc comments, checked over the sources of the workspace.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Names that several modules may use for a type of their own.
const SHARED: [&str; 2] = ["Builder", "Error"];

/// Words that no doc comment begins with: it begins with a noun phrase or a verb in the third person.
const OPENINGS: [&str; 5] = ["What ", "Whether ", "Who ", "How ", "The same "];

#[test]
fn a_type_name_has_one_definition() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in sources() {
        let text = fs::read_to_string(&file).unwrap();
        for (number, line) in (1..).zip(text.lines()) {
            if let Some(name) = defined_type(line) {
                let place = format!("{}:{number}", file.display());
                places.entry(name.to_owned()).or_default().push(place);
            }
        }
    }
    assert!(
        places.len() > 1_000,
        "{} types: is this still reading the sources?",
        places.len()
    );
    places.retain(|name, places| places.len() > 1 && !SHARED.contains(&name.as_str()));
    assert!(places.is_empty(), "defined more than once: {places:#?}");
}

#[test]
fn doc_comments_begin_with_a_noun_or_a_verb() {
    let mut wrong = vec![];
    for file in sources() {
        let text = fs::read_to_string(&file).unwrap();
        let mut in_comment = false;
        for (number, line) in (1..).zip(text.lines()) {
            let doc = doc_text(line);
            if let Some(text) = doc.filter(|_| !in_comment)
                && OPENINGS.iter().any(|opening| text.starts_with(opening))
            {
                wrong.push(format!("{}:{number}: {text}", file.display()));
            }
            in_comment = doc.is_some();
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The type that a line defines; aliases inside of impls are not definitions.
fn defined_type(line: &str) -> Option<&str> {
    let indented = line.starts_with(' ');
    let mut words = line
        .split_whitespace()
        .skip_while(|word| word.starts_with("pub") || word.ends_with(')'));
    let keyword = words.next()?;
    let is_definition = match keyword {
        "struct" | "enum" | "trait" | "union" => true,
        "type" => !indented,
        _ => false,
    };
    let name = words.next().filter(|_| is_definition)?;
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_');
    let name = &name[..end.unwrap_or(name.len())];
    name.starts_with(char::is_uppercase).then_some(name)
}

fn doc_text(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let text = line
        .strip_prefix("///")
        .or_else(|| line.strip_prefix("//!"))?;
    Some(text.trim_start())
}

fn sources() -> Vec<PathBuf> {
    let mut found = vec![];
    for root in ["src", "crates", "tests", "benches"] {
        collect(Path::new(root), &mut found);
    }
    found.sort();
    found
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

//! Case files: tests that are not part of the policy.
//!
//! ```yaml
//! policy: ../policy.yaml    # relative to this file: a policy, or the directory of one
//! cases:
//!   - { url: "http://a.example/cgi-bin/x", expect: reject, rule: no-cgi }
//! ```
//!
//! Only `crawlgate test` runs them; loading a policy runs only the cases in the policy.

use std::sync::Arc;

use crate::diagnostics::problems::Problems;
use crate::policy::cases::{Case, CaseAssertion};
use crate::yaml::read::{self, MapReader};
use crate::yaml::{self, Node, YamlValue};

use super::case::read_cases;
use super::tree::{Located, LocatedText};

/// The content of a case file.
#[derive(Clone, Debug)]
pub struct CaseFile {
    /// The path of its policy, as written.
    pub policy: LocatedText,
    pub cases: Vec<Case>,
    pub assertions: Vec<CaseAssertion>,
}

/// The kind of a YAML file, detected by its top-level keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A policy: `policy: 1`.
    Policy,
    /// A part of a policy that consists of several files in a directory.
    Part,
    /// A case file: `policy: PATH` and `cases`.
    Cases,
    /// Anything else, such as a configuration.
    Other,
}

/// Keys of a part of a policy.
const PART_KEYS: [&str; 5] = ["rules", "lists", "spaces", "options", "cases"];
const CASE_FILE_KEYS: [&str; 2] = ["policy", "cases"];

impl FileKind {
    /// Detects the kind of a text; text that is not YAML is [`Self::Other`].
    pub fn from_text(file: &Arc<str>, text: &str) -> Self {
        yaml::parse(file, text, &mut Problems::new())
            .map_or(Self::Other, |tree| Self::from_tree(&tree))
    }

    fn from_tree(tree: &Node) -> Self {
        let YamlValue::Mapping(entries) = &tree.value else {
            return Self::Other;
        };
        let only_cases = entries
            .iter()
            .all(|entry| CASE_FILE_KEYS.contains(&&*entry.key.text));
        match tree.get("policy").map(|node| &node.value) {
            Some(YamlValue::Mapping(_)) => Self::Other,
            Some(YamlValue::Text(_)) if only_cases => Self::Cases,
            Some(_) => Self::Policy,
            None if PART_KEYS.iter().any(|key| tree.get(key).is_some()) => Self::Part,
            None => Self::Other,
        }
    }
}

/// Reads a case file; `None` if it has errors, which were reported.
pub fn read_case_file(file: &Arc<str>, text: &str, problems: &mut Problems) -> Option<CaseFile> {
    let before = problems.len();
    let tree = yaml::parse(file, text, problems)?;
    let mut map = MapReader::open(&tree, "a case file", problems)?;
    let policy = map.require("policy", problems).and_then(|node| {
        let value = read::text(node, problems)?.into();
        Some(Located {
            place: node.place.clone(),
            value,
        })
    });
    let cases = map.require("cases", problems);
    map.finish(problems);
    let (cases, assertions) = cases
        .map(|node| read_cases(node, problems))
        .unwrap_or_default();
    let policy = policy?;
    (problems.len() == before).then_some(CaseFile {
        policy,
        cases,
        assertions,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_kinds_are_detected_by_their_keys() {
        for (text, kind) in [
            ("policy: 1\nname: a\n", FileKind::Policy),
            ("policy: \"1\"\nname: a\n", FileKind::Policy),
            ("rules: []\n", FileKind::Part),
            ("cases: []\n", FileKind::Part),
            ("policy: ../p.yaml\ncases: []\n", FileKind::Cases),
            ("policy: { path: p.yaml }\n", FileKind::Other),
            ("listen: 127.0.0.1:1\n", FileKind::Other),
            ("- a\n", FileKind::Other),
            ("[", FileKind::Other),
        ] {
            assert_eq!(FileKind::from_text(&"f".into(), text), kind, "{text}");
        }
    }

    #[test]
    fn mistakes_have_their_places() {
        for (text, expected) in [
            ("cases: []\n", "f:1:1: error: `policy` is missing"),
            (
                "policy: p\ncases: [{ url: \"http://a/\", expect: alow }]\n",
                "did you mean `allow`?",
            ),
            (
                "policy: p\nrules: []\ncases: []\n",
                "f:2:1: error: unknown key; found `rules`",
            ),
        ] {
            let mut problems = Problems::new();
            assert!(
                read_case_file(&"f".into(), text, &mut problems).is_none(),
                "{text}"
            );
            let messages: Vec<String> = problems
                .into_vec()
                .iter()
                .map(ToString::to_string)
                .collect();
            assert!(
                messages.iter().any(|line| line.contains(expected)),
                "{messages:?}"
            );
        }
    }
}

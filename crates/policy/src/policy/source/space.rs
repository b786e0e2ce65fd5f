//! The reader of crawl spaces.

use serde_json::{Value as Json, json};

use crate::diagnostics::problem::Problem;
use crate::diagnostics::problems::Problems;
use crate::model::rule_id::Slug;
use crate::policy::list::ListKind;
use crate::yaml::read::{self, MapReader, wrong_type};
use crate::yaml::{MappingEntry, Node};

use super::json_schema::SLUG_PATTERN;
use super::key::{Key, properties};
use super::option::read_options;
use super::policy_reader::PolicyFileReader;
use super::read_text;
use super::rule::read_rules;
use super::tree::{Located, LocatedText, SourceGlobalSpace, SourceList, SourceSpace};

const NAME: Key = Key::schema("name", name_schema, "The space's name.");
const CRAWLERS: Key = Key::definition(
    "crawlers",
    "texts",
    "The crawlers in it; a space without this key is for all other crawlers.",
);
const SEEDS: Key = Key::schema(
    "seeds",
    seeds_schema,
    "A file with the URLs that these crawlers start from, one per line, relative to the policy; # begins a comment.",
);
const OPTIONS: Key = Key::definition(
    "options",
    "options",
    "Options of these crawlers, before their rules.",
);
const RULES: Key = Key::definition(
    "rules",
    "rules",
    "Rules of these crawlers, after those of the document.",
);

/// Returns the JSON Schema of a space.
pub(super) fn json_schema() -> Json {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": [NAME.name],
        "properties": properties(&[NAME, CRAWLERS, SEEDS, OPTIONS, RULES]),
    })
}

fn name_schema() -> Json {
    json!({ "type": ["string", "number"], "pattern": SLUG_PATTERN })
}

fn seeds_schema() -> Json {
    json!({ "type": "string" })
}

/// Reads a list of spaces; `first` is the number of the first.
pub(super) fn read_spaces(
    node: &Node,
    first: usize,
    reader: &mut PolicyFileReader<'_>,
    problems: &mut Problems,
) -> Vec<SourceSpace> {
    let items = read::items(node, "`spaces`", problems);
    items
        .iter()
        .zip(first..)
        .filter_map(|(item, number)| read_space(item, number, reader, problems))
        .collect()
}

fn read_space(
    node: &Node,
    number: usize,
    reader: &mut PolicyFileReader<'_>,
    problems: &mut Problems,
) -> Option<SourceSpace> {
    let mut map = MapReader::open(node, "a space", problems)?;
    let named = map.require(NAME.name, problems);
    let name = named
        .and_then(|node| read_name(node, problems))
        .or_else(|| {
            // Checks continue with the number as name, so that one run reports all errors.
            let value = Slug::new(&number.to_string())?;
            Some(Located {
                place: node.place.clone(),
                value,
            })
        })?;
    let crawlers = map
        .take(CRAWLERS.name)
        .map(|node| read_crawlers(node, problems))
        .unwrap_or_default();
    let seeds = map
        .take(SEEDS.name)
        .and_then(|node| read_seeds(node, reader, problems));
    let options = map
        .take(OPTIONS.name)
        .map(|node| read_options(node, problems))
        .unwrap_or_default();
    let prefix = format!("spaces.{}.rules", name.value);
    let rules = map
        .take(RULES.name)
        .map(|node| read_rules(node, &prefix, 1, problems))
        .unwrap_or_default();
    map.finish(problems);
    Some(SourceSpace {
        name,
        crawlers,
        seeds,
        options,
        rules,
    })
}

fn read_seeds(
    node: &Node,
    reader: &mut PolicyFileReader<'_>,
    problems: &mut Problems,
) -> Option<SourceList> {
    Some(SourceList {
        name: Located {
            place: node.place.clone(),
            value: SEEDS.name.into(),
        },
        kind: Some(ListKind::Urls),
        items: reader.read_list_file(node, problems)?,
    })
}

fn read_name(node: &Node, problems: &mut Problems) -> Option<Located<Slug>> {
    let text = read::spelling(node, problems)?;
    let name = Slug::new(text);
    if name.is_none() {
        let problem = wrong_type(node, "not a valid space name");
        problems.push(problem.with_help(
            "use lower-case letters, digits and `-`, at most 64, not starting with `-`",
        ));
    }
    name.map(|value| Located {
        place: node.place.clone(),
        value,
    })
}

fn read_crawlers(node: &Node, problems: &mut Problems) -> Vec<LocatedText> {
    read::one_or_many(node)
        .iter()
        .filter_map(|node| read_text(node, problems))
        .collect()
}

/// Reads `global_space`: a mapping with rules, null, or `union`.
pub(super) fn read_global_space(
    entry: &MappingEntry,
    problems: &mut Problems,
) -> Located<SourceGlobalSpace> {
    let value =
        read_global_value(&entry.value, problems).unwrap_or(SourceGlobalSpace::Rules(Vec::new()));
    Located {
        place: entry.key.place.clone(),
        value,
    }
}

fn read_global_value(node: &Node, problems: &mut Problems) -> Option<SourceGlobalSpace> {
    if node.is_null() {
        return None;
    }
    if let Some(word) = node.spelling() {
        let is_union = word == "union";
        if !is_union {
            let problem = Problem::error(&node.place, "expected `union` or a mapping with `rules`");
            problems.push(problem.with_found(word).with_suggestion_from(["union"]));
        }
        return is_union.then_some(SourceGlobalSpace::Union);
    }
    let mut map = MapReader::open(node, "the global space", problems)?;
    let rules = map
        .take("rules")
        .map(|node| read_rules(node, "global_space.rules", 1, problems));
    map.finish(problems);
    rules.map(SourceGlobalSpace::Rules)
}

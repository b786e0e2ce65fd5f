//! Crawl spaces as they are written.

use crate::vocab::problem::Problem;
use crate::vocab::problems::Problems;
use crate::vocab::rule_id::Slug;
use crate::yaml::read::{self, MapReader, wrong_type};
use crate::yaml::{Entry, Node};

use super::option::read_options;
use super::rule::read_rules;
use super::tree::{At, SourceGlobal, SourceSpace, Text};

/// Reads a list of spaces; `first` is the number of the first.
pub(super) fn read_spaces(node: &Node, first: usize, problems: &mut Problems) -> Vec<SourceSpace> {
    let items = read::items(node, "`spaces`", problems);
    items
        .iter()
        .zip(first..)
        .filter_map(|(item, number)| space(item, number, problems))
        .collect()
}

fn space(node: &Node, number: usize, problems: &mut Problems) -> Option<SourceSpace> {
    let mut map = MapReader::open(node, "a space", problems)?;
    let named = map.require("name", problems);
    let name = named.and_then(|node| name(node, problems)).or_else(|| {
        // The rest is read under its number, so that all that is wrong is said at once.
        let value = Slug::new(&number.to_string())?;
        Some(At {
            place: node.place.clone(),
            value,
        })
    })?;
    let crawlers = map
        .take("crawlers")
        .map(|node| crawlers(node, problems))
        .unwrap_or_default();
    let options = map
        .take("options")
        .map(|node| read_options(node, problems))
        .unwrap_or_default();
    let prefix = format!("spaces.{}.rules", name.value);
    let rules = map
        .take("rules")
        .map(|node| read_rules(node, &prefix, 1, problems))
        .unwrap_or_default();
    map.finish(problems);
    Some(SourceSpace {
        name,
        crawlers,
        options,
        rules,
    })
}

fn name(node: &Node, problems: &mut Problems) -> Option<At<Slug>> {
    let text = read::spelling(node, problems)?;
    let name = Slug::new(text);
    if name.is_none() {
        let problem = wrong_type(node, "not a name for a space");
        problems
            .push(problem.help("lower-case letters, digits and `-`, at most 64, not `-` first"));
    }
    name.map(|value| At {
        place: node.place.clone(),
        value,
    })
}

fn crawlers(node: &Node, problems: &mut Problems) -> Vec<Text> {
    let name = |node: &Node, problems: &mut Problems| {
        let value = read::spelling(node, problems)?.into();
        Some(At {
            place: node.place.clone(),
            value,
        })
    };
    read::one_or_many(node)
        .iter()
        .filter_map(|node| name(node, problems))
        .collect()
}

/// Reads `global_space`: its rules, nothing, or `union`.
pub(super) fn read_global(entry: &Entry, problems: &mut Problems) -> At<SourceGlobal> {
    let value = global(&entry.value, problems).unwrap_or(SourceGlobal::Rules(Vec::new()));
    At {
        place: entry.key.place.clone(),
        value,
    }
}

fn global(node: &Node, problems: &mut Problems) -> Option<SourceGlobal> {
    if node.is_null() {
        return None;
    }
    if let Some(word) = node.spelling() {
        let is_union = word == "union";
        if !is_union {
            let problem = Problem::error(&node.place, "neither `union` nor a mapping with `rules`");
            problems.push(problem.found(word).near(["union"]));
        }
        return is_union.then_some(SourceGlobal::Union);
    }
    let mut map = MapReader::open(node, "the global space", problems)?;
    let rules = map
        .take("rules")
        .map(|node| read_rules(node, "global_space.rules", 1, problems));
    map.finish(problems);
    rules.map(SourceGlobal::Rules)
}

//! Variants of a policy's text for the laws. Spaces are not changed.

use std::collections::BTreeMap;

use fastrand::Rng;
use serde_json::{Map, Value as Json, json};

use crate::model::with_lists;

fn list(owner: &Json) -> &[Json] {
    owner["rules"].as_array().map_or(&[], Vec::as_slice)
}

fn list_mut(owner: &mut Json) -> Option<&mut Vec<Json>> {
    owner.get_mut("rules")?.as_array_mut()
}

fn is_first(owner: &Json) -> bool {
    owner.get("match").is_some()
}

/// Returns the positions of a rule and of the groups around it, each in its list.
fn path_to(owner: &Json, id: &str) -> Option<Vec<usize>> {
    list(owner).iter().enumerate().find_map(|(at, rule)| {
        if rule["id"] == id {
            return Some(vec![at]);
        }
        path_to(rule, id).map(|inner| [vec![at], inner].concat())
    })
}

fn at<'j>(document: &'j Json, path: &[usize]) -> &'j Json {
    path.iter()
        .fold(document, |owner, place| &owner["rules"][*place])
}

fn at_mut<'j>(document: &'j mut Json, path: &[usize]) -> &'j mut Json {
    path.iter()
        .fold(document, |owner, place| &mut owner["rules"][*place])
}

/// Returns `true` if a rule is in the document's list, not in a space.
pub(super) fn contains(document: &Json, id: &str) -> bool {
    path_to(document, id).is_some()
}

/// Inserts rules directly after a rule: in its own list, or after the `match: first` group around
/// it, with the lists that they use.
pub(super) fn insert_after(document: &Json, id: &str, rules: &[Json]) -> Json {
    let path = path_to(document, id).unwrap();
    let mut longer = document.clone();
    let depth = (0..path.len())
        .rev()
        .find(|depth| !is_first(at(document, &path[..*depth])))
        .unwrap();
    let place = path[depth] + 1;
    list_mut(at_mut(&mut longer, &path[..depth]))
        .unwrap()
        .splice(place..place, rules.iter().cloned());
    with_lists(longer)
}

/// Returns a policy with one rule alone, in the groups around it, at the document stage.
pub(super) fn alone_at_document_stage(document: &Json, id: &str) -> Json {
    let path = path_to(document, id).unwrap();
    let mut rule = at(document, &path).clone();
    rule["stage"] = json!("document");
    for depth in (1..path.len()).rev() {
        let around = at(document, &path[..depth]);
        let mut group = json!({ "id": around["id"], "rules": [rule] });
        for key in ["when", "unless", "stage"] {
            if let Some(value) = around.get(key) {
                group[key] = value.clone();
            }
        }
        rule = group;
    }
    json!({ "policy": 1, "name": "late", "options": { "disposition": "allow" }, "lists": document["lists"], "rules": [rule] })
}

/// Removes the rules in which a key has a value.
pub(super) fn without(document: &Json, key: &str, value: &Json) -> Json {
    let mut shorter = document.clone();
    drop_rules(&mut shorter, key, value);
    shorter
}

fn drop_rules(owner: &mut Json, key: &str, value: &Json) {
    let Some(rules) = list_mut(owner) else { return };
    rules.retain(|rule| rule.get(key) != Some(value));
    rules
        .iter_mut()
        .for_each(|rule| drop_rules(rule, key, value));
}

/// Removes a key from all rules.
pub(super) fn without_key(document: &Json, key: &str) -> Json {
    let mut changed = document.clone();
    each_rule(&mut changed, &mut |rule| {
        rule.as_object_mut().unwrap().remove(key);
    });
    changed
}

fn each_rule(owner: &mut Json, visit: &mut dyn FnMut(&mut Json)) {
    for rule in list_mut(owner).into_iter().flatten() {
        each_rule(rule, visit);
        visit(rule);
    }
}

/// Reverses the outermost rules.
pub(super) fn reversed(document: &Json) -> Json {
    let mut reversed = document.clone();
    list_mut(&mut reversed).unwrap().reverse();
    reversed
}

/// Swaps two adjacent rules: two filters, or a filter and a group that only sets options. Returns
/// the document with the ids of the two rules; `None` if there is no such pair.
pub(super) fn swapped(document: &Json, random: &mut Rng) -> Option<(Json, [String; 2])> {
    let mut places = Vec::new();
    pairs(document, &mut Vec::new(), &mut places);
    let (path, place) = random.choice(&places)?.clone();
    let mut swapped = document.clone();
    let rules = list_mut(at_mut(&mut swapped, &path))?;
    rules.swap(place, place + 1);
    let pair = [place, place + 1].map(|at| rules[at]["id"].as_str().unwrap().to_owned());
    Some((swapped, pair))
}

fn pairs(owner: &Json, path: &mut Vec<usize>, places: &mut Vec<(Vec<usize>, usize)>) {
    if !is_first(owner) {
        let found = list(owner)
            .windows(2)
            .enumerate()
            .filter(|(_, pair)| may_swap(&pair[0], &pair[1]));
        places.extend(found.map(|(place, _)| (path.clone(), place)));
    }
    for (place, rule) in list(owner).iter().enumerate() {
        path.push(place);
        pairs(rule, path, places);
        path.pop();
    }
}

fn may_swap(one: &Json, other: &Json) -> bool {
    is_filter(one) && is_filter(other)
        || is_filter(one) && only_sets_options(other)
        || only_sets_options(one) && is_filter(other)
}

fn is_filter(rule: &Json) -> bool {
    rule.get("forbid").or(rule.get("require")).is_some()
}

fn only_sets_options(rule: &Json) -> bool {
    !is_filter(rule) && list(rule).is_empty() && rule.get("stop") != Some(&json!(true))
}

/// A document with its rules in the same order but in a different style: ids in reverse
/// alphabetical order, keys in random order, descriptions, block style, and several files.
pub(super) struct StyleVariant {
    pub(super) files: Vec<(String, String)>,
    old: BTreeMap<String, String>,
}

impl StyleVariant {
    pub(super) fn new(document: &Json, random: &mut Rng) -> Self {
        let mut document = document.clone();
        let mut old = BTreeMap::new();
        each_rule(&mut document, &mut |rule| {
            let id = rule["id"].as_str().unwrap().to_owned();
            let number: u32 = id[1..].parse().unwrap();
            let new = format!("n{:07}", 9_999_999 - number);
            rule["id"] = json!(new);
            rule["about"] = json!(format!("was {id}: \"quoted\" # not a comment"));
            old.insert(new, id);
        });
        let rules = document["rules"].take();
        let lists = document["lists"].take();
        let mut rules = rules.as_array().unwrap().clone();
        rules.iter_mut().for_each(|rule| shuffle(rule, random));
        let head = json!({ "name": "other", "options": document["options"], "policy": 1 });
        let mut files = vec![("p/50.yaml".to_owned(), block(&head))];
        let mut number = 10;
        while !rules.is_empty() {
            let count = random.usize(1..=rules.len());
            let part: Vec<Json> = rules.drain(..count).collect();
            files.push((format!("p/{number}.yaml"), block(&json!({ "rules": part }))));
            number += 1;
        }
        files.push((
            "p/90.yaml".to_owned(),
            block(&json!({ "lists": lists, "spaces": document["spaces"] })),
        ));
        Self { files, old }
    }

    pub(super) fn old_id(&self, id: &str) -> String {
        self.old.get(id).map_or(id, String::as_str).to_owned()
    }
}

/// Shuffles the keys of all mappings.
fn shuffle(value: &mut Json, random: &mut Rng) {
    match value {
        Json::Object(map) => {
            let mut entries: Vec<(String, Json)> = std::mem::take(map).into_iter().collect();
            random.shuffle(&mut entries);
            *map = entries.into_iter().collect::<Map<_, _>>();
            map.values_mut().for_each(|value| shuffle(value, random));
        }
        Json::Array(items) => items.iter_mut().for_each(|item| shuffle(item, random)),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
    }
}

/// Writes block style with comments.
fn block(value: &Json) -> String {
    let mut text = String::from("# block style\n---\n");
    write_block(value, 0, &mut text);
    text
}

fn write_block(value: &Json, indent: usize, text: &mut String) {
    let margin = " ".repeat(indent);
    match value {
        Json::Object(map) => map
            .iter()
            .for_each(|(key, value)| write_entry(&format!("{margin}{key}:"), value, indent, text)),
        Json::Array(items) => items
            .iter()
            .for_each(|item| write_entry(&format!("{margin}-"), item, indent, text)),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {
            text.push_str(&format!("{margin}{value}\n"))
        }
    }
}

fn write_entry(head: &str, value: &Json, indent: usize, text: &mut String) {
    let nested = value.as_object().is_some_and(|map| !map.is_empty())
        || value.as_array().is_some_and(|a| !a.is_empty());
    text.push_str(head);
    if nested {
        text.push_str("   # a comment\n\n");
        write_block(value, indent + 2, text);
    } else {
        text.push_str(&format!(" {value}\n"));
    }
}

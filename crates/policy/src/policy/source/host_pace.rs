//! The reader of `hosts`: hosts and their pace.

use serde_json::{Value as Json, json};

use crate::diagnostics::problem::Problem;
use crate::diagnostics::problems::Problems;
use crate::policy::options::politeness::{self, pace_keys};
use crate::policy::options::schema;
use crate::yaml::read::{self, unknown_key, wrong_type};
use crate::yaml::{MappingEntry, Node, YamlValue};

use super::key::{Key, properties};
use super::option::json_schema::pace_options;
use super::option::read_option;
use super::read_text;
use super::tree::{LocatedText, SourceHostName, SourceHostPace};

const HOST: Key = Key::definition("host", "texts", "The hosts, without those below them.");
const DOMAIN: Key = Key::definition("domain", "texts", "The hosts, with all hosts below them.");
const IN: Key = Key::definition("in", "texts", "Lists of kind hosts or domains.");

/// Returns the JSON Schema of an entry.
pub(super) fn json_schema() -> Json {
    let mut keys = properties(&[HOST, DOMAIN, IN]);
    keys.extend(pace_options());
    let names = [HOST, DOMAIN, IN].map(|key| json!({ "required": [key.name] }));
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": keys,
        "anyOf": names,
    })
}

/// Reads a list of entries.
pub(super) fn read_host_paces(node: &Node, problems: &mut Problems) -> Vec<SourceHostPace> {
    let YamlValue::Sequence(items) = &node.value else {
        let problem = wrong_type(node, "`hosts` must be a list");
        problems.push(problem.with_help("write `- { host: www.example.com, delay: 5s }`"));
        return Vec::new();
    };
    items
        .iter()
        .map(|item| read_host_pace(item, problems))
        .collect()
}

fn read_host_pace(node: &Node, problems: &mut Problems) -> SourceHostPace {
    let mut entry = SourceHostPace {
        place: node.place.clone(),
        hosts: Vec::new(),
        options: Vec::new(),
    };
    let before = problems.len();
    for key in read::entries(node, "an entry of `hosts`", problems) {
        read_key(key, &mut entry, problems);
    }
    // A value that cannot be read may be the one that is missing.
    if problems.len() > before {
        return entry;
    }
    let missing = if entry.hosts.is_empty() {
        Some((
            "an entry of `hosts` needs `host`, `domain` or `in`",
            "write `- { host: www.example.com, delay: 5s }`",
        ))
    } else if entry.options.is_empty() {
        Some((
            "an entry of `hosts` needs an option, such as `delay`",
            "write `delay: 5s`, `concurrency: 1` or another option of `politeness`",
        ))
    } else {
        None
    };
    if let Some((message, help)) = missing {
        problems.push(Problem::error(&node.place, message).with_help(help));
    }
    entry
}

fn read_key(key: &MappingEntry, entry: &mut SourceHostPace, problems: &mut Problems) {
    let name = &*key.key.text;
    if name == HOST.name {
        read_names(&key.value, SourceHostName::Host, entry, problems);
    } else if name == DOMAIN.name {
        read_names(&key.value, SourceHostName::Domain, entry, problems);
    } else if name == IN.name {
        read_names(&key.value, SourceHostName::List, entry, problems);
    } else if pace_keys().any(|known| known == name) {
        read_option(key, politeness::MAP, &mut entry.options, problems);
    } else {
        problems.push(misplaced_key(key));
    }
}

fn read_names(
    node: &Node,
    make: fn(LocatedText) -> SourceHostName,
    entry: &mut SourceHostPace,
    problems: &mut Problems,
) {
    let names = read::one_or_many(node).iter();
    entry
        .hosts
        .extend(names.filter_map(|node| read_text(node, problems)).map(make));
}

/// Returns the problem of a key that no entry has.
fn misplaced_key(entry: &MappingEntry) -> Problem {
    let name = &*entry.key.text;
    if schema::keys_in(politeness::MAP).contains(&name) {
        let message = format!("`{name}` is not part of the pace of a host");
        return Problem::error(&entry.key.place, message).with_help(format!(
            "set `politeness: {{ {name}: … }}` in `options`, a space or a rule"
        ));
    }
    if name == politeness::MAP {
        let message = "an entry of `hosts` has the options of `politeness` as its own keys";
        return Problem::error(&entry.key.place, message)
            .with_help("write `delay: 5s` instead of `politeness: { delay: 5s }`");
    }
    let allowed: Vec<&str> = [HOST.name, DOMAIN.name, IN.name]
        .into_iter()
        .chain(pace_keys())
        .collect();
    unknown_key(&entry.key, &allowed)
}

//! Commands, settings, options and metrics that the pages name exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crawlgate::metrics::families::ALL;
use crawlgate::policy::options::schema::{OPEN_MAPS, SPECS};
use regex::Regex;
use serde_json::Value;

use crate::support::command::crawlgate;

use super::user_pages;

/// The extensions of files, whose names are no settings.
const EXTENSIONS: [&str; 8] = ["md", "yaml", "json", "jsonl", "txt", "pem", "redb", "rs"];

#[test]
fn every_command_and_flag_exists() {
    let mut help = Help::default();
    let mut wrong = vec![];
    let mut found = 0;
    for page in user_pages() {
        for command in commands(&fs::read_to_string(&page).unwrap()) {
            found += 1;
            if let Some(problem) = help.problem(&command) {
                wrong.push(format!("{}: {command}: {problem}", page.display()));
            }
        }
    }
    assert!(found > 120, "{found} commands");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The help texts of commands, by their words.
#[derive(Default)]
struct Help(BTreeMap<String, Option<String>>);

impl Help {
    fn of(&mut self, command: &str) -> Option<&str> {
        let entry = self.0.entry(command.to_owned()).or_insert_with(|| {
            let output = crawlgate(Path::new("."), format!("help {command}").as_str(), "");
            (output.code == 0).then_some(output.stdout)
        });
        entry.as_deref()
    }

    fn problem(&mut self, command: &str) -> Option<String> {
        let mut words = command.split_whitespace().skip(1);
        let name = words.next().unwrap().to_owned();
        let rest: Vec<&str> = words.collect();
        if name == "help" || name.starts_with('-') {
            return None;
        }
        let Some(help) = self.of(&name) else {
            return Some("no such command".to_owned());
        };
        let mut help = help.to_owned();
        let second = rest.first().copied().unwrap_or_default();
        if help.contains(&format!("\n  {second} ")) && !second.is_empty() {
            help += self.of(&format!("{name} {second}")).unwrap_or_default();
        }
        let flags = rest.iter().filter(|word| word.starts_with("--"));
        let names = flags.filter_map(|word| word.split('=').next());
        let unknown: Vec<&str> = names.filter(|name| !help.contains(*name)).collect();
        (!unknown.is_empty()).then(|| format!("no {}", unknown.join(", ")))
    }
}

/// Returns the calls of `crawlgate` in a page: spans of code, and lines of blocks, that begin with it.
fn commands(text: &str) -> Vec<String> {
    let span = Regex::new(r"`(crawlgate [a-z-][^`]*)`").unwrap();
    let line = Regex::new(r#"(?m)^(?:    |\$ )+(?:eval "\$\()?(crawlgate [a-z-].*)$"#).unwrap();
    let flat = text.replace('\n', " ");
    let spans = span.captures_iter(&flat).map(|found| found[1].to_owned());
    let lines = line.captures_iter(text).map(|found| found[1].to_owned());
    spans
        .chain(lines)
        .map(|command| {
            let end = command.find(['|', '>', '#', ';', ')', '&']);
            command[..end.unwrap_or(command.len())].to_owned()
        })
        .collect()
}

#[test]
fn every_setting_and_option_exists() {
    let schema = fs::read_to_string("config/crawlgate.schema.json").unwrap();
    let schema: Value = serde_json::from_str(&schema).unwrap();
    let options: BTreeSet<&str> = SPECS
        .iter()
        .map(|spec| spec.path)
        .chain(OPEN_MAPS.iter().map(|map| map.path))
        .collect();
    let nested = options.iter().filter_map(|path| path.split_once('.'));
    let mut roots: BTreeSet<&str> = nested.map(|(root, _)| root).collect();
    let sections = schema["properties"].as_object().unwrap().iter();
    roots.extend(
        sections
            .filter(|(_, section)| section.get("properties").is_some())
            .map(|(name, _)| name.as_str()),
    );
    let names = dotted_names(&roots);
    assert!(names.len() > 200, "{} names", names.len());
    let wrong: Vec<String> = names
        .into_iter()
        .filter(|(_, name)| {
            let inside = format!("{name}.");
            let is_option = |path: &&str| *path == name || path.starts_with(&inside);
            !setting_exists(&schema, name) && !options.iter().any(is_option)
        })
        .map(|(page, name)| format!("{}: {name}", page.display()))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns the names in code spans that begin with one of these words and a dot, such as `tls.intercept: false`, each with
/// its page.
fn dotted_names(roots: &BTreeSet<&str>) -> Vec<(PathBuf, String)> {
    let pattern = Regex::new(r"`([a-z_]+)\.([a-z_.]+)(?::[^`]*)?`").unwrap();
    let mut names = vec![];
    for page in user_pages() {
        for found in pattern.captures_iter(&fs::read_to_string(&page).unwrap()) {
            let last = found[2].rsplit('.').next().unwrap();
            if roots.contains(&found[1]) && !EXTENSIONS.contains(&last) {
                names.push((page.clone(), format!("{}.{}", &found[1], &found[2])));
            }
        }
    }
    names
}

/// Returns `true` if the schema describes a setting, or leaves open what is inside one of its parents.
fn setting_exists(schema: &Value, name: &str) -> bool {
    let mut at = schema;
    for key in name.split('.') {
        let forms = at["anyOf"].as_array().cloned().unwrap_or_default();
        let Some(properties) = at.get("properties") else {
            return !forms.is_empty() || at.get("$ref").is_some();
        };
        match properties.get(key) {
            Some(inner) => at = inner,
            None => return false,
        }
    }
    true
}

#[test]
fn every_metric_exists() {
    let pattern = Regex::new(r"\bcrawlgate_[a-z0-9_]+\*?").unwrap();
    let mut wrong = vec![];
    for page in user_pages() {
        for found in pattern.find_iter(&fs::read_to_string(&page).unwrap()) {
            let name = found.as_str();
            let is_known = ALL.iter().any(|family| match name.strip_suffix('*') {
                Some(start) => family.name.starts_with(start),
                None => ["", "_bucket", "_sum", "_count"]
                    .iter()
                    .any(|end| name.strip_suffix(end) == Some(family.name)),
            });
            if !is_known {
                wrong.push(format!("{}: {name}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

//! Lists of expressions: MediaWiki's spam blacklist, and ignore sets of ArchiveBot and grab-site.

use serde_json::Value as Json;

use crate::draft::{ConditionDraft, TestDraft};
use crate::expression::{Anchoring, Dialect, SourceExpression};
use crate::input::{ImportError, ImportInput, Place, SourceText};
use crate::reference::lists::EvaluatedList;
use crate::report::{AssumptionEffect, MissingPart, PartId, PartNeed, PartTarget};

use super::ListImport;

/// An expression of a list.
struct ListExpression {
    part: PartId,
    text: String,
}

impl ListImport {
    /// Adds a blacklist: MediaWiki joins the lines to `https?://+[a-z0-9_\-.]*(LINE|LINE…)`.
    pub(super) fn add_spam_blacklist(&mut self, name: &str, source: &SourceText) {
        let mut expressions = Vec::new();
        for (place, line) in source.lines() {
            let text = line.split('#').next().unwrap_or_default().trim();
            if text.is_empty() || matches!(text, "<pre>" | "</pre>") {
                continue;
            }
            let part = self.report.add(place, line.trim());
            expressions.push(ListExpression {
                part,
                text: format!("https?://+[a-z0-9_\\-.]*(?:{text})"),
            });
        }
        self.add_expressions(name, &expressions, Dialect::Pcre, true);
    }

    /// Adds an ignore set: Python expressions, a line each or as ArchiveBot's JSON.
    pub(super) fn add_ignore_set(
        &mut self,
        name: &str,
        source: &SourceText,
        input: &ImportInput<'_>,
    ) -> Result<(), ImportError> {
        let lines = match source.text.trim_start().starts_with('{') {
            true => {
                let json = read_json(source)?;
                self.add_described_keys(source, &json);
                json_patterns(source, &json)?
            }
            false => source
                .lines()
                .filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'))
                .map(|(place, line)| (place, line.trim().to_owned()))
                .collect(),
        };
        let seeds = seed_hosts(input.seeds.as_deref().unwrap_or_default());
        let mut expressions = Vec::new();
        for (place, line) in lines {
            let part = self.report.add(place, line.clone());
            match replace_variables(&line, &seeds) {
                Some(text) => expressions.push(ListExpression { part, text }),
                None => {
                    let why = "the hosts of the crawl are not known";
                    let instead = Some("give the seeds with --seeds FILE");
                    self.report
                        .not_converted(part, why, MissingPart::LetsThrough, instead);
                    self.add_note(format!("not converted: {why}\n{line}"));
                }
            }
        }
        self.add_expressions(name, &expressions, Dialect::Python, false);
        Ok(())
    }

    /// Lists the keys beside the patterns.
    fn add_described_keys(&mut self, source: &SourceText, json: &Json) {
        let entries = json.as_object().into_iter().flatten();
        for (key, value) in entries.filter(|(key, _)| *key != "patterns") {
            let mark = format!("\"{key}\"");
            let found = source.lines().find(|(_, line)| line.contains(&mark));
            let place = found.map_or_else(|| Place::start(&source.file), |(place, _)| place);
            let part = self.report.add(place, format!("{mark}: {value}"));
            self.report.unrelated(part, "it describes the list");
        }
    }

    fn add_expressions(
        &mut self,
        name: &str,
        expressions: &[ListExpression],
        dialect: Dialect,
        ignore_case: bool,
    ) {
        let id = self.ids.next(name);
        let mut values = Vec::new();
        let mut others = Vec::new();
        let mut kept = Vec::new();
        for expression in expressions {
            let source = SourceExpression {
                text: &expression.text,
                dialect,
                anchoring: Anchoring::Search,
                ignore_case,
            };
            match source.translate("url") {
                Ok(translated) => {
                    match translated.assumption {
                        None => self.report.converted(expression.part, &id, PartNeed::Url),
                        Some((assumption, effect)) => {
                            self.assume(expression.part, &id, assumption, effect)
                        }
                    }
                    match plain_regex(&translated.condition, ignore_case) {
                        Some(value) => values.push(value),
                        None => others.push(translated.condition),
                    }
                    kept.push(expression.text.clone());
                }
                Err(why) => {
                    self.report.not_converted(
                        expression.part,
                        &why,
                        MissingPart::LetsThrough,
                        None,
                    );
                    self.add_note(format!("not converted: {why}\n{}", expression.text));
                }
            }
        }
        if !values.is_empty() {
            let list = self.add_list(name, "regexes", values);
            let plain = if ignore_case {
                ConditionDraft::test("url", "in", [list]).ignoring_case(true)
            } else {
                ConditionDraft::is("in", [list])
            };
            others.insert(0, plain);
        }
        if others.is_empty() {
            return;
        }
        self.sources.push(EvaluatedList::Expressions {
            patterns: kept,
            ignore_case,
        });
        self.add_rule(id, ConditionDraft::any(others), None);
    }

    fn assume(&mut self, part: PartId, id: &str, assumption: String, effect: AssumptionEffect) {
        let target = PartTarget {
            name: id.to_owned(),
            need: PartNeed::Url,
        };
        self.report.assumed(part, target, assumption, effect);
    }
}

fn plain_regex(condition: &ConditionDraft, ignores: bool) -> Option<String> {
    let ConditionDraft::Test(TestDraft {
        kind: Some("regex"),
        values,
        ignore_case,
        ..
    }) = condition
    else {
        return None;
    };
    match values.as_slice() {
        // White space before a `#` begins a comment in a list file.
        [value] if *ignore_case == ignores && !value.contains([' ', '\t', '\n']) => {
            Some(value.clone())
        }
        _ => None,
    }
}

/// Returns the patterns of ArchiveBot's JSON, with the lines on which they are.
fn read_json(source: &SourceText) -> Result<Json, ImportError> {
    serde_json::from_str(&source.text).map_err(|error| {
        let start = Place::start(&source.file);
        ImportError::invalid(&start, format!("not valid JSON: {error}"))
    })
}

fn json_patterns(source: &SourceText, json: &Json) -> Result<Vec<(Place, String)>, ImportError> {
    let start = Place::start(&source.file);
    let patterns = json.get("patterns").and_then(Json::as_array);
    let patterns = patterns.ok_or_else(|| ImportError::invalid(&start, "no list `patterns`"))?;
    let mut lines = source.lines();
    let mut found = Vec::new();
    for pattern in patterns {
        let text = pattern.as_str();
        let text = text.ok_or_else(|| ImportError::invalid(&start, "a pattern is not text"))?;
        let written = pattern.to_string();
        let place = lines
            .find(|(_, line)| line.contains(&written))
            .map(|(place, _)| place);
        found.push((place.unwrap_or_else(|| start.clone()), text.to_owned()));
    }
    Ok(found)
}

fn seed_hosts(seeds: &str) -> Vec<(String, String)> {
    let lines = seeds.lines().map(str::trim);
    let urls = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let hosts = urls.filter_map(|url| {
        let (_, rest) = url.split_once("://")?;
        let host = rest.split(['/', '?', '#']).next()?;
        (!host.is_empty()).then(|| (host.to_ascii_lowercase(), url.to_owned()))
    });
    hosts.collect()
}

/// Replaces `{primary_netloc}` and the like; `None` if there are no seeds.
fn replace_variables(text: &str, seeds: &[(String, String)]) -> Option<String> {
    let names = [
        "{primary_netloc}",
        "{primary_url}",
        "{any_start_netloc}",
        "{any_start_url}",
    ];
    if !names.iter().any(|name| text.contains(name)) {
        return Some(text.to_owned());
    }
    let (host, url) = seeds.first()?;
    let any = |texts: Vec<String>| format!("(?:{})", texts.join("|"));
    let hosts = any(seeds.iter().map(|(host, _)| escape(host)).collect());
    let urls = any(seeds.iter().map(|(_, url)| escape(url)).collect());
    let text = text.replace("{primary_netloc}", &escape(host));
    let text = text.replace("{primary_url}", &escape(url));
    let text = text.replace("{any_start_netloc}", &hosts);
    Some(text.replace("{any_start_url}", &urls))
}

/// Escapes a text for an expression.
pub(super) fn escape(text: &str) -> String {
    regex_syntax::escape(text)
}

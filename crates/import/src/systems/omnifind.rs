//! IBM OmniFind: `crawl.rules` of one or more crawlers, `global.rules`.
//!
//! Rules are of three types. Of each type the first rule that fits decides, and each type may refuse.

mod rules;
pub mod source;
mod union;

use crate::conversion::Conversion;
use crate::draft::{GlobalSpaceDraft, PolicyDraft, RuleIds, RuleItem, SpaceDraft, to_slug};
use crate::input::{ImportError, ImportInput, MAX_RULE_FILE, SourcePath};
use crate::reference::omnifind::OmniFindEvaluator;
use crate::report::{MissingPart, PartId, Report};
use crate::settings::{CrawlerProposal, SettingsDraft};

use source::{OmniFindRules, OmniFindTarget};

pub(crate) fn recognize(beginning: &[u8]) -> bool {
    let text = String::from_utf8_lossy(beginning);
    let mut lines = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let is_rule = |line: &str| {
        let mut words = line.split_whitespace();
        let action = words.next();
        let kind = words.next().unwrap_or_default();
        matches!(action, Some("allow" | "forbid"))
            && (matches!(kind, "domain" | "prefix" | "address") || kind.contains("://"))
    };
    lines.next().is_some_and(is_rule)
}

pub(crate) fn convert(input: &ImportInput<'_>) -> Result<Conversion, ImportError> {
    let mut report = Report::default();
    let mut ids = RuleIds::default();
    let mut policy = PolicyDraft {
        name: to_slug(input.name.as_deref().unwrap_or("omnifind")),
        ..PolicyDraft::default()
    };
    policy.options.set("disposition", "allow");
    policy.options.set("removal", "omnifind");
    let (globals, others): (Vec<&SourcePath>, Vec<&SourcePath>) = input
        .paths
        .iter()
        .partition(|path| has_name(path, "global.rules"));
    let (actions, crawlers): (Vec<&SourcePath>, Vec<&SourcePath>) = others
        .into_iter()
        .partition(|path| has_name(path, "followindex.rules"));
    let mut spaces = Vec::new();
    let mut settings = SettingsDraft::default();
    for path in &crawlers {
        let name = crawler_name(path, crawlers.len() > 1);
        let prefix = match crawlers.len() {
            1 => String::new(),
            _ => format!("{name}-"),
        };
        let source = input.read_text(&path.path, MAX_RULE_FILE)?;
        let file = source::read(&source, &mut report);
        let mut items = rules::space_rules(&file.rules, &prefix, &mut report, &mut ids);
        for line in file.invalid {
            let number = line.place.line;
            let item = not_converted(&mut report, line.part, number, line.allows, &line.why);
            items.push(item);
        }
        let is_named = path.crawler.is_some() || crawlers.len() > 1;
        if is_named {
            settings.crawlers.push(CrawlerProposal {
                name: name.clone(),
                ..CrawlerProposal::default()
            });
        }
        policy.spaces.push(SpaceDraft {
            name: name.clone(),
            crawlers: is_named.then(|| name.clone()).into_iter().collect(),
            rules: items,
            ..SpaceDraft::default()
        });
        spaces.push(OmniFindRules {
            name,
            rules: file.rules,
        });
    }
    let global = globals.first().map(|path| path.path.as_str());
    if let Some(path) = input.global.as_deref().or(global) {
        let global = read_global(input, path, &mut report)?;
        let items = rules::global_rules(&global.rules, &mut report, &mut ids);
        policy.global_space = Some(GlobalSpaceDraft::Rules(items));
        union::announce_differences(&spaces, &global, &mut report);
    }
    for path in actions {
        read_actions(input, &path.path, &mut report)?;
    }
    let evaluator = OmniFindEvaluator::new(spaces, &report);
    Ok(Conversion {
        policy,
        report,
        settings,
        evaluator: Box::new(evaluator),
    })
}

fn has_name(path: &SourcePath, name: &str) -> bool {
    path.crawler.is_none() && path.path.rsplit('/').next() == Some(name)
}

/// Returns the name of a crawler: the one that was given, else that of its directory or its file.
fn crawler_name(path: &SourcePath, is_one_of_several: bool) -> String {
    if let Some(name) = &path.crawler {
        return to_slug(name);
    }
    let mut parts = path.path.rsplit('/');
    let file = parts.next().unwrap_or_default();
    match parts.next() {
        Some(directory) => to_slug(directory),
        None if is_one_of_several => to_slug(file.strip_suffix(".rules").unwrap_or(file)),
        None => "crawl-space".to_owned(),
    }
}

/// Reads `global.rules`, which has domain rules only: OmniFind refuses others.
fn read_global(
    input: &ImportInput<'_>,
    path: &str,
    report: &mut Report,
) -> Result<OmniFindRules, ImportError> {
    let source = input.read_text(path, MAX_RULE_FILE)?;
    let file = source::read(&source, report);
    if let Some(line) = file.invalid.first() {
        return Err(ImportError::invalid(&line.place, line.why.as_str()));
    }
    for rule in &file.rules {
        let is_domain = matches!(rule.target, OmniFindTarget::Domain { .. });
        if let (false, Some(part)) = (is_domain, report.part(rule.part)) {
            let message = "the global space has domain rules only";
            return Err(ImportError::invalid(&part.place, message));
        }
    }
    Ok(OmniFindRules {
        name: "global".to_owned(),
        rules: file.rules,
    })
}

/// Reads `followindex.rules`, which chooses what is indexed and followed.
fn read_actions(
    input: &ImportInput<'_>,
    path: &str,
    report: &mut Report,
) -> Result<(), ImportError> {
    let source = input.read_text(path, MAX_RULE_FILE)?;
    for (place, line) in source.lines() {
        if line.trim().is_empty() || line.trim_start().starts_with('#') {
            continue;
        }
        let part = report.add(place, line.trim());
        report.not_converted(
            part,
            "the form of rules on indexing and following is not known",
            MissingPart::OtherSetting,
            Some("a rule with `set: { index: false }` or `set: { follow: false }`"),
        );
    }
    Ok(())
}

/// Reports a line that is not converted, and returns the comment in its place.
fn not_converted(
    report: &mut Report,
    part: PartId,
    line: u32,
    allows: bool,
    why: &str,
) -> RuleItem {
    let failure = match allows {
        true => MissingPart::KeepsOut,
        false => MissingPart::LetsThrough,
    };
    let instead = Some("a rule of your own for these URLs");
    report.not_converted(part, why, failure, instead);
    RuleItem::Comment(format!("not converted: line {line}: {why}"))
}

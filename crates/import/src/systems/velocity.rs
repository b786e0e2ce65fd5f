//! Velocity, later Watson Explorer Engine: the crawler of a collection.
//!
//! Its options and recursive conditions are those of a policy, in the same order.

mod conversion;
mod options;
mod seeds;
pub mod source;
mod tests_of_urls;

use std::collections::BTreeSet;

use roxmltree::Node;

use crate::conversion::Conversion;
use crate::draft::{OptionDrafts, PolicyDraft, RuleIds, to_slug};
use crate::input::{ImportError, ImportInput, MAX_DOCUMENT, Place};
use crate::reference::velocity::VelocityEvaluator;
use crate::report::{PartId, PartNeed, Report};
use crate::settings::SettingsDraft;
use crate::xml::XmlSource;

use conversion::{ConvertedNodes, VelocityConversion};
use source::VelocityCrawler;

pub(crate) fn recognize(beginning: &[u8]) -> bool {
    let text = String::from_utf8_lossy(beginning);
    [
        "<vse-collection",
        "<crawl-options",
        "<crawl-condition-",
        "<crawl-may-not-have",
        "<crawl-must-have",
    ]
    .iter()
    .any(|tag| text.contains(tag))
}

pub(crate) fn convert(input: &ImportInput<'_>) -> Result<Conversion, ImportError> {
    let [path] = input.paths.as_slice() else {
        let file = input.paths.get(1).map_or("", |path| path.path.as_str());
        let message = "one collection is imported at a time";
        return Err(ImportError::invalid(&Place::start(file), message));
    };
    let mut report = Report::default();
    let source = input.read_text(&path.path, MAX_DOCUMENT)?;
    let xml = XmlSource::parse(&source, &mut report, is_secret)?;
    let root = xml.root();
    let crawler = root
        .descendants()
        .find(|element| element.tag_name().name() == "crawler");
    frame_outcomes(&xml, crawler, &mut report);
    let limits = root.descendants().filter_map(|element| {
        let name = element.attribute("name")?;
        matches!(name, "max-url-len" | "max-slashes").then(|| name.to_owned())
    });
    let mut conversion = VelocityConversion {
        xml: &xml,
        report: &mut report,
        ids: RuleIds::default(),
        seeds: input.seeds.as_deref(),
        limits: limits.collect(),
        has_options: false,
    };
    let converted = match crawler {
        Some(crawler) => conversion.children(crawler, None)?,
        None => {
            let mut converted = ConvertedNodes::default();
            conversion.component(root, None, &mut converted)?;
            converted
        }
    };
    if crawler.is_none() && converted.nodes.is_empty() && converted.rules.is_empty() {
        let message = "not a collection of Velocity, its crawler or one of its conditions";
        return Err(ImportError::invalid(&Place::start(&source.file), message));
    }
    let name = root.attribute("name").unwrap_or("velocity");
    let mut policy = PolicyDraft {
        name: to_slug(input.name.as_deref().unwrap_or(name)),
        ..PolicyDraft::default()
    };
    let disposition = converted.options.disposition;
    policy
        .options
        .set("disposition", disposition.unwrap_or("disallow"));
    if crawler.is_some() {
        add_defaults(&mut policy.options, &converted.options.set);
    }
    for (path, value) in converted.options.set.iter() {
        policy.options.set(path, value.clone());
    }
    policy.rules = converted.options.filters;
    policy.rules.extend(converted.rules);
    let crawler = VelocityCrawler {
        allows: disposition == Some("allow"),
        nodes: converted
            .options
            .limits
            .into_iter()
            .chain(converted.nodes)
            .collect(),
    };
    let evaluator = VelocityEvaluator::new(crawler, &report);
    Ok(Conversion {
        policy,
        report,
        settings: SettingsDraft::default(),
        evaluator: Box::new(evaluator),
    })
}

/// Writes out what Velocity does without an option.
fn add_defaults(options: &mut OptionDrafts, known: &OptionDrafts) {
    let defaults: [(&str, serde_json::Value, &str); 3] = [
        ("max_depth", 15.into(), "Velocity's default for max-hops"),
        (
            "politeness.delay",
            "100ms".into(),
            "Velocity's default for delay",
        ),
        (
            "politeness.concurrency",
            1.into(),
            "Velocity's default for n-concurrent-requests",
        ),
    ];
    for (path, value, note) in defaults {
        if known.get(path).is_none() {
            options.set_with_note(path, value, Some(note.to_owned()));
        }
    }
}

/// Sets the outcome of what is around the crawler.
fn frame_outcomes(xml: &XmlSource<'_>, crawler: Option<Node<'_, '_>>, report: &mut Report) {
    let Some(crawler) = crawler else {
        return;
    };
    let inside: BTreeSet<PartId> = xml.all_parts(crawler).into_iter().collect();
    for part in xml.all_parts(xml.root()) {
        if !inside.contains(&part) {
            report.unrelated(part, "the collection around the crawler");
        }
    }
    for part in xml.own_parts(crawler) {
        report.converted(part, "options", PartNeed::Url);
    }
    for name in ["log-file", "run-id", "subcollection"] {
        if let Some(part) = xml.attribute_part(crawler, name) {
            report.unrelated(part, "the run of the crawler");
        }
    }
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    [
        "password",
        "http-auth",
        "cookie",
        "header",
        "secret",
        "token",
    ]
    .iter()
    .any(|word| name.contains(word))
}

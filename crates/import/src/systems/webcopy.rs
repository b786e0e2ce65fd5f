//! Cyotek WebCopy: a project, which is a tree of tags in a binary form or in XML.
//!
//! Rules are evaluated in order, and the last one that fits decides, unless one stops; those on the content type
//! after all others.

mod binary;
mod conversion;
mod links;
mod options;
mod project;
mod rules;
pub mod source;
mod tree;
mod twin;
mod words;

use std::sync::Arc;

use crate::conversion::Conversion;
use crate::draft::{PolicyDraft, RuleIds, to_slug};
use crate::input::{ImportError, ImportInput, MAX_DOCUMENT, Place, SourceText};
use crate::reference::webcopy::WebCopyEvaluator;
use crate::report::{PartId, PartNeed, Report};
use crate::settings::{CrawlerProposal, SettingsDraft};

use conversion::RuleConversion;
use project::{ProjectConversion, is_link_map};
use rules::ReadRules;
use source::{WebCopyCompare, WebCopyPriority, WebCopyRule};
use tree::{NbtDocument, NbtTag, is_secret};

pub(crate) fn recognize(beginning: &[u8]) -> bool {
    let has_name = |bytes: &[u8]| {
        let name: &[u8] = b"WebCopy";
        bytes.windows(name.len()).any(|window| window == name)
    };
    if is_xml(beginning) {
        let text = String::from_utf8_lossy(beginning);
        return text.contains("type=\"Compound\"") && has_name(beginning);
    }
    let unpacked = binary::unpack_beginning(beginning);
    unpacked.first() == Some(&10) && has_name(&unpacked)
}

/// Returns the tree of a project as text, a line for each tag.
pub(crate) fn dump(input: &ImportInput<'_>) -> Result<String, ImportError> {
    Ok(read_document(input)?.root.dump(usize::MAX))
}

pub(crate) fn convert(input: &ImportInput<'_>) -> Result<Conversion, ImportError> {
    let document = read_document(input)?;
    let mut report = Report::default();
    check_size(&document)?;
    let parts = add_parts(&document, &mut report);
    let read = rules::read(&document, &parts, input)?;
    let uri = document.root.get("uri").and_then(NbtTag::text);
    if uri.is_none() && read.list.is_none() {
        let why = "not a project of WebCopy: it has neither `uri` nor a list of rules";
        return Err(document.invalid(&document.root, why));
    }
    let mut policy = PolicyDraft {
        name: to_slug(input.name.as_deref().unwrap_or("webcopy")),
        ..PolicyDraft::default()
    };
    policy.options.set("disposition", "allow");
    let mut ids = RuleIds::default();
    ids.next("hosts");
    let mut conversion = ProjectConversion::new(&mut report, &parts, input, &mut policy, &mut ids);
    conversion.convert(&document.root, read.list);
    let mut project = conversion.project;
    convert_rules(&read, &parts, &mut report, &mut ids, &mut policy);
    project.rules = read.rules;
    let map = document.root.children().iter().find(|tag| is_link_map(tag));
    if let Some(map) = map {
        let evaluator = WebCopyEvaluator::new(project.clone(), &report);
        links::convert(map, uri, &parts, &evaluator, &mut report, &mut policy);
    }
    let is_of_type = |rule: &WebCopyRule| rule.compare == WebCopyCompare::ContentType;
    if project.rules.iter().any(is_of_type) {
        links::add_types(uri, &mut policy);
    }
    let settings = SettingsDraft {
        crawlers: vec![CrawlerProposal {
            name: "webcopy".to_owned(),
            ..CrawlerProposal::default()
        }],
        ..SettingsDraft::default()
    };
    let evaluator = WebCopyEvaluator::new(project, &report);
    Ok(Conversion {
        policy,
        report,
        settings,
        evaluator: Box::new(evaluator),
    })
}

fn convert_rules(
    read: &ReadRules<'_>,
    parts: &[PartId],
    report: &mut Report,
    ids: &mut RuleIds,
    policy: &mut PolicyDraft,
) {
    let Some(list) = read.list else {
        return;
    };
    if let Some(part) = parts.get(list.index) {
        report.converted(*part, "rules", PartNeed::Url);
    }
    let has_priority = read.rules.iter().any(|rule| {
        let is_url = rule.compare != WebCopyCompare::ContentType;
        rule.is_enabled && is_url && rule.priority != WebCopyPriority::Normal
    });
    if has_priority {
        policy.options.set("politeness.order", "strict");
    }
    let mut conversion = RuleConversion {
        report,
        parts,
        ids,
        assumes_enabled: read.assumes_enabled,
    };
    for (rule, tag) in read.rules.iter().zip(list.compounds()) {
        policy.rules.push(conversion.convert(rule, tag));
    }
}

fn is_xml(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    if let [0xef, 0xbb, 0xbf, text @ ..] = rest {
        rest = text;
    }
    matches!(rest.trim_ascii_start(), [b'<', ..])
        || matches!(bytes, [0xfe, 0xff, 0, b'<', ..] | [0xff, 0xfe, b'<', 0, ..])
}

fn read_document(input: &ImportInput<'_>) -> Result<NbtDocument, ImportError> {
    let path = match input.paths.as_slice() {
        [path] => &path.path,
        [] => return Err(ImportError::invalid(&Place::start("-"), "no file is named")),
        [_, second, ..] => {
            let place = Place::start(&second.path);
            return Err(ImportError::invalid(
                &place,
                "one project is imported at a time",
            ));
        }
    };
    let bytes = input.read_bytes(path, MAX_DOCUMENT)?;
    let root = if is_xml(&bytes) {
        twin::read(&SourceText::decode(path, &bytes)?)?
    } else {
        let root = binary::read(&bytes);
        root.map_err(|why| ImportError::invalid(&Place::start(path), why))?
    };
    Ok(NbtDocument {
        file: Arc::from(path.as_str()),
        root,
    })
}

/// The maximum number of tags outside of the link map, each of which is in the report.
const MAX_PARTS: usize = 50_000;

fn check_size(document: &NbtDocument) -> Result<(), ImportError> {
    let tags = document.root.children().iter();
    let others = tags.filter(|tag| !is_link_map(tag));
    let count: usize = others.map(|tag| tag.all().len()).sum();
    if count > MAX_PARTS {
        let why = format!("more than {MAX_PARTS} tags outside of the link map");
        return Err(document.invalid(&document.root, why));
    }
    Ok(())
}

/// Adds every tag as a part, in order; a link of the link map with all tags in it is one part. Returns the part of
/// each tag.
fn add_parts(document: &NbtDocument, report: &mut Report) -> Vec<PartId> {
    let mut parts = Vec::new();
    add_tag(document, &document.root, false, report, &mut parts);
    parts
}

fn add_tag(
    document: &NbtDocument,
    tag: &NbtTag,
    hides: bool,
    report: &mut Report,
    parts: &mut Vec<PartId>,
) {
    let hides = hides || is_secret(&tag.name);
    let place = document.place(tag);
    parts.push(report.add_lines(place, tag.describe(hides), tag.units));
    let is_map = is_link_map(tag) && parts.len() > 1;
    for child in tag.children() {
        if !is_map {
            add_tag(document, child, hides, report, parts);
            continue;
        }
        let uri = child.get("uri").map(|uri| uri.describe(false));
        let text = format!("link {}", uri.unwrap_or_default());
        let part = report.add_lines(document.place(child), text, child.all_units());
        parts.extend(child.all().iter().map(|_| part));
    }
}

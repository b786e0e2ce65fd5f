//! `regex-normalize.xml`: replacements in the keys by which URLs are the same.

use serde_json::{Value as Json, json};

use crate::draft::PolicyDraft;
use crate::expression::{Anchoring, Dialect, SourceExpression};
use crate::input::{ImportError, SourceText};
use crate::report::{MissingPart, PartId, PartNeed, Report};
use crate::xml::XmlSource;

/// Converts the file to the option `replace`.
pub(crate) fn convert(
    source: &SourceText,
    policy: &mut PolicyDraft,
    report: &mut Report,
) -> Result<(), ImportError> {
    let xml = XmlSource::parse(source, report, |_| false)?;
    let root = xml.root();
    for part in xml.own_parts(root) {
        report.unrelated(part, "the root of the document");
    }
    let mut items = match policy.options.get("replace") {
        Some(Json::Array(items)) => items.clone(),
        Some(_) | None => Vec::new(),
    };
    for element in root.children().filter(roxmltree::Node::is_element) {
        let text_of = |name: &str| {
            let mut children = element.children();
            let child = children.find(|child| child.has_tag_name(name))?;
            Some(child.text().unwrap_or_default().to_owned())
        };
        let rule = NormalizerRule {
            parts: xml.all_parts(element),
            pattern: text_of("pattern").unwrap_or_default(),
            substitution: text_of("substitution").unwrap_or_default(),
        };
        items.extend(rule.convert(report));
    }
    if !items.is_empty() {
        policy.options.set("replace", items);
    }
    Ok(())
}

/// A pattern with its substitution.
pub(crate) struct NormalizerRule {
    pub parts: Vec<PartId>,
    pub pattern: String,
    pub substitution: String,
}

impl NormalizerRule {
    /// Returns an item of `replace`, and sets the outcome of the rule's parts.
    pub(crate) fn convert(&self, report: &mut Report) -> Option<Json> {
        let never = self.pattern.starts_with('#') || self.pattern.starts_with("^file:");
        if never {
            let why = "no URL that is requested has a fragment or the scheme file";
            self.parts.iter().for_each(|part| report.dead(*part, why));
            return None;
        }
        let expression = SourceExpression {
            text: &self.pattern,
            dialect: Dialect::Java,
            anchoring: Anchoring::Search,
            ignore_case: false,
        };
        let converted = expression
            .translate_for_replacement()
            .and_then(|regex| Ok((regex, java_replacement(&self.substitution)?)));
        match converted {
            Ok((regex, with)) => {
                for part in &self.parts {
                    report.converted(*part, "replace", PartNeed::Ledger);
                }
                Some(json!({ "regex": regex, "with": with }))
            }
            Err(why) => {
                let instead = Some("an item of `replace` without it, or `strip_params`");
                for part in &self.parts {
                    report.not_converted(*part, &*why, MissingPart::OtherSetting, instead);
                }
                None
            }
        }
    }
}

/// Rewrites a replacement of Java: `$1` is a group, a backslash makes the next character a letter.
fn java_replacement(text: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\\' => match rest.next() {
                Some('$') => out.push_str("$$"),
                Some(c) => out.push(c),
                None => return Err("a replacement that ends in a backslash".to_owned()),
            },
            '$' => match rest.next() {
                Some(digit) if digit.is_ascii_digit() => out.push_str(&format!("${{{digit}}}")),
                _ => return Err("a replacement with a group by name".to_owned()),
            },
            c => out.push(c),
        }
    }
    Ok(out)
}

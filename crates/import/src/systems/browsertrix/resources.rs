//! Rules about what is loaded for a page: `blockRules`, and hosts of advertisements.

use crate::draft::{ConditionDraft, ListDraft, PolicyDraft, RuleDraft, RuleIds, RuleItem};
use crate::expression::{Anchoring, Dialect, SourceExpression, TranslatedExpression};
use crate::report::{AssumptionEffect, MissingPart, PartId, PartNeed, PartTarget, Report};
use crate::systems::urls::check_host;

use super::source::{BrowsertrixCrawl, ResourceRule, ResourceRuleKind};

/// Translates an expression of JavaScript on the whole URL.
pub(super) fn translate(text: &str) -> Result<TranslatedExpression, String> {
    let expression = SourceExpression {
        text,
        dialect: Dialect::JavaScript,
        anchoring: Anchoring::Search,
        ignore_case: false,
    };
    expression.translate("url")
}

/// Adds the rule against hosts of advertisements, of which requests for pages are refused, too.
pub(super) fn convert_ads(
    crawl: &BrowsertrixCrawl,
    policy: &mut PolicyDraft,
    ids: &mut RuleIds,
    report: &mut Report,
) {
    match (crawl.blocks_ads, &crawl.ad_hosts) {
        (None, None) => {}
        (None, Some((list, _))) => report.dead(*list, "blockAds is not set"),
        (Some(part), None) => report.not_converted(
            part,
            "the list of hosts, /app/ad-hosts.json, is in Browsertrix's image",
            MissingPart::LetsThrough,
            Some("copy it beside this file, and name both files in the command"),
        ),
        (Some(part), Some((list, hosts))) => {
            let id = ids.next("block-ads");
            let mut items: Vec<String> = hosts.iter().map(|host| host.to_lowercase()).collect();
            items.retain(|host| check_host(host).is_ok());
            items.sort();
            items.dedup();
            if let Some(host) = items.first() {
                let url = format!("http://{host}/");
                policy.examples.push((url, serde_json::Map::new()));
            }
            report.converted(part, &*id, PartNeed::Host);
            report.converted(*list, "lists.ad-hosts", PartNeed::Host);
            policy.lists.push(ListDraft {
                name: "ad-hosts".to_owned(),
                notes: Vec::new(),
                kind: "hosts",
                items,
            });
            // Browsertrix compares the host with its port.
            let condition = ConditionDraft::test("authority", "in", ["ad-hosts"]);
            policy.rules.push(RuleDraft::forbid(id, condition).into());
        }
    }
}

/// Converts `blockRules`.
pub(super) fn convert_blocks(
    blocks: &[ResourceRule],
    ids: &mut RuleIds,
    report: &mut Report,
) -> Vec<RuleItem> {
    let mut rules = Vec::new();
    let mut frame_rule = None;
    for block in blocks {
        rules.extend(convert_block(block, frame_rule, ids, report));
        if block.frame_text {
            frame_rule = frame_rule.or(Some(block.line));
        }
    }
    rules
}

fn convert_block(
    block: &ResourceRule,
    frame_rule: Option<u32>,
    ids: &mut RuleIds,
    report: &mut Report,
) -> Option<RuleItem> {
    if let Some((why, instead)) = obstacle(block) {
        return Some(not_converted(block, why, instead, report));
    }
    let allows_only = block.kind == ResourceRuleKind::AllowOnly;
    let mut assumptions = Vec::new();
    let condition = match &block.url {
        Some(url) => match translate(url) {
            Ok(translated) if allows_only => {
                assumptions.extend(translated.assumption_of_inclusion());
                translated.condition.negated()
            }
            Ok(translated) => {
                assumptions.extend(translated.assumption);
                translated.condition
            }
            Err(why) => return Some(not_converted(block, &why, None, report)),
        },
        None if allows_only => ConditionDraft::Always,
        None => {
            let why = "a rule without `url` blocks nothing";
            block.parts.iter().for_each(|part| report.dead(*part, why));
            return None;
        }
    };
    assumptions.extend(frame_rule.map(|line| {
        let text = format!(
            "no frame fits the rule of line {line}, after which Browsertrix tries no other"
        );
        (text, AssumptionEffect::RefusesMore)
    }));
    let id = ids.next(&format!("block-{}", block.line));
    for part in &block.parts {
        set_outcome(*part, &id, &assumptions, report);
    }
    Some(RuleDraft::forbid(id, condition).into())
}

/// Returns the reason why a rule cannot be converted, and what can be written instead.
fn obstacle(block: &ResourceRule) -> Option<(&'static str, &'static str)> {
    if block.kind == ResourceRuleKind::Unknown {
        return Some((
            "Browsertrix does not know this type of rule, and does not start",
            "block or allowOnly",
        ));
    }
    if block.frame_text {
        return Some((
            "Browsertrix loads the frame and looks at its text",
            "a rule `forbid` with `body_prefix`",
        ));
    }
    let why = "a request does not name the frame that it is for";
    let instead = "a condition on `referer`, where the page sends its whole URL";
    block.in_frame.then_some((why, instead))
}

fn not_converted(
    block: &ResourceRule,
    why: &str,
    instead: impl Into<Option<&'static str>>,
    report: &mut Report,
) -> RuleItem {
    let instead = instead.into();
    for part in &block.parts {
        report.not_converted(*part, why, MissingPart::LetsThrough, instead);
    }
    RuleItem::Comment(format!("not converted: line {}: {why}", block.line))
}

/// Reports a part as converted, or as converted under assumptions.
pub(super) fn set_outcome(
    part: PartId,
    id: &str,
    assumptions: &[(String, AssumptionEffect)],
    report: &mut Report,
) {
    let Some((_, first)) = assumptions.first() else {
        return report.converted(part, id, PartNeed::Url);
    };
    let is_same = assumptions.iter().all(|(_, effect)| effect == first);
    let effect = match is_same {
        true => *first,
        false => AssumptionEffect::Either,
    };
    let texts: Vec<&str> = assumptions.iter().map(|(text, _)| text.as_str()).collect();
    let target = PartTarget {
        name: id.to_owned(),
        need: PartNeed::Url,
    };
    report.assumed(part, target, texts.join("; and that "), effect);
}

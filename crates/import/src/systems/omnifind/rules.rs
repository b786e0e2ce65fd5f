//! Rules of a crawler as three lists, of which each may refuse.

use std::net::IpAddr;

use crate::draft::{ConditionDraft, GroupDraft, GuardDraft, RuleDraft, RuleIds, RuleItem};
use crate::report::{AssumptionEffect, PartNeed, PartTarget, Report};
use crate::systems::urls::{canonical_beginning, check_condition, check_host, url_prefix};

use super::source::{OmniFindRule, OmniFindTarget};

/// A target as a condition, with what it assumes.
struct TargetCondition {
    condition: ConditionDraft,
    need: PartNeed,
    assumption: Option<(String, bool)>,
}

/// Converts the rules of a crawler. `prefix` begins the ids.
pub(super) fn space_rules(
    rules: &[OmniFindRule],
    prefix: &str,
    report: &mut Report,
    ids: &mut RuleIds,
) -> Vec<RuleItem> {
    let is_domain = |rule: &&OmniFindRule| matches!(rule.target, OmniFindTarget::Domain { .. });
    let is_prefix = |rule: &&OmniFindRule| matches!(rule.target, OmniFindTarget::Prefix(_));
    let is_address = |rule: &&OmniFindRule| matches!(rule.target, OmniFindTarget::Address { .. });
    let lists: [(&str, Vec<&OmniFindRule>); 3] = [
        ("domains", rules.iter().filter(is_domain).collect()),
        ("prefixes", rules.iter().filter(is_prefix).collect()),
        ("addresses", rules.iter().filter(is_address).collect()),
    ];
    let mut items = Vec::new();
    for (name, rules) in lists {
        let mut list = list_rules(&rules, prefix, report, ids);
        let is_rule = |item: &RuleItem| matches!(item, RuleItem::Rule(_));
        if list.iter().filter(|item| is_rule(item)).count() < 2 {
            items.append(&mut list);
            continue;
        }
        let group = GroupDraft {
            first: true,
            rules: list,
            ..GroupDraft::default()
        };
        let id = ids.next(&format!("{prefix}{name}"));
        items.push(RuleDraft::group(id, group).into());
    }
    items
}

/// Converts the rules of one type, of which the first that fits decides.
fn list_rules(
    rules: &[&OmniFindRule],
    prefix: &str,
    report: &mut Report,
    ids: &mut RuleIds,
) -> Vec<RuleItem> {
    let last_forbid = rules.iter().rposition(|rule| !rule.allows);
    let mut items = Vec::new();
    for (at, rule) in rules.iter().enumerate() {
        if last_forbid.is_none_or(|last| at > last) {
            let why = "allows what no later rule of its type forbids";
            report.dead(rule.part, why);
            items.push(RuleItem::Comment(format!(
                "dead: line {}: {why}",
                rule.line
            )));
            continue;
        }
        items.push(rule_item(rule, prefix, report, ids));
    }
    items
}

fn rule_item(
    rule: &OmniFindRule,
    prefix: &str,
    report: &mut Report,
    ids: &mut RuleIds,
) -> RuleItem {
    let translated = match target_condition(&rule.target) {
        Ok(translated) => translated,
        Err(why) => return super::not_converted(report, rule.part, rule.line, rule.allows, &why),
    };
    let id = ids.next(&format!("{prefix}line-{}", rule.line));
    set_outcome(report, rule, &id, &translated);
    let is_address = translated.need == PartNeed::Response;
    let draft = if !rule.allows {
        RuleDraft::forbid(id, translated.condition)
    } else if is_address {
        let group = GroupDraft {
            guard: GuardDraft::When(translated.condition),
            ..GroupDraft::default()
        };
        RuleDraft::group(id, group)
    } else {
        RuleDraft::when(id, translated.condition, "allow")
    };
    draft.with_about(rule.about.clone()).into()
}

fn set_outcome(report: &mut Report, rule: &OmniFindRule, id: &str, translated: &TargetCondition) {
    let need = match translated.need {
        // The address is known before the response, once the name is resolved.
        PartNeed::Response => PartNeed::Host,
        need @ (PartNeed::Host | PartNeed::Url | PartNeed::Document | PartNeed::Ledger) => need,
    };
    let target = PartTarget {
        name: id.to_owned(),
        need,
    };
    match &translated.assumption {
        None => report.converted(rule.part, id, need),
        Some((text, fits_more)) => {
            let effect = match fits_more != &rule.allows {
                true => AssumptionEffect::RefusesMore,
                false => AssumptionEffect::RefusesLess,
            };
            report.assumed(rule.part, target, text.as_str(), effect);
        }
    }
}

/// Converts the rules of `global.rules`.
pub(super) fn global_rules(
    rules: &[OmniFindRule],
    report: &mut Report,
    ids: &mut RuleIds,
) -> Vec<RuleItem> {
    let mut items = Vec::new();
    for rule in rules {
        let translated = match target_condition(&rule.target) {
            Ok(translated) => translated,
            Err(why) => {
                let item = super::not_converted(report, rule.part, rule.line, rule.allows, &why);
                items.push(item);
                continue;
            }
        };
        let id = ids.next(&format!("global-line-{}", rule.line));
        set_outcome(report, rule, &id, &translated);
        let then = if rule.allows { "allow" } else { "disallow" };
        let draft = RuleDraft::when(id, translated.condition, then);
        items.push(draft.with_about(rule.about.clone()).into());
    }
    items
}

fn capitals(host: &str) -> Option<(String, bool)> {
    host.contains(|c: char| c.is_ascii_uppercase()).then(|| {
        let text =
            "host names are compared without regard to case; OmniFind compares them as written";
        (text.to_owned(), true)
    })
}

fn target_condition(target: &OmniFindTarget) -> Result<TargetCondition, String> {
    let translated = match target {
        OmniFindTarget::Domain { host, port } => {
            if !host.contains('*') {
                check_host(host)?;
            }
            TargetCondition {
                condition: domain_condition(host, *port),
                need: PartNeed::Host,
                assumption: capitals(host),
            }
        }
        OmniFindTarget::Prefix(text) => prefix_condition(text),
        OmniFindTarget::Address { network, mask } => TargetCondition {
            condition: address_condition(*network, *mask)?,
            need: PartNeed::Response,
            assumption: None,
        },
    };
    check_condition(&translated.condition)?;
    Ok(translated)
}

fn domain_condition(host: &str, port: Option<u16>) -> ConditionDraft {
    let host = host.to_ascii_lowercase();
    let mut parts = Vec::new();
    if host.contains('*') {
        if host != "*" {
            parts.push(ConditionDraft::test("host", "glob", [host]));
        }
    } else {
        parts.push(ConditionDraft::is("host", [host]));
    }
    parts.extend(port.map(|port| ConditionDraft::is("port", [port.to_string()])));
    match parts.is_empty() {
        true => ConditionDraft::Always,
        false => ConditionDraft::all(parts),
    }
}

fn prefix_condition(text: &str) -> TargetCondition {
    let canonical = canonical_beginning(text);
    let beginning = canonical.trim_end_matches('*');
    let condition = if beginning.contains('*') {
        ConditionDraft::test("url", "glob", [format!("{beginning}*")])
    } else {
        url_prefix(beginning, false)
    };
    let host = text.split_once("://").map_or("", |(_, rest)| rest);
    let host = host.split(['/', '?']).next().unwrap_or_default();
    let open_end = (!text.ends_with('*')).then(|| {
        let text = "a prefix without a star at its end also fits what begins with it";
        (text.to_owned(), true)
    });
    TargetCondition {
        condition,
        need: PartNeed::Url,
        assumption: capitals(host).or(open_end),
    }
}

fn address_condition(network: IpAddr, mask: IpAddr) -> Result<ConditionDraft, String> {
    let wrong = || "the netmask is not a run of ones followed by zeros".to_owned();
    let text = match (network, mask) {
        (IpAddr::V4(network), IpAddr::V4(mask)) => {
            let bits = u32::from(mask);
            if bits.leading_ones() + bits.trailing_zeros() < 32 {
                return Err(wrong());
            }
            if bits == 0 {
                return Ok(ConditionDraft::Always);
            }
            let network = std::net::Ipv4Addr::from(u32::from(network) & bits);
            format!("{network} {mask}")
        }
        (IpAddr::V6(network), IpAddr::V6(mask)) => {
            let bits = u128::from(mask);
            if bits.leading_ones() + bits.trailing_zeros() < 128 {
                return Err(wrong());
            }
            let network = std::net::Ipv6Addr::from(u128::from(network) & bits);
            format!("{network}/{}", bits.leading_ones())
        }
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return Err(wrong()),
    };
    Ok(ConditionDraft::is("address", [text]))
}

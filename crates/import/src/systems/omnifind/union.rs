//! Comparison of `global.rules` with what the crawlers' spaces say together.

use crate::reference::omnifind::{first_domain_rule, host_of};
use crate::report::{AssumptionEffect, PartId, PartNeed, PartTarget, Report};

use super::source::{OmniFindRules, OmniFindTarget};

/// Announces hosts that the global space and the crawlers' spaces decide differently: a page of such a host is
/// removed from the index though a crawler fetches it, or stays though none does.
pub(super) fn announce_differences(
    spaces: &[OmniFindRules],
    global: &OmniFindRules,
    report: &mut Report,
) {
    for rules in spaces.iter().chain([global]) {
        for rule in &rules.rules {
            let OmniFindTarget::Domain { host, port } = &rule.target else {
                continue;
            };
            let host = host_of(host);
            let by_global = first_domain_rule(&global.rules, &host, *port);
            let is_global = by_global.is_some_and(|rule| rule.allows);
            let crawler = spaces.iter().find(|space| {
                first_domain_rule(&space.rules, &host, *port).is_none_or(|rule| rule.allows)
            });
            let Some(decider) = decider(crawler, by_global.map(|rule| rule.part), rule) else {
                continue;
            };
            let text = match (crawler, is_global) {
                (Some(crawler), false) if rule.allows => format!(
                    "pages of {host}, which `{}` fetches, may leave the index: global.rules does not allow it",
                    crawler.name
                ),
                (None, true) => format!(
                    "pages of {host} stay in the index though no crawler fetches them: global.rules allows it"
                ),
                (Some(_), _) | (None, false) => continue,
            };
            announce(report, decider, text);
        }
    }
}

/// Returns the line that is announced: the one that allows the host.
fn decider(
    crawler: Option<&OmniFindRules>,
    global: Option<PartId>,
    rule: &super::source::OmniFindRule,
) -> Option<PartId> {
    match crawler {
        Some(_) => Some(rule.part),
        None => global,
    }
}

fn announce(report: &mut Report, part: PartId, text: String) {
    let outcome = report.part(part).and_then(|part| part.outcome());
    let target = outcome.and_then(|outcome| outcome.target()).cloned();
    let is_assumed =
        report.part(part).and_then(|part| part.list()) == Some(crate::report::ReportList::Assumed);
    let target = target.unwrap_or_else(|| PartTarget {
        name: "global_space".to_owned(),
        need: PartNeed::Host,
    });
    if !is_assumed && report.is_converted(part) {
        report.assumed(part, target, text, AssumptionEffect::Either);
    }
}

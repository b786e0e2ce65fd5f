//! Conversion: blocks refuse, then what one of the seeds accepts is allowed. The scope is about pages, and not
//! about what belongs to them.

use crate::draft::{
    ConditionDraft, GroupDraft, GuardDraft, PolicyDraft, RuleDraft, RuleIds, RuleItem,
};
use crate::report::{AssumptionEffect, MissingPart, PartNeed, PartTarget, Report};
use crate::systems::brozzler::{BrozzlerJob, BrozzlerScope, MatchRule, condition};

pub(super) fn convert(job: &BrozzlerJob, policy: &mut PolicyDraft, report: &mut Report) {
    let mut ids = RuleIds::default();
    policy.options.set(
        "disposition",
        if job.has_seeds { "disallow" } else { "allow" },
    );
    for (part, option, value) in &job.options {
        policy.options.set(option, *value);
        report.converted(*part, *option, PartNeed::Host);
    }
    for rule in &job.warcprox_blocks {
        let id = ids.next(&format!("warcprox-block-{}", rule.line));
        policy.rules.push(block(rule, id, false, report));
    }
    for rule in &job.scope.blocks {
        let id = ids.next(&format!("block-{}", rule.line));
        policy.rules.push(block(rule, id, true, report));
    }
    if !job.has_seeds {
        return;
    }
    let embeds = RuleDraft::when("embeds", is_embed(), "allow");
    let about = "a scope is about pages, not about what belongs to them".to_owned();
    policy.rules.push(embeds.with_about(Some(about)).into());
    if let Some((part, hops)) = job.scope.max_hops {
        policy.options.set("max_depth", hops.max(0));
        depth(part, report);
    }
    for rule in &job.scope.accepts {
        let id = ids.next(&format!("accept-{}", rule.line));
        if let Some(item) = accept(rule, id, None, &[], report) {
            policy.rules.push(item);
        }
    }
    for (number, seed) in (1..).zip(&job.seeds) {
        let id = ids.next(&format!("seed-{number}"));
        let (blocked, comments) = blocks_of(&seed.scope, &id, report);
        policy.rules.extend(comments);
        let hops = seed.scope.max_hops;
        if let Some((part, _)) = hops {
            depth(part, report);
        }
        match condition::of_seed(&seed.url) {
            Ok(condition) => {
                report.converted(seed.part, id.as_str(), PartNeed::Url);
                policy
                    .rules
                    .push(group(&id, condition, hops.map(|(_, hops)| hops), &blocked));
            }
            Err(why) => report.not_converted(seed.part, why, MissingPart::KeepsOut, None),
        }
        for rule in &seed.scope.accepts {
            let id = ids.next(&format!("accept-{}", rule.line));
            policy.rules.extend(accept(
                rule,
                id,
                hops.map(|(_, hops)| hops),
                &blocked,
                report,
            ));
        }
    }
}

fn depth(part: crate::report::PartId, report: &mut Report) {
    let target = PartTarget {
        name: "max_depth".to_owned(),
        need: PartNeed::Ledger,
    };
    let assumption = "the depth is known by the Referer";
    report.assumed(part, target, assumption, AssumptionEffect::RefusesLess);
}

fn is_embed() -> ConditionDraft {
    ConditionDraft::is("dest", ["embed"])
}

fn report_rule(rule: &MatchRule, id: &str, report: &mut Report) {
    for condition in &rule.conditions {
        report.converted(condition.part, id, PartNeed::Url);
    }
}

fn report_failure(
    rule: &MatchRule,
    why: &str,
    failure: MissingPart,
    report: &mut Report,
) -> RuleItem {
    for condition in &rule.conditions {
        report.not_converted(condition.part, why, failure, None);
    }
    RuleItem::Comment(format!("not converted: line {}: {why}", rule.line))
}

fn block(rule: &MatchRule, id: String, pages_only: bool, report: &mut Report) -> RuleItem {
    match condition::of_rule(rule) {
        Ok(condition) => {
            report_rule(rule, &id, report);
            let condition = match pages_only {
                true => ConditionDraft::all(vec![condition, is_embed().negated()]),
                false => condition,
            };
            RuleDraft::forbid(id, condition).into()
        }
        Err(why) => report_failure(rule, &why, MissingPart::LetsThrough, report),
    }
}

/// Returns the blocks of a seed, and comments for those that are not converted.
fn blocks_of(
    scope: &BrozzlerScope,
    id: &str,
    report: &mut Report,
) -> (Vec<ConditionDraft>, Vec<RuleItem>) {
    let mut blocked = Vec::new();
    let mut comments = Vec::new();
    for rule in &scope.blocks {
        match condition::of_rule(rule) {
            Ok(condition) => {
                report_rule(rule, id, report);
                blocked.push(condition);
            }
            Err(why) => comments.push(report_failure(rule, &why, MissingPart::LetsThrough, report)),
        }
    }
    (blocked, comments)
}

fn accept(
    rule: &MatchRule,
    id: String,
    hops: Option<i64>,
    blocked: &[ConditionDraft],
    report: &mut Report,
) -> Option<RuleItem> {
    Some(match condition::of_rule(rule) {
        Ok(condition) => {
            report_rule(rule, &id, report);
            group(&id, condition, hops, blocked)
        }
        Err(why) => report_failure(rule, &why, MissingPart::KeepsOut, report),
    })
}

fn group(
    id: &str,
    condition: ConditionDraft,
    hops: Option<i64>,
    blocked: &[ConditionDraft],
) -> RuleItem {
    let mut parts = vec![condition];
    if !blocked.is_empty() {
        parts.push(ConditionDraft::any(blocked.to_vec()).negated());
    }
    let mut group = GroupDraft {
        guard: GuardDraft::When(ConditionDraft::all(parts)),
        then: Some("allow"),
        ..GroupDraft::default()
    };
    if let Some(hops) = hops {
        group.set.set("max_depth", hops.max(0));
    }
    RuleDraft::group(id, group).into()
}

//! Rules that can never decide: they are written as comments, and the report lists their parts as dead.

use std::collections::BTreeMap;

use crawlgate_policy::internal::policy::Policy;
use crawlgate_policy::internal::policy::compile::CompiledPolicy;
use crawlgate_policy::internal::policy::exact::{
    VerdictAnswer, VerdictFinder, VerdictQuery, WantedVerdict,
};

use crate::case::compile_draft;
use crate::draft::{GlobalSpaceDraft, PolicyDraft, RuleDraft, RuleDraftBody, RuleItem};
use crate::input::ImportError;
use crate::report::Report;

/// The maximum number of rules of which it is proved that they can decide.
const MAX_PROVED_RULES: usize = 2_000;

/// Replaces dead rules by comments until there are none. Returns the policy without them.
pub(crate) fn remove_dead_rules(
    draft: &mut PolicyDraft,
    report: &mut Report,
) -> Result<CompiledPolicy, ImportError> {
    loop {
        let compiled = compile_draft(draft)?;
        let dead = find_dead_rules(&compiled, draft);
        if dead.is_empty() {
            return Ok(compiled);
        }
        for (id, why) in &dead {
            report.set_dead(id, why);
        }
        for rules in rule_lists(draft) {
            replace(rules, &dead);
        }
    }
}

fn rule_lists(draft: &mut PolicyDraft) -> impl Iterator<Item = &mut Vec<RuleItem>> {
    let global = draft.global_space.as_mut().and_then(|global| match global {
        GlobalSpaceDraft::Union => None,
        GlobalSpaceDraft::Rules(rules) => Some(rules),
    });
    let spaces = draft.spaces.iter_mut().map(|space| &mut space.rules);
    std::iter::once(&mut draft.rules)
        .chain(global)
        .chain(spaces)
}

/// Returns the dead rules by their ids, each with the reason.
fn find_dead_rules(compiled: &CompiledPolicy, draft: &PolicyDraft) -> BTreeMap<String, String> {
    let mut dead = BTreeMap::new();
    for problem in compiled.inert_rules.iter().chain(&compiled.problems) {
        let is_dead = problem.message.contains("can never decide")
            || problem.message.contains("never has an effect");
        if let Some(rule) = problem.rule.as_ref().filter(|_| is_dead) {
            dead.insert(rule.as_str().to_owned(), problem.message.clone());
        }
    }
    if dead.is_empty() && !draft.search_skipped {
        find_covered_rules(&compiled.policy, draft, &mut dead);
    }
    dead
}

/// Finds rules that decide about requests only, and of which it is proved that they decide none.
fn find_covered_rules(policy: &Policy, draft: &PolicyDraft, dead: &mut BTreeMap<String, String>) {
    let mut deciding = Vec::new();
    let mut lists = vec![&draft.rules];
    lists.extend(draft.spaces.iter().map(|space| &space.rules));
    for rules in lists {
        collect_deciding_rules(rules, &mut deciding);
    }
    let mut finder = VerdictFinder::new(policy);
    for id in deciding.into_iter().take(MAX_PROVED_RULES) {
        let Some(rule) = policy.rule_index(id) else {
            continue;
        };
        let mut is_never = |verdict| {
            let query = VerdictQuery {
                verdict,
                rule: Some(rule),
                under: None,
                crawler: None,
            };
            matches!(finder.find(&query), VerdictAnswer::Never)
        };
        if is_never(WantedVerdict::Allow) && is_never(WantedVerdict::Reject) {
            let why = "can never decide: other rules decide all requests that it fits";
            dead.insert(id.to_owned(), why.to_owned());
        }
    }
}

fn collect_deciding_rules<'d>(items: &'d [RuleItem], found: &mut Vec<&'d str>) {
    for item in items {
        let RuleItem::Rule(rule) = item else {
            continue;
        };
        match &rule.body {
            RuleDraftBody::Filter(filter) => {
                // A filter with its own consequences matters even after another one.
                if !filter.log && filter.reject.is_none() {
                    found.push(&rule.id);
                }
            }
            RuleDraftBody::Group(group) => {
                let sets_verdict = matches!(group.then, Some("allow" | "disallow"));
                if sets_verdict && group.set.is_empty() && !group.stop && group.rules.is_empty() {
                    found.push(&rule.id);
                }
                collect_deciding_rules(&group.rules, found);
            }
        }
    }
}

fn replace(items: &mut [RuleItem], dead: &BTreeMap<String, String>) {
    for item in items {
        let RuleItem::Rule(rule) = item else {
            continue;
        };
        if let Some(why) = dead.get(&rule.id) {
            let comment = dead_comment(rule, why);
            *item = RuleItem::Comment(comment);
        } else if let RuleDraftBody::Group(group) = &mut rule.body {
            replace(&mut group.rules, dead);
        }
    }
}

fn dead_comment(rule: &RuleDraft, why: &str) -> String {
    let mut lines = rule.notes.clone();
    lines.push(format!("dead: {}: {why}", rule.id));
    lines.join("\n")
}

//! Rules that can never decide: they are written as comments, and the report lists their parts as dead.

use std::collections::{BTreeMap, BTreeSet};

use crawlgate_policy::internal::policy::Policy;
use crawlgate_policy::internal::policy::compile::CompiledPolicy;

use crate::compile::compile_draft;
use crate::draft::{
    CaseRequest, GlobalSpaceDraft, PolicyDraft, RuleDraft, RuleDraftBody, RuleItem,
};
use crate::input::ImportError;
use crate::report::Report;
use crate::search::{SearchResult, search_requests};

/// A policy without dead rules.
pub(crate) struct LivePolicy {
    pub policy: Policy,
    /// Requests that its rules decide; none if the search is skipped.
    pub requests: Vec<CaseRequest>,
}

/// Replaces dead rules by comments until there are none.
pub(crate) fn remove_dead_rules(
    draft: &mut PolicyDraft,
    report: &mut Report,
) -> Result<LivePolicy, ImportError> {
    loop {
        let compiled = compile_draft(draft)?;
        let mut dead = find_inert_rules(&compiled);
        let mut found = SearchResult::default();
        if dead.is_empty() && !draft.search_skipped {
            found = search_requests(&compiled.policy);
            dead = find_covered_rules(draft, &found.never);
        }
        if dead.is_empty() {
            return Ok(LivePolicy {
                policy: compiled.policy,
                requests: found.requests,
            });
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

/// Returns the rules that the compiler finds dead, by their ids, each with the reason.
fn find_inert_rules(compiled: &CompiledPolicy) -> BTreeMap<String, String> {
    let mut dead = BTreeMap::new();
    for problem in compiled.inert_rules.iter().chain(&compiled.problems) {
        let is_dead = problem.message.contains("can never decide")
            || problem.message.contains("never has an effect");
        if let Some(rule) = problem.rule.as_ref().filter(|_| is_dead) {
            dead.insert(rule.as_str().to_owned(), problem.message.clone());
        }
    }
    dead
}

/// Returns the rules that do nothing but decide about requests, and of which it is proved that they decide none.
fn find_covered_rules(draft: &PolicyDraft, never: &BTreeSet<String>) -> BTreeMap<String, String> {
    let mut deciding = Vec::new();
    let mut lists = vec![&draft.rules];
    lists.extend(draft.spaces.iter().map(|space| &space.rules));
    for rules in lists {
        collect_deciding_rules(rules, &mut deciding);
    }
    let why = "can never decide: other rules decide all requests that it fits";
    let dead = deciding.into_iter().filter(|id| never.contains(*id));
    dead.map(|id| (id.to_owned(), why.to_owned())).collect()
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

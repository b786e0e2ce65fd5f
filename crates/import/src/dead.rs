//! Rules that are written as comments: those that can never decide, whose parts the report lists as dead, and those
//! with values that a policy cannot have, whose parts are not converted.

use std::collections::{BTreeMap, BTreeSet};

use crawlgate_policy::internal::policy::Policy;
use crawlgate_policy::internal::policy::compile::CompiledPolicy;

use crate::compile::{to_defect, try_compile};
use crate::draft::{
    CaseRequest, GlobalSpaceDraft, PolicyDraft, RuleDraft, RuleDraftBody, RuleItem,
};
use crate::input::ImportError;
use crate::report::{MissingPart, Report};
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
        let compiled = compile_without_invalid_rules(draft, report)?;
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
        for rules in rule_lists(draft) {
            omit_included_rules(rules, &dead, report);
        }
        for (id, why) in &dead {
            report.set_dead(id, why);
        }
        for rules in rule_lists(draft) {
            replace(rules, "dead", &dead);
        }
    }
}

/// Compiles a draft. Rules with values that a policy cannot have, such as a host with a letter that no host has,
/// become comments.
fn compile_without_invalid_rules(
    draft: &mut PolicyDraft,
    report: &mut Report,
) -> Result<CompiledPolicy, ImportError> {
    loop {
        let problems = match try_compile(draft) {
            Ok(compiled) => return Ok(compiled),
            Err(problems) => problems,
        };
        let mut invalid = BTreeMap::new();
        for problem in problems.iter().filter(|problem| problem.is_error()) {
            if let Some(rule) = &problem.rule {
                let found = problem.found.as_deref().map(|found| format!(": `{found}`"));
                let why = format!("{}{}", problem.message, found.unwrap_or_default());
                invalid.entry(rule.as_str().to_owned()).or_insert(why);
            }
        }
        let mut replaced = Vec::new();
        for rules in rule_lists(draft) {
            replaced.extend(replace(rules, "not converted", &invalid));
        }
        if replaced.is_empty() {
            return Err(to_defect(&problems));
        }
        for (rule, why) in replaced {
            set_invalid(&rule, &why, report);
        }
    }
}

/// Lists the parts of a rule, and of those in it, as not converted.
fn set_invalid(rule: &RuleDraft, why: &str, report: &mut Report) {
    let failure = match &rule.body {
        RuleDraftBody::Filter(_) => MissingPart::LetsThrough,
        RuleDraftBody::Group(group) => match group.then {
            Some("allow" | "exclude-but-scan") => MissingPart::KeepsOut,
            Some(_) => MissingPart::LetsThrough,
            None => MissingPart::OtherSetting,
        },
    };
    report.set_invalid(&rule.id, why, failure);
    if let RuleDraftBody::Group(group) = &rule.body {
        for item in &group.rules {
            if let RuleItem::Rule(inner) = item {
                set_invalid(inner, why, report);
            }
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

/// Removes the dead rules that another rule includes. Their parts became that one.
fn omit_included_rules(
    rules: &mut Vec<RuleItem>,
    dead: &BTreeMap<String, String>,
    report: &mut Report,
) {
    rules.retain(|item| {
        let RuleItem::Rule(rule) = item else {
            return true;
        };
        match rule.included_in.filter(|_| dead.contains_key(&rule.id)) {
            Some(other) => {
                report.rename_target(&rule.id, other);
                false
            }
            None => true,
        }
    });
}

/// Replaces rules by comments with the reasons. Returns these rules.
fn replace(
    items: &mut [RuleItem],
    label: &str,
    reasons: &BTreeMap<String, String>,
) -> Vec<(RuleDraft, String)> {
    let mut replaced = Vec::new();
    for item in items {
        let RuleItem::Rule(rule) = item else {
            continue;
        };
        if let Some(why) = reasons.get(&rule.id) {
            replaced.push((RuleDraft::clone(rule), why.clone()));
            *item = RuleItem::Comment(comment(rule, label, why));
        } else if let RuleDraftBody::Group(group) = &mut rule.body {
            replaced.extend(replace(&mut group.rules, label, reasons));
        }
    }
    replaced
}

fn comment(rule: &RuleDraft, label: &str, why: &str) -> String {
    let mut lines = rule.notes.clone();
    lines.push(format!("{label}: {}: {why}", rule.id));
    lines.join("\n")
}

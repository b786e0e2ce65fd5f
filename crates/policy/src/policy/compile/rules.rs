//! Builds rules from drafts: assignments, effects, and the stages at which each rule is active.

use crate::diagnostics::problem::Problem;
use crate::diagnostics::problems::Problems;
use crate::model::number::saturating_u32;
use crate::policy::options::Assignment;
use crate::policy::rule::{
    ChildOrder, EnforcementMode, FilterRule, GroupGuard, GroupRule, PolicyStage, Rule, RuleBody,
    RuleClass, RuleIndex, StageSet,
};
use crate::policy::source::tree::{SourceFilter, SourceGroup, SourceGuard, SourceRuleBody};

use super::checks;
use super::drafts::{IntermediateRule, RuleDrafts};
use super::options::OptionCompiler;
use super::stages::RulePlacement;

pub(super) fn compile_rules(
    drafts: &mut RuleDrafts<'_>,
    placements: &[RulePlacement],
    classes: &[RuleClass],
    options: &mut OptionCompiler,
    problems: &mut Problems,
) -> Box<[Rule]> {
    let mut rules: Vec<Rule> = Vec::with_capacity(drafts.all.len());
    for ((draft, placement), class) in drafts.all.iter_mut().zip(placements).zip(classes) {
        let before = problems.enter_rule(Some(draft.source.name().clone()));
        let body = compile_body(draft, placement, options, problems);
        rules.push(build_rule(draft, placement, *class, body));
        problems.enter_rule(before);
    }
    propagate_stages_to_parents(&mut rules);
    rules.into()
}

fn rule_index(index: usize) -> RuleIndex {
    RuleIndex(saturating_u32(index))
}

fn compile_body(
    draft: &mut IntermediateRule<'_>,
    placement: &RulePlacement,
    options: &mut OptionCompiler,
    problems: &mut Problems,
) -> RuleBody {
    let source = draft.source;
    match &source.body {
        SourceRuleBody::Group(group) => {
            RuleBody::Group(build_group(draft, group, placement, options, problems))
        }
        SourceRuleBody::Filter(filter) => {
            checks::check_filter(filter, problems);
            RuleBody::Filter(build_filter(draft, filter))
        }
    }
}

fn build_rule(
    draft: &IntermediateRule<'_>,
    placement: &RulePlacement,
    class: RuleClass,
    body: RuleBody,
) -> Rule {
    let source = draft.source;
    Rule {
        id: source.name().clone(),
        about: source.about.clone(),
        mode: draft.mode,
        parent: draft.parent.map(rule_index),
        end: rule_index(draft.end),
        earliest_stage: placement.bounds.earliest,
        stage: placement.bounds.latest,
        header_stages: placement.header_stages(),
        content_only: placement.content_only,
        active_stages: active_stages(draft, placement),
        class,
        body,
    }
}

fn build_group(
    draft: &mut IntermediateRule<'_>,
    group: &SourceGroup,
    placement: &RulePlacement,
    options: &mut OptionCompiler,
    problems: &mut Problems,
) -> GroupRule {
    let assign: Box<[Assignment]> = options.assignments(group, placement, problems);
    // In a `match: first` list an empty group has an effect: it keeps later rules from being
    // processed.
    let idle = assign.is_empty()
        && group.set.is_empty()
        && !group.stop
        && group.rules.is_empty()
        && !placement.in_first_match;
    // The reported part may be what the group was meant to do.
    if idle && !problems.has_errors_in(draft.source.name()) {
        let problem = Problem::warning(&draft.source.place, "the group has no effect");
        problems.push(
            problem.with_help("add `then`, `set`, `rules` or `stop`; to refuse URLs use `forbid`"),
        );
    }
    GroupRule {
        guard: match &group.guard {
            SourceGuard::Always => GroupGuard::Always,
            SourceGuard::When(_) => GroupGuard::When(draft.take_condition()),
            SourceGuard::Unless(_) => GroupGuard::Unless(draft.take_condition()),
        },
        assignments: assign,
        stop: group.stop,
        order: placement
            .first_match
            .map_or(ChildOrder::All, |list| ChildOrder::First(list.stage)),
    }
}

fn build_filter(draft: &mut IntermediateRule<'_>, filter: &SourceFilter) -> FilterRule {
    FilterRule {
        kind: filter.sense,
        condition: draft.take_condition(),
        log: filter.log,
        reject_intent: filter.reject,
        reject_status: filter.reject_status,
        soft_error: filter.soft_error.as_ref().map(|soft| soft.value),
    }
}

/// Returns the stages at which a rule is active: a group at the stages at which it may run, a
/// filter from the first stage at which its condition may be decided.
fn active_stages(draft: &IntermediateRule<'_>, placement: &RulePlacement) -> StageSet {
    let first = match &draft.source.body {
        SourceRuleBody::Group(_) => placement.with_headers.latest,
        SourceRuleBody::Filter(_) => placement.first_decidable,
    };
    let mut active = StageSet::default();
    if draft.mode != EnforcementMode::Disabled {
        let stages = PolicyStage::ALL
            .into_iter()
            .filter(|stage| (first..=placement.bounds.latest).contains(stage));
        stages.for_each(|stage| active.insert(stage));
    }
    active
}

/// Activates each group at the stages of the rules in it, unless only the child is in shadow mode.
/// Children follow their parents, so that one pass in reverse order is sufficient.
fn propagate_stages_to_parents(rules: &mut [Rule]) {
    for at in (0..rules.len()).rev() {
        let Some((active, mode, Some(parent))) = rules
            .get(at)
            .map(|rule| (rule.active_stages, rule.mode, rule.parent))
        else {
            continue;
        };
        if let Some(parent) = rules
            .get_mut(parent.0 as usize)
            .filter(|parent| parent.mode == mode)
        {
            parent.active_stages.insert_all(active);
        }
    }
}

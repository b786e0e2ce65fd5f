//! Detection of rules that can never decide, with the reason and the other rule that causes it.
//!
//! Each function states its proof. `R` is the rule and `C` its cause; a filter *matches*, a
//! group *applies*.

use crate::policy::options::{OptionIndex, schema};
use crate::policy::rule::{ChildOrder, EnforcementMode, GroupRule, PolicyStage, Rule, RuleBody};

use super::WorkBudget;
use super::lint_view::LintView;

/// The reason for which a rule can never decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeadReason {
    /// Its condition cannot hold.
    Contradiction,
    /// Its condition cannot hold together with those of the groups around it.
    ContradictsParents,
    /// This group stops before the rule is reached.
    AfterStop(usize),
    /// This rule of its `match: first` list matches wherever the rule would.
    AfterSibling(usize),
    /// This filter matches wherever the rule would decide.
    Filtered(usize),
    /// This group overwrites all its options.
    Overwritten(usize),
}

impl DeadReason {
    /// Returns `true` for a reason of the same kind, because of another rule or the same.
    pub(crate) fn is_like(self, other: Self) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }

    /// The other rule that is the cause, if there is one.
    pub(crate) fn cause(self) -> Option<usize> {
        match self {
            Self::Contradiction | Self::ContradictsParents => None,
            Self::AfterStop(by)
            | Self::AfterSibling(by)
            | Self::Filtered(by)
            | Self::Overwritten(by) => Some(by),
        }
    }
}

/// Options without effect on a request that a filter refuses.
pub(crate) const ADMITTED_ONLY_OPTIONS: [OptionIndex; 4] = [
    schema::DISPOSITION,
    schema::HTML_ONLY,
    schema::option_index("index"),
    schema::option_index("follow"),
];

/// Returns the reason for which an enforced rule can never decide, if that can be proved.
pub(super) fn find_reason(
    view: &LintView<'_>,
    at: usize,
    budget: &WorkBudget,
) -> Option<DeadReason> {
    let rule = view.rule(at)?;
    // Other rules in such a list may take their stage from this one, and would run at another stage
    // without it.
    if !can_be_dead(view, at) {
        return None;
    }
    contradiction(view, at)
        .or_else(|| after_stop(view, at, rule, budget))
        .or_else(|| after_sibling(view, at, rule, budget))
        .or_else(|| filtered(view, at, rule, budget))
        .or_else(|| overwritten(view, at, rule, budget))
}

/// Returns `true` if siblings without fields in a `match: first` list may take their stage from a
/// rule.
fn sets_sibling_stages(view: &LintView<'_>, at: usize) -> bool {
    let enforced_or_shadow: Vec<usize> = siblings(view, at)
        .filter(|other| *other != at)
        .filter(|other| {
            view.rule(*other)
                .is_some_and(|rule| rule.mode != EnforcementMode::Disabled)
        })
        .collect();
    let others: Vec<bool> = enforced_or_shadow
        .into_iter()
        .map(|other| condition_fields(view, other).any)
        .collect();
    let any_without_fields = others.contains(&false);
    // In a policy with spaces, siblings may also take their class from it.
    let is_special = condition_fields(view, at).special || !view.policy().spaces().all().is_empty();
    any_without_fields && (is_special || !others.contains(&true))
}

/// Properties of the fields in a rule's condition.
#[derive(Default)]
struct ConditionFields {
    any: bool,
    /// Some of them change which responses the rule matches.
    special: bool,
}

fn condition_fields(view: &LintView<'_>, at: usize) -> ConditionFields {
    let mut fields = ConditionFields::default();
    if let Some(assertion) = view.assertion(at) {
        assertion.condition.for_each_field(&mut |field| {
            fields.any = true;
            fields.special |= field.needs_content() || field.allows_any_status();
        });
    }
    fields
}

/// Returns the direct children of the group around a rule.
fn siblings<'v>(view: &'v LintView<'_>, at: usize) -> impl Iterator<Item = usize> + 'v {
    let parent = view
        .rule(at)
        .and_then(|rule| rule.parent)
        .map(|parent| parent.0 as usize);
    let (from, end) = match parent.and_then(|parent| Some((parent, view.rule(parent)?))) {
        Some((parent, rule)) => (parent + 1, rule.end.0 as usize),
        None => (0, 0),
    };
    let mut next = from;
    std::iter::from_fn(move || {
        let first_child = Some(next).filter(|next| *next < end)?;
        next = view.rule(first_child)?.end.0 as usize;
        Some(first_child)
    })
}

/// The conditions never hold together at any stage, since facts never change once they are known.
fn contradiction(view: &LintView<'_>, at: usize) -> Option<DeadReason> {
    if !view.assumptions(at)?.are_contradictory() {
        return None;
    }
    let assumptions = super::logic::Assumptions::new(view.assertion(at), view.lists());
    Some(if assumptions.are_contradictory() {
        DeadReason::Contradiction
    } else {
        DeadReason::ContradictsParents
    })
}

/// `C` stops, comes before `R`, and applies wherever `R` would, at the only stage at which `R` can
/// have an effect.
fn after_stop(
    view: &LintView<'_>,
    at: usize,
    rule: &Rule,
    budget: &WorkBudget,
) -> Option<DeadReason> {
    view.stops()
        .iter()
        .copied()
        .take_while(|stop| *stop < at && budget.try_visit(1))
        .filter(|stop| may_stop(view, *stop, at, rule))
        .find(|stop| {
            budget.try_compare()
                && view.is_reached_with(*stop, at)
                && view.applies_wherever(*stop, at)
        })
        .map(DeadReason::AfterStop)
}

/// Returns `true` if a stop keeps the rule from having any effect wherever the stop applies and is
/// reached.
fn may_stop(view: &LintView<'_>, stop: usize, at: usize, rule: &Rule) -> bool {
    view.first_stage(at) == Some(rule.stage)
        && stop < at
        && view.rule(stop).is_some_and(|stop| stop.stage == rule.stage)
        && view.share_list(stop, at)
        && !view.is_nested(stop, at)
}

/// `C` comes before `R` in the same `match: first` list, both run at the stage of the list, and `C`
/// applies wherever `R` would.
fn after_sibling(
    view: &LintView<'_>,
    at: usize,
    rule: &Rule,
    budget: &WorkBudget,
) -> Option<DeadReason> {
    let stage = first_match_stage(view, rule)?;
    let assumptions = view.assumptions(at)?;
    siblings(view, at)
        .take_while(|other| *other < at && budget.try_visit(1))
        .find(|other| {
            may_match_first(view, *other, at, rule, stage)
                && budget.try_compare()
                && view
                    .assertion(*other)
                    .is_none_or(|assertion| assumptions.entail(assertion))
        })
        .map(DeadReason::AfterSibling)
}

/// Returns the stage of the `match: first` list that a rule is in.
fn first_match_stage(view: &LintView<'_>, rule: &Rule) -> Option<PolicyStage> {
    match &view.rule(rule.parent?.0 as usize)?.body {
        RuleBody::Group(GroupRule {
            order: ChildOrder::First(stage),
            ..
        }) => Some(*stage),
        RuleBody::Group(_) | RuleBody::Filter(_) => None,
    }
}

/// Returns `true` if a sibling in a `match: first` list precedes the rule wherever it applies.
fn may_match_first(
    view: &LintView<'_>,
    other: usize,
    at: usize,
    rule: &Rule,
    stage: PolicyStage,
) -> bool {
    let Some(cause) = view.rule(other) else {
        return false;
    };
    other < at
        && cause.stage == stage
        && rule.stage == stage
        && view.is_sound(other)
        && view.has_fixed_stage(other)
        && view.has_fixed_stage(at)
        && view.have_same_class(other, at)
        && (view.is_content_only(at) || !cause.content_only)
}

/// `C` matches wherever `R` would decide, and not later; a match is final.
fn filtered(
    view: &LintView<'_>,
    at: usize,
    rule: &Rule,
    budget: &WorkBudget,
) -> Option<DeadReason> {
    if !can_be_filtered(view, at, rule) {
        return None;
    }
    view.candidate_causes(at, budget)
        .into_iter()
        .find(|other| {
            may_filter(view, *other, at, rule)
                && budget.try_compare()
                && view.is_reached_with(*other, at)
                && view.applies_wherever(*other, at)
        })
        .map(DeadReason::Filtered)
}

fn can_be_filtered(view: &LintView<'_>, at: usize, rule: &Rule) -> bool {
    !view.is_in_first_match(at) && view.is_leaf(at) && is_void_after_filter(rule)
}

/// Returns `true` if a filter keeps the rule from having any effect wherever the filter matches
/// and is reached.
fn may_filter(view: &LintView<'_>, other: usize, at: usize, rule: &Rule) -> bool {
    let (Some(cause), Some(first)) = (view.rule(other), view.first_stage(at)) else {
        return false;
    };
    let RuleBody::Filter(filter) = &cause.body else {
        return false;
    };
    other != at
        && decides_in_time(other, cause, at, rule, first)
        && is_log_covered(rule, filter.log)
        && !view.is_nested(other, at)
}

/// Returns `true` for a filter, and for a group that has no effect after a filter has matched.
fn is_void_after_filter(rule: &Rule) -> bool {
    match &rule.body {
        RuleBody::Filter(_) => true,
        RuleBody::Group(group) => {
            let has_effect = group
                .assignments
                .iter()
                .any(|assignment| !ADMITTED_ONLY_OPTIONS.contains(&assignment.index));
            !has_effect && !group.assignments.is_empty() && !group.stop
        }
    }
}

/// Returns `false` for a filter that logs if the other one does not log.
fn is_log_covered(rule: &Rule, log: bool) -> bool {
    match &rule.body {
        RuleBody::Filter(filter) => log || !filter.log,
        RuleBody::Group(_) => true,
    }
}

/// Returns `true` if the filter `C` is decided when `R` decides, and before `R` if they decide at
/// the same stage.
fn decides_in_time(
    cause_at: usize,
    cause: &Rule,
    at: usize,
    rule: &Rule,
    first: PolicyStage,
) -> bool {
    match &rule.body {
        RuleBody::Filter(_) => {
            cause_at < at && cause.earliest_stage <= rule.earliest_stage || cause.stage < first
        }
        RuleBody::Group(_) => cause.stage <= rule.stage,
    }
}

/// The group `C` comes after `R` and applies at the same stage wherever `R` does. It assigns every
/// option that `R` does, and there is no stop between them.
fn overwritten(
    view: &LintView<'_>,
    at: usize,
    rule: &Rule,
    budget: &WorkBudget,
) -> Option<DeadReason> {
    if !can_be_overwritten(view, at, rule) {
        return None;
    }
    view.candidate_causes(at, budget)
        .into_iter()
        .find(|other| {
            may_overwrite(view, *other, at, rule)
                && budget.try_compare()
                && applies_after(view, *other, at)
                && view.applies_wherever(*other, at)
        })
        .map(DeadReason::Overwritten)
}

fn can_be_overwritten(view: &LintView<'_>, at: usize, rule: &Rule) -> bool {
    match &rule.body {
        RuleBody::Group(group) => {
            !group.stop
                && !group.assignments.is_empty()
                && view.is_leaf(at)
                && !view.is_in_first_match(at)
        }
        RuleBody::Filter(_) => false,
    }
}

/// Returns `true` if a later group assigns every option that the rule assigns, at the same stage.
fn may_overwrite(view: &LintView<'_>, other: usize, at: usize, rule: &Rule) -> bool {
    let RuleBody::Group(group) = &rule.body else {
        return false;
    };
    other > at
        && view
            .rule(other)
            .is_some_and(|cause| cause.stage == rule.stage && assigns_all(cause, group))
}

/// Returns `true` if a rule may be dead at all: its removal does not change the stage of others.
pub(crate) fn can_be_dead(view: &LintView<'_>, at: usize) -> bool {
    !(view.is_in_first_match(at) && sets_sibling_stages(view, at))
}

/// Returns the reason for which a rule has no effect wherever another rule applies, if there is
/// one. Several other rules may together apply wherever the rule does.
pub(crate) fn reason_where_applied(
    view: &LintView<'_>,
    at: usize,
    other: usize,
) -> Option<DeadReason> {
    let rule = view.rule(at)?;
    if let Some(stage) = first_match_stage(view, rule)
        && view.rule(other)?.parent == rule.parent
        && may_match_first(view, other, at, rule, stage)
    {
        return Some(DeadReason::AfterSibling(other));
    }
    if !view.is_comparable(other, at) {
        return None;
    }
    let reaches = || view.is_reached_with(other, at);
    if view.stops().contains(&other) && may_stop(view, other, at, rule) && reaches() {
        return Some(DeadReason::AfterStop(other));
    }
    if can_be_filtered(view, at, rule) && may_filter(view, other, at, rule) && reaches() {
        return Some(DeadReason::Filtered(other));
    }
    (can_be_overwritten(view, at, rule)
        && may_overwrite(view, other, at, rule)
        && applies_after(view, other, at))
    .then_some(DeadReason::Overwritten(other))
}

/// Returns `true` if a rule assigns every option that a group assigns.
fn assigns_all(rule: &Rule, group: &GroupRule) -> bool {
    let RuleBody::Group(last) = &rule.body else {
        return false;
    };
    group.assignments.iter().all(|assignment| {
        last.assignments
            .iter()
            .any(|other| other.index == assignment.index)
    })
}

/// Returns `true` if no stop keeps the group `cause`, which comes after the rule, from being met
/// where the rule is reached.
fn applies_after(view: &LintView<'_>, cause: usize, at: usize) -> bool {
    let Some(stage) = view.rule(at).map(|rule| rule.stage) else {
        return false;
    };
    let same_stage = view
        .unshared_path(cause, at)
        .iter()
        .all(|at| view.rule(*at).is_some_and(|rule| rule.stage == stage));
    same_stage && !view.has_stop_between(at, cause)
}

//! Rules that can never decide: why, and because of which other rule.
//!
//! Each reason has its proof beside it. `R` is the rule, `C` its cause; a filter *hits*, a group *applies*.

use crate::policy::options::{OptionSlot, schema};
use crate::policy::rule::{ChildOrder, EnforcementMode, GroupRule, PolicyStage, Rule, RuleBody};

use super::WorkBudget;
use super::lint_view::LintView;

/// Why a rule can never decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeadReason {
    /// Its own condition cannot hold.
    Contradiction,
    /// Its condition cannot hold together with those of the groups around it.
    ContradictsParents,
    /// This group stops before it is reached.
    AfterStop(usize),
    /// This rule of its `match: first` list is taken whenever it could be.
    AfterSibling(usize),
    /// This filter hits whatever it decides.
    Filtered(usize),
    /// This group assigns all of it again.
    Overwritten(usize),
}

impl DeadReason {
    /// The rule that is the cause, if it is another one.
    pub(super) fn cause(self) -> Option<usize> {
        match self {
            Self::Contradiction | Self::ContradictsParents => None,
            Self::AfterStop(by)
            | Self::AfterSibling(by)
            | Self::Filtered(by)
            | Self::Overwritten(by) => Some(by),
        }
    }
}

/// Options that mean nothing to a request that a filter refuses.
const ADMITTED_ONLY_OPTIONS: [OptionSlot; 4] = [
    schema::DISPOSITION,
    schema::HTML_ONLY,
    schema::slot("index"),
    schema::slot("follow"),
];

/// Why a live rule can never decide, if that can be proved.
pub(super) fn find_reason(
    view: &LintView<'_>,
    at: usize,
    budget: &WorkBudget,
) -> Option<DeadReason> {
    let rule = view.rule(at)?;
    // In such a list the other rules may take their stage from this one, and would run elsewhere without it.
    if view.is_in_first_match(at) && sets_sibling_stages(view, at) {
        return None;
    }
    contradiction(view, at)
        .or_else(|| after_stop(view, at, rule, budget))
        .or_else(|| after_sibling(view, at, rule, budget))
        .or_else(|| filtered(view, at, rule, budget))
        .or_else(|| overwritten(view, at, rule, budget))
}

/// Whether a rule of a `match: first` list could be what tells a sibling without facts when to run.
fn sets_sibling_stages(view: &LintView<'_>, at: usize) -> bool {
    let names = |at: usize| {
        let condition = view.assertion(at).map(|claim| claim.condition);
        let (mut facts, mut special) = (0_usize, false);
        if let Some(condition) = condition {
            condition.for_each_field(&mut |field| {
                facts += 1;
                special |= field.needs_content() || field.allows_any_status();
            });
        }
        (facts > 0, special)
    };
    let (_, special) = names(at);
    let takes_part = |other: &usize| {
        view.rule(*other)
            .is_some_and(|rule| rule.mode != EnforcementMode::Disabled)
    };
    let others = siblings(view, at)
        .filter(|other| *other != at)
        .filter(takes_part);
    let others: Vec<bool> = others.map(|other| names(other).0).collect();
    let borrowers = others.iter().any(|facts| !facts);
    // Where there are spaces, they may take from it what they count as.
    let special = special || !view.policy().spaces().all().is_empty();
    borrowers && (special || !others.iter().any(|facts| *facts))
}

/// The direct children of the group that a rule stands in.
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
        let here = Some(next).filter(|next| *next < end)?;
        next = view.rule(here)?.end.0 as usize;
        Some(here)
    })
}

/// The conditions are never all yes, at any stage: facts only become known.
fn contradiction(view: &LintView<'_>, at: usize) -> Option<DeadReason> {
    if !view.assumptions(at)?.are_contradictory() {
        return None;
    }
    let alone = super::logic::Assumptions::new(view.assertion(at), view.lists());
    Some(if alone.are_contradictory() {
        DeadReason::Contradiction
    } else {
        DeadReason::ContradictsParents
    })
}

/// `C` stops and stands before `R`; it applies wherever `R` would, at the one stage at which `R` could do anything.
fn after_stop(
    view: &LintView<'_>,
    at: usize,
    rule: &Rule,
    budget: &WorkBudget,
) -> Option<DeadReason> {
    if view.first_stage(at) != Some(rule.stage) {
        return None;
    }
    let stops = view.stops().iter().copied();
    let before = stops
        .take_while(|stop| *stop < at && budget.try_visit(1))
        .filter(|stop| {
            let same_stage = view
                .rule(*stop)
                .is_some_and(|stop| stop.stage == rule.stage);
            same_stage && view.share_list(*stop, at) && !view.is_nested(*stop, at)
        });
    let mut met = before.filter(|stop| {
        budget.try_compare() && view.is_reached_with(*stop, at) && view.applies_wherever(*stop, at)
    });
    met.next().map(DeadReason::AfterStop)
}

/// `C` stands before `R` in the same `match: first` list, both run at its stage, and `C` applies wherever `R` would.
fn after_sibling(
    view: &LintView<'_>,
    at: usize,
    rule: &Rule,
    budget: &WorkBudget,
) -> Option<DeadReason> {
    let parent = view.rule(rule.parent?.0 as usize)?;
    let RuleBody::Group(GroupRule {
        order: ChildOrder::First(stage),
        ..
    }) = &parent.body
    else {
        return None;
    };
    let premises = view.assumptions(at)?;
    let gated = view.is_content_only(at);
    let taken = |other: &usize| {
        let Some(cause) = view.rule(*other) else {
            return false;
        };
        let judges = gated || !cause.content_only;
        let together = cause.stage == *stage && rule.stage == *stage && view.is_sound(*other);
        let together = together
            && view.has_fixed_stage(*other)
            && view.has_fixed_stage(at)
            && view.have_same_class(*other, at);
        together
            && judges
            && budget.try_compare()
            && view
                .assertion(*other)
                .is_none_or(|claim| premises.entail(claim))
    };
    siblings(view, at)
        .take_while(|other| *other < at && budget.try_visit(1))
        .find(taken)
        .map(DeadReason::AfterSibling)
}

/// `C` hits wherever `R` would decide, and not later: what is filtered stays so.
fn filtered(
    view: &LintView<'_>,
    at: usize,
    rule: &Rule,
    budget: &WorkBudget,
) -> Option<DeadReason> {
    if view.is_in_first_match(at) || !view.is_leaf(at) || !is_void_after_filter(rule) {
        return None;
    }
    let first = view.first_stage(at)?;
    let rules = view
        .candidate_causes(at, budget)
        .into_iter()
        .filter_map(|other| Some((other, view.rule(other)?)));
    let filters = rules.filter(|(other, cause)| {
        let RuleBody::Filter(filter) = &cause.body else {
            return false;
        };
        *other != at
            && decides_in_time(*other, cause, at, rule, first)
            && is_log_covered(rule, filter.log)
    });
    let mut hits = filters.filter(|(other, _)| {
        budget.try_compare()
            && !view.is_nested(*other, at)
            && view.is_reached_with(*other, at)
            && view.applies_wherever(*other, at)
    });
    hits.next().map(|(other, _)| DeadReason::Filtered(other))
}

/// A filter, or a group of which nothing counts once a filter has hit.
fn is_void_after_filter(rule: &Rule) -> bool {
    match &rule.body {
        RuleBody::Filter(_) => true,
        RuleBody::Group(group) => {
            let idle = group
                .assignments
                .iter()
                .all(|assignment| ADMITTED_ONLY_OPTIONS.contains(&assignment.slot));
            idle && !group.assignments.is_empty() && !group.stop
        }
    }
}

/// A filter that logs is needed for that even where another one hits.
fn is_log_covered(rule: &Rule, log: bool) -> bool {
    match &rule.body {
        RuleBody::Filter(filter) => log || !filter.log,
        RuleBody::Group(_) => true,
    }
}

/// Whether the filter `C` has been decided when `R` decides, and before it where both are at one stage.
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

/// The group `C` stands behind `R` and applies at the same stage wherever `R` does; it assigns every option that `R`
/// does, and nothing stops between them.
fn overwritten(
    view: &LintView<'_>,
    at: usize,
    rule: &Rule,
    budget: &WorkBudget,
) -> Option<DeadReason> {
    let RuleBody::Group(group) = &rule.body else {
        return None;
    };
    if group.stop || group.assignments.is_empty() || !view.is_leaf(at) || view.is_in_first_match(at)
    {
        return None;
    }
    let rules = view
        .candidate_causes(at, budget)
        .into_iter()
        .filter(|other| *other > at);
    let rules = rules.filter_map(|other| Some((other, view.rule(other)?)));
    let later = rules.filter(|(_, cause)| {
        let RuleBody::Group(last) = &cause.body else {
            return false;
        };
        let assigns = |slot| {
            last.assignments
                .iter()
                .any(|assignment| assignment.slot == slot)
        };
        let again = group
            .assignments
            .iter()
            .all(|assignment| assigns(assignment.slot));
        again && cause.stage == rule.stage
    });
    let mut again = later.filter(|(other, _)| {
        budget.try_compare() && applies_after(view, *other, at) && view.applies_wherever(*other, at)
    });
    again
        .next()
        .map(|(other, _)| DeadReason::Overwritten(other))
}

/// Whether nothing that stops keeps a group behind a rule from being met where the rule is.
fn applies_after(view: &LintView<'_>, cause: usize, at: usize) -> bool {
    let Some(stage) = view.rule(at).map(|rule| rule.stage) else {
        return false;
    };
    let together = view
        .unshared_path(cause, at)
        .iter()
        .all(|at| view.rule(*at).is_some_and(|rule| rule.stage == stage));
    together && !view.has_stop_between(at, cause)
}

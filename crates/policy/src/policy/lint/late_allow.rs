//! Detection of rules that allow at a later stage what an earlier one has refused: the natural but
//! wrong way to write "only PDFs".

use crate::model::disposition::Disposition;
use crate::policy::options::{OptionValue, schema};
use crate::policy::rule::{PolicyStage, Rule, RuleBody};

use super::WorkBudget;
use super::lint_view::{Knowledge, LintView};

/// The refusal of everything that a rule allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EarlierRefusal {
    /// The refusing rule; `None` for the document's `options`.
    pub(super) by: Option<usize>,
    pub(super) stage: PolicyStage,
}

/// Returns the earlier refusal of everything that a rule allows, if that can be proved.
pub(super) fn find_earlier_refusal(
    view: &LintView<'_>,
    at: usize,
    budget: &WorkBudget,
) -> Option<EarlierRefusal> {
    // Headers may let the rule run at the stage of the refusing rule.
    if !view.has_fixed_stage(at) {
        return None;
    }
    let rule = view
        .rule(at)
        .filter(|rule| rule.stage > PolicyStage::Request && allows(rule) == Some(true))?;
    let default = refuses_by_default(view).then_some(EarlierRefusal {
        by: None,
        stage: PolicyStage::Request,
    });
    let by_rules = view
        .candidate_causes(at, budget)
        .into_iter()
        .filter_map(|other| Some((other, view.rule(other)?)))
        .filter(|(_, cause)| cause.stage < rule.stage && allows(cause) == Some(false))
        .filter(|(other, _)| !view.is_nested(*other, at))
        .map(|(other, cause)| EarlierRefusal {
            by: Some(other),
            stage: cause.stage,
        });
    default.into_iter().chain(by_rules).find(|refusal| {
        budget.try_compare()
            && applies(view, at, *refusal)
            && stays_refused(view, at, *refusal, budget)
    })
}

/// Returns `true` if the refusing rule applies wherever the rule does.
fn applies(view: &LintView<'_>, at: usize, refusal: EarlierRefusal) -> bool {
    refusal
        .by
        .is_none_or(|by| view.is_reached_with(by, at) && view.applies_wherever(by, at))
}

/// Returns `true` if no later rule at the refusing stage allows any of it again.
fn stays_refused(
    view: &LintView<'_>,
    at: usize,
    refusal: EarlierRefusal,
    budget: &WorkBudget,
) -> bool {
    let Some(assumptions) = view.assumptions(at) else {
        return false;
    };
    let after = refusal.by.map_or(0, |by| by + 1);
    if !budget.try_visit(view.policy().rules.len()) {
        return false;
    }
    let rules = view.policy().rules.iter().enumerate().skip(after);
    let mut allowing = rules.filter(|(other, rule)| {
        let may_allow = allows(rule) == Some(true) || !view.is_sound(*other);
        let in_time = rule.stage == refusal.stage || !view.has_fixed_stage(*other);
        in_time && view.is_live(*other) && may_allow
    });
    allowing.all(|(other, _)| {
        let path = view.path(other).iter();
        budget.try_compare()
            && assumptions
                .with(path.filter_map(|at| view.assertion(*at)))
                .are_contradictory()
    })
}

/// Returns whether a group's disposition allows; `None` if the rule does not set it.
pub(crate) fn allows(rule: &Rule) -> Option<bool> {
    let RuleBody::Group(group) = &rule.body else {
        return None;
    };
    let last = group
        .assignments
        .iter()
        .rev()
        .find(|assignment| assignment.index == schema::DISPOSITION)?;
    Some(last.value == OptionValue::Disposition(Disposition::Allow))
}

/// Returns `true` if the default refuses and no space overrides it.
fn refuses_by_default(view: &LintView<'_>) -> bool {
    let spaces = view.policy().spaces().all();
    if spaces
        .iter()
        .any(|space| space.value(schema::DISPOSITION).is_some())
    {
        return false;
    }
    let base = view
        .policy()
        .options
        .entries
        .first()
        .map(|entry| &entry.base);
    view.knowledge() == Knowledge::Complete
        && base != Some(&OptionValue::Disposition(Disposition::Allow))
}

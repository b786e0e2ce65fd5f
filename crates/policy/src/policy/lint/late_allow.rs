//! Rules that allow at a later stage what an earlier one has refused: the natural but wrong way to write "only PDFs".

use crate::model::disposition::Disposition;
use crate::policy::options::{OptionValue, schema};
use crate::policy::rule::{PolicyStage, Rule, RuleBody};

use super::WorkBudget;
use super::lint_view::{Knowledge, LintView};

/// What has refused everything that a rule allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EarlierRefusal {
    /// The rule; none for the document's `options`.
    pub(super) by: Option<usize>,
    /// At which stage.
    pub(super) stage: PolicyStage,
}

/// What has refused everything that a rule allows, if that can be proved.
pub(super) fn find_earlier_refusal(
    view: &LintView<'_>,
    at: usize,
    budget: &WorkBudget,
) -> Option<EarlierRefusal> {
    // Headers may let it run where the refusing rule does.
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
    let rules = view
        .candidate_causes(at, budget)
        .into_iter()
        .filter_map(|other| Some((other, view.rule(other)?)));
    let rules = rules.filter(|(_, cause)| cause.stage < rule.stage && allows(cause) == Some(false));
    let applying = rules.filter(|(other, _)| !view.is_nested(*other, at));
    let rules = applying.map(|(other, cause)| EarlierRefusal {
        by: Some(other),
        stage: cause.stage,
    });
    let mut candidates = default.into_iter().chain(rules);
    candidates.find(|refusing| {
        budget.try_compare()
            && applies(view, at, *refusing)
            && stays_refused(view, at, *refusing, budget)
    })
}

/// Whether the refusing rule applies wherever the rule does.
fn applies(view: &LintView<'_>, at: usize, refusing: EarlierRefusal) -> bool {
    refusing
        .by
        .is_none_or(|by| view.is_reached_with(by, at) && view.applies_wherever(by, at))
}

/// Whether no rule behind the refusing one at its stage allows any of it again.
fn stays_refused(
    view: &LintView<'_>,
    at: usize,
    refusing: EarlierRefusal,
    budget: &WorkBudget,
) -> bool {
    let Some(premises) = view.assumptions(at) else {
        return false;
    };
    let behind = refusing.by.map_or(0, |by| by + 1);
    if !budget.try_visit(view.policy().rules.len()) {
        return false;
    }
    let rules = view.policy().rules.iter().enumerate().skip(behind);
    let mut allowing = rules.filter(|(other, rule)| {
        let perhaps = allows(rule) == Some(true) || !view.is_sound(*other);
        let in_time = rule.stage == refusing.stage || !view.has_fixed_stage(*other);
        in_time && view.is_live(*other) && perhaps
    });
    let claims = |other: usize| view.path(other).iter().filter_map(|at| view.assertion(*at));
    allowing
        .all(|(other, _)| budget.try_compare() && premises.with(claims(other)).are_contradictory())
}

/// Whether a group allows or refuses by its disposition; none if it sets none.
pub(super) fn allows(rule: &Rule) -> Option<bool> {
    let RuleBody::Group(group) = &rule.body else {
        return None;
    };
    let last = group
        .assignments
        .iter()
        .rev()
        .find(|assignment| assignment.slot == schema::DISPOSITION)?;
    Some(last.value == OptionValue::Disposition(Disposition::Allow))
}

/// Whether the default refuses, and no space has another one.
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

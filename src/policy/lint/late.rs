//! Rules that allow at a later stage what an earlier one has refused: the natural but wrong way to write "only PDFs".

use crate::policy::options::{Value, schema};
use crate::policy::rule::{PolicyStage, Rule, RuleBody};
use crate::vocab::disposition::Disposition;

use super::Budget;
use super::view::View;

/// What has refused everything that a rule allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusing {
    /// The rule; none for the document's `options`.
    pub(super) by: Option<usize>,
    /// At which stage.
    pub(super) stage: PolicyStage,
}

/// What has refused everything that a rule allows, if that can be proved.
pub(super) fn refused_before(view: &View<'_>, at: usize, budget: &mut Budget) -> Option<Refusing> {
    // Headers may let it run where the refusing rule does.
    if view.may_run_early(at) {
        return None;
    }
    let rule =
        view.rule(at).filter(|rule| rule.stage > PolicyStage::Request && allows(rule) == Some(true))?;
    let default = (!base_allows(view)).then_some(Refusing { by: None, stage: PolicyStage::Request });
    let rules = view.policy().rules.iter().enumerate().filter(|(other, cause)| {
        cause.stage < rule.stage && view.is_live(*other) && allows(cause) == Some(false)
    });
    let applying = rules.filter(|(other, _)| !view.is_nested(*other, at));
    let rules = applying.map(|(other, cause)| Refusing { by: Some(other), stage: cause.stage });
    let mut candidates = default.into_iter().chain(rules);
    candidates
        .find(|refusing| budget.take() && applies(view, at, *refusing) && stays(view, at, *refusing, budget))
}

/// Whether the refusing rule applies wherever the rule does.
fn applies(view: &View<'_>, at: usize, refusing: Refusing) -> bool {
    refusing.by.is_none_or(|by| view.is_met(by, at) && view.follows(by, at))
}

/// Whether no rule behind the refusing one at its stage allows any of it again.
fn stays(view: &View<'_>, at: usize, refusing: Refusing, budget: &mut Budget) -> bool {
    let Some(premises) = view.premises(at) else { return false };
    let behind = refusing.by.map_or(0, |by| by + 1);
    let rules = view.policy().rules.iter().enumerate().skip(behind);
    let mut allowing = rules.filter(|(other, rule)| {
        let in_time = rule.stage == refusing.stage || view.may_run_early(*other);
        in_time && view.is_live(*other) && allows(rule) == Some(true)
    });
    let claims = |other: usize| view.path(other).iter().filter_map(|at| view.claim(*at));
    allowing.all(|(other, _)| budget.take() && premises.and(claims(other)).are_contradictory())
}

/// Whether a group allows or refuses by its disposition; none if it sets none.
fn allows(rule: &Rule) -> Option<bool> {
    let RuleBody::Group(group) = &rule.body else { return None };
    let last = group.assign.iter().rev().find(|assignment| assignment.slot == schema::DISPOSITION)?;
    Some(last.value == Value::Disposition(Disposition::Allow))
}

/// Whether the default allows, or the options of a space may.
fn base_allows(view: &View<'_>) -> bool {
    if view.policy().spaces().all().iter().any(|space| space.value(schema::DISPOSITION).is_some()) {
        return true;
    }
    let base = view.policy().options.entries.first().map(|entry| &entry.base);
    matches!(base, Some(Value::Disposition(Disposition::Allow)))
}

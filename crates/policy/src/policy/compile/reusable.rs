//! Selects the rules that the next policy takes over if their texts are unchanged.

use crate::diagnostics::problem::{Problem, SourceLocation};
use crate::model::number::saturating_u32;
use crate::policy::condition::{AtomTest, Condition};
use crate::policy::field::Field;
use crate::policy::rule::{Rule, RuleIndex};
use crate::policy::source::rule_texts::{ReusableRules, is_restorable};
use crate::policy::source::tree::SourcePolicy;

use super::drafts::{RuleDrafts, RuleScope};

/// Selects the rules of a valid policy that are independent of the rest of its text.
pub(super) fn select_rules(
    source: &SourcePolicy,
    drafts: &RuleDrafts<'_>,
    rules: &[Rule],
    problems: &[Problem],
) -> ReusableRules {
    let outermost: Vec<usize> = drafts
        .all
        .iter()
        .enumerate()
        .filter(|(_, draft)| draft.scope == RuleScope::Document && draft.parent.is_none())
        .map(|(at, _)| at)
        .collect();
    let find = |number: usize| {
        let at = *outermost.get(number)?;
        let draft = drafts.all.get(at).filter(|draft| !draft.has_dead_values)?;
        let is_independent = rules.get(at)?.condition().is_none_or(is_independent);
        let is_reusable = is_independent && is_restorable(draft.source);
        is_reusable.then(|| (RuleIndex(saturating_u32(at)), draft.source))
    };
    let problems: Vec<&SourceLocation> = problems.iter().map(|found| &found.location).collect();
    ReusableRules::new(&source.rule_texts, find, &problems)
}

/// Returns `true` for a condition that refers to nothing else in the policy or the configuration: no
/// list, and no crawler, whose name the configuration may not know.
fn is_independent(condition: &Condition) -> bool {
    let mut is_independent = true;
    condition.for_each_atom(&mut |atom| {
        let is_list = matches!(atom.test, AtomTest::InList(_));
        is_independent &= !is_list && atom.field != Field::Crawler;
    });
    is_independent
}

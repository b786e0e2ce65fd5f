//! Overlaps: spaces whose rules allow the same URL, so that two crawlers fetch it.
//!
//! An overlap is shown by a URL that both allow, as far as the request goes; where none is found nothing is claimed.
//! What the document or a default allows is everybody's, and no overlap.

use crate::policy::decide::{Cause, Verdict};
use crate::policy::fact::Facts;
use crate::policy::space::Space;
use crate::urls::target::UrlTarget;

use super::WorkBudget;
use super::late_allow::allows;
use super::lint_view::LintView;
use super::witness;

/// Two spaces that allow the same URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SpaceOverlap {
    /// The rule of the earlier space.
    pub(super) first: usize,
    /// The rule of the later one.
    pub(super) second: usize,
    /// The names of the spaces.
    pub(super) spaces: [String; 2],
    /// The URL.
    pub(super) url: String,
}

/// One overlap of each two spaces that have any.
pub(super) fn find_overlaps(view: &LintView<'_>, budget: &WorkBudget) -> Vec<SpaceOverlap> {
    let spaces = view.policy().spaces().all();
    let later = |at: usize| (at + 1..spaces.len()).map(move |other| (at, other));
    let pairs = (0..spaces.len()).flat_map(later);
    pairs
        .filter_map(|(one, other)| find_overlap(view, one, other, budget))
        .collect()
}

fn find_overlap(
    view: &LintView<'_>,
    one: usize,
    other: usize,
    budget: &WorkBudget,
) -> Option<SpaceOverlap> {
    let spaces = view.policy().spaces().all();
    let pair = [spaces.get(one)?, spaces.get(other)?];
    allowing_rules(view, one).find_map(|first| {
        allowing_rules(view, other)
            .take_while(|_| budget.try_compare())
            .find_map(|second| {
                let url = find_shared_url(view, [first, second], pair)?;
                let spaces = pair.map(|space| space.name.as_str().to_owned());
                Some(SpaceOverlap {
                    first,
                    second,
                    spaces,
                    url,
                })
            })
    })
}

/// The rules of a space that allow.
fn allowing_rules(view: &LintView<'_>, space: usize) -> impl Iterator<Item = usize> {
    let rules = view.policy().rules.iter().enumerate();
    let own = rules.filter(move |(at, _)| view.is_sound(*at) && view.belongs_to_space(*at, space));
    own.filter(|(_, rule)| allows(rule) == Some(true))
        .map(|(at, _)| at)
}

/// A URL that both rules allow, each to a crawler of its space.
fn find_shared_url(view: &LintView<'_>, rules: [usize; 2], spaces: [&Space; 2]) -> Option<String> {
    let [first, second] = rules;
    let premises = view.assumptions(first)?.with(
        view.path(second)
            .iter()
            .filter_map(|at| view.assertion(*at)),
    );
    let target =
        witness::candidate_url(view, &premises).filter(|_| !premises.are_contradictory())?;
    let both = rules
        .into_iter()
        .zip(spaces)
        .all(|(rule, space)| is_allowed_by(view, rule, space, &target));
    both.then(|| target.as_str().to_owned())
}

fn is_allowed_by(view: &LintView<'_>, rule: usize, space: &Space, target: &UrlTarget) -> bool {
    // A space without crawlers is that of all that are in no other.
    let crawler = space
        .crawlers
        .first()
        .map_or("a-crawler-that-no-space-names", |name| name);
    let facts = Facts {
        crawler,
        ..Facts::for_url(target)
    };
    let (_, decision) = view.policy().decide(&facts);
    let by = matches!(decision.cause, Cause::Rule(cause) if cause.0 as usize == rule);
    by && decision.verdict == Verdict::Admit
}

//! Detection of spaces whose rules allow the same URL, so that two crawlers fetch it.
//!
//! An overlap is proved by a URL that both spaces allow at the request stage. What the document or
//! a default allows is common to all spaces and not an overlap.

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
    /// The rule of the later space.
    pub(super) second: usize,
    pub(super) spaces: [String; 2],
    pub(super) url: String,
}

/// Returns one overlap for each pair of spaces that overlap.
pub(super) fn find_overlaps(view: &LintView<'_>, budget: &WorkBudget) -> Vec<SpaceOverlap> {
    let spaces = view.policy().spaces().all();
    (0..spaces.len())
        .flat_map(|one| (one + 1..spaces.len()).map(move |other| (one, other)))
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

/// Returns the rules of a space that allow.
fn allowing_rules(view: &LintView<'_>, space: usize) -> impl Iterator<Item = usize> {
    let rules = view.policy().rules.iter().enumerate();
    let space_rules =
        rules.filter(move |(at, _)| view.is_sound(*at) && view.belongs_to_space(*at, space));
    space_rules
        .filter(|(_, rule)| allows(rule) == Some(true))
        .map(|(at, _)| at)
}

/// Returns a URL that both rules allow, each for a crawler of its space.
fn find_shared_url(view: &LintView<'_>, rules: [usize; 2], spaces: [&Space; 2]) -> Option<String> {
    let [first, second] = rules;
    let assumptions = view.assumptions(first)?.with(
        view.path(second)
            .iter()
            .filter_map(|at| view.assertion(*at)),
    );
    let target =
        witness::candidate_url(view, &assumptions).filter(|_| !assumptions.are_contradictory())?;
    let shared = rules
        .into_iter()
        .zip(spaces)
        .all(|(rule, space)| is_allowed_by(view, rule, space, &target));
    shared.then(|| target.as_str().to_owned())
}

fn is_allowed_by(view: &LintView<'_>, rule: usize, space: &Space, target: &UrlTarget) -> bool {
    // A space without crawlers is for all crawlers that are in no other space.
    let crawler = space
        .crawlers
        .first()
        .map_or("a-crawler-that-no-space-names", |name| name);
    let facts = Facts {
        crawler,
        ..Facts::for_url(target)
    };
    let (_, decision) = view.policy().decide(&facts);
    let decides = matches!(decision.cause, Cause::Rule(cause) if cause.0 as usize == rule);
    decides && decision.verdict == Verdict::Admit
}

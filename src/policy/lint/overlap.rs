//! Overlaps: spaces whose rules allow the same URL, so that two crawlers fetch it.
//!
//! An overlap is shown by a URL that both allow, as far as the request goes; where none is found nothing is claimed.
//! What the document or a default allows is everybody's, and no overlap.

use crate::policy::decide::{Cause, Verdict};
use crate::policy::fact::Facts;
use crate::policy::space::Space;
use crate::vocab::target::UrlTarget;

use super::Budget;
use super::late::allows;
use super::view::View;
use super::witness;

/// Two spaces that allow the same URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Overlap {
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
pub(super) fn all(view: &View<'_>, budget: &Budget) -> Vec<Overlap> {
    let spaces = view.policy().spaces().all();
    let later = |at: usize| (at + 1..spaces.len()).map(move |other| (at, other));
    let pairs = (0..spaces.len()).flat_map(later);
    pairs
        .filter_map(|(one, other)| of_two(view, one, other, budget))
        .collect()
}

fn of_two(view: &View<'_>, one: usize, other: usize, budget: &Budget) -> Option<Overlap> {
    let spaces = view.policy().spaces().all();
    let pair = [spaces.get(one)?, spaces.get(other)?];
    allowing(view, one).find_map(|first| {
        allowing(view, other)
            .take_while(|_| budget.take())
            .find_map(|second| {
                let url = both_allow(view, [first, second], pair)?;
                let spaces = pair.map(|space| space.name.as_str().to_owned());
                Some(Overlap {
                    first,
                    second,
                    spaces,
                    url,
                })
            })
    })
}

/// The rules of a space that allow.
fn allowing(view: &View<'_>, space: usize) -> impl Iterator<Item = usize> {
    let rules = view.policy().rules.iter().enumerate();
    let own = rules.filter(move |(at, _)| view.is_sound(*at) && view.is_of_space(*at, space));
    own.filter(|(_, rule)| allows(rule) == Some(true))
        .map(|(at, _)| at)
}

/// A URL that both rules allow, each to a crawler of its space.
fn both_allow(view: &View<'_>, rules: [usize; 2], spaces: [&Space; 2]) -> Option<String> {
    let [first, second] = rules;
    let premises = view
        .premises(first)?
        .and(view.path(second).iter().filter_map(|at| view.claim(*at)));
    let target = witness::candidate(view, &premises).filter(|_| !premises.are_contradictory())?;
    let both = rules
        .into_iter()
        .zip(spaces)
        .all(|(rule, space)| is_allowed_by(view, rule, space, &target));
    both.then(|| target.as_str().to_owned())
}

fn is_allowed_by(view: &View<'_>, rule: usize, space: &Space, target: &UrlTarget) -> bool {
    // A space without crawlers is that of all that are in no other.
    let crawler = space
        .crawlers
        .first()
        .map_or("a-crawler-that-no-space-names", |name| name);
    let facts = Facts {
        crawler,
        ..Facts::of_url(target)
    };
    let (_, decision) = view.policy().decide(&facts);
    let by = matches!(decision.cause, Cause::Rule(cause) if cause.0 as usize == rule);
    by && decision.verdict == Verdict::Admit
}

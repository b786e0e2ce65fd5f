//! Lint: rules that cannot do what their author wants, found by plain reasoning on conditions (policy.md section 9).
//!
//! What is claimed is proved, for URLs whose stages are run one after the other: a rule that is called dead never
//! decides about one, and without it no decision would differ. What cannot be proved is not claimed. Of tunnels,
//! which hide URLs, nothing is said: a dead rule may leave one undecided.
//!
//! [`logic`] knows what follows from conditions, [`view`] which rule is met before which; [`dead`] and [`late`] put
//! the two together.

mod dead;
mod late;
mod logic;
mod overlap;
mod text;
mod tunnels;
mod view;
mod witness;

use std::cell::Cell;

use super::Policy;
use super::source::tree::{SourceBody, SourceRule};
use crate::vocab::problem::{Place, Problem};
use crate::vocab::problems::Problems;

use dead::Death;
use view::View;

/// What is doubtful about the rules of a policy; `sources` are its rules as they were written, in the same order.
///
/// Of what else is wrong with the policy `errors` tells: rules with errors stand in for others that nobody knows, so
/// that nothing is claimed of them or because of them.
pub(in crate::policy) fn lint(
    policy: &Policy,
    sources: &[&SourceRule],
    errors: &Problems,
) -> Vec<Problem> {
    let view = View::of(policy, errors);
    let budget = Budget::default();
    let mut problems = Vec::new();
    let mut dead_until = 0;
    for at in 0..policy.rules.len() {
        let (Some(rule), Some(source)) = (policy.rules.get(at), sources.get(at)) else {
            continue;
        };
        // What stands in a dead group is dead with it; of the global space the first rule that fits decides a code.
        if at < dead_until || !view.is_sound(at) || !view.is_live(at) {
            continue;
        }
        if let Some(death) = dead::of(&view, at, &budget) {
            dead_until = rule.end.0 as usize;
            problems.push(obituary(&view, at, source, &death, sources).in_rule(Some(&rule.id)));
        } else if let Some(refusing) = late::refused_before(&view, at, &budget) {
            problems.push(in_vain(&view, source, refusing, sources).in_rule(Some(&rule.id)));
        }
    }
    let overlaps = overlap::all(&view, &budget);
    problems.extend(
        overlaps
            .iter()
            .filter_map(|overlap| shared(&view, overlap, sources)),
    );
    problems
}

/// How much work is done, so that a policy of many thousand rules still loads in no time. Beyond that nothing is found,
/// and nothing is claimed.
#[derive(Debug)]
struct Budget(Cell<usize>);

impl Default for Budget {
    fn default() -> Self {
        Self(Cell::new(4_000_000))
    }
}

impl Budget {
    /// Whether two rules may be compared.
    fn take(&self) -> bool {
        self.spend(20)
    }

    /// Whether so many rules may be looked at.
    fn looks_at(&self, rules: usize) -> bool {
        self.spend(rules)
    }

    fn spend(&self, work: usize) -> bool {
        let left = self.0.get();
        self.0.set(left.saturating_sub(work));
        left > 0
    }
}

fn place_of(source: &SourceRule) -> &Place {
    source.id.as_ref().map_or(&source.place, |id| &id.place)
}

/// A rule by its name and its place.
fn named(view: &View<'_>, at: usize, sources: &[&SourceRule]) -> String {
    let id = view.rule(at).map_or("", |rule| rule.id.as_str());
    match sources.get(at) {
        Some(source) => format!("rule `{id}` ({})", place_of(source)),
        None => format!("rule `{id}`"),
    }
}

fn obituary(
    view: &View<'_>,
    at: usize,
    source: &SourceRule,
    death: &Death,
    sources: &[&SourceRule],
) -> Problem {
    let name = |other: usize| named(view, other, sources);
    let (message, help) = match *death {
        Death::Contradiction => (
            "can never decide: its condition cannot hold".to_owned(),
            None,
        ),
        Death::AgainstParents => (
            "can never decide: its condition contradicts those of the rules around it".to_owned(),
            None,
        ),
        Death::BehindStop(other) => {
            let message = format!(
                "can never decide: {} stops before it is reached",
                name(other)
            );
            (
                message,
                Some("put it before that rule, or take `stop` away"),
            )
        }
        Death::BehindSibling(other) => {
            let message = format!(
                "can never decide: {} of the same `match: first` list is taken instead",
                name(other)
            );
            (message, Some("put the narrower rule first"))
        }
        Death::Filtered(other) => {
            let message = format!(
                "can never decide: {} filters all that it applies to",
                name(other)
            );
            (message, Some(after_a_filter(source)))
        }
        Death::Overwritten(other) => {
            let message = format!(
                "can never decide: {} applies as well and sets all of it again",
                name(other)
            );
            (
                message,
                Some("the last assignment wins: put the wider rule first"),
            )
        }
    };
    let example = death.by().and_then(|_| witness::of(view, at));
    let message = example.iter().fold(message, |message, url| {
        format!("{message}; for example {url}")
    });
    let problem = Problem::warning(place_of(source), message);
    help.into_iter()
        .fold(problem, |problem, help| problem.help(help))
}

fn after_a_filter(source: &SourceRule) -> &'static str {
    match source.body {
        SourceBody::Filter(_) => "leave it out, or make the other rule narrower",
        SourceBody::Group(_) => {
            "what is filtered stays filtered: an exception belongs into that rule's condition"
        }
    }
}

fn shared(view: &View<'_>, overlap: &overlap::Overlap, sources: &[&SourceRule]) -> Option<Problem> {
    let [first, second] = &overlap.spaces;
    let message = format!(
        "the spaces `{first}` and `{second}` overlap: {} allows {} too, and both crawlers fetch it",
        named(view, overlap.first, sources),
        overlap.url
    );
    let problem = Problem::warning(place_of(sources.get(overlap.second)?), message);
    let problem = problem.help(
        "leave it to one of them, or write the options that differ under `spaces.NAME.options`",
    );
    Some(problem.in_rule(view.rule(overlap.second).map(|rule| &rule.id)))
}

fn in_vain(
    view: &View<'_>,
    source: &SourceRule,
    refusing: late::Refusing,
    sources: &[&SourceRule],
) -> Problem {
    let by = match refusing.by {
        Some(rule) => named(view, rule, sources),
        None => "the default".to_owned(),
    };
    let then = match &source.body {
        SourceBody::Group(group) => group.then.as_ref().map(|then| &then.place),
        SourceBody::Filter(_) => None,
    };
    let stage = refusing.stage.as_str();
    let message = format!(
        "allows in vain: {by} has refused all of it at the {stage} stage, and a refusal is final"
    );
    let instead =
        format!("allow it at the {stage} stage, and `forbid` or `require` by what is known later");
    Problem::warning(then.unwrap_or_else(|| place_of(source)), message).help(instead)
}

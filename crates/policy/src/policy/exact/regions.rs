//! The requests that a rule applies to, as formulas.

use crate::policy::Policy;
use crate::policy::cases::CaseFacts;
use crate::policy::condition::{Assertion, Polarity, Truth};
use crate::policy::lint::lint_view::LintView;

use super::formula::Formula;
use super::question::Solver;

/// A policy and the automata of its tests.
pub(super) struct AnalysedPolicy<'p> {
    pub(super) view: LintView<'p>,
    pub(super) policy: &'p Policy,
}

impl<'p> AnalysedPolicy<'p> {
    pub(super) fn new(policy: &'p Policy) -> Self {
        Self {
            view: LintView::without_errors(policy),
            policy,
        }
    }

    /// Returns the requests to which a rule and the groups around it apply. Stops and lists of
    /// which only the first match applies are not considered.
    pub(super) fn region(&self, solver: &mut Solver, at: usize) -> Formula {
        let crawlers = self.crawlers(solver, at);
        let path = self.assertions(solver, self.view.path(at));
        Formula::all([crawlers, path])
    }

    /// Returns the requests for which the conditions of rules hold.
    pub(super) fn assertions(&self, solver: &mut Solver, rules: &[usize]) -> Formula {
        let parts: Vec<Formula> = rules
            .iter()
            .filter_map(|at| self.view.assertion(*at))
            .map(|assertion| self.assertion(solver, assertion))
            .collect();
        Formula::all(parts)
    }

    fn assertion(&self, solver: &mut Solver, assertion: Assertion<'_>) -> Formula {
        let formula = solver
            .table
            .condition(assertion.condition, &self.policy.lists);
        match assertion.polarity {
            Polarity::Yes => formula,
            Polarity::No => formula.negate(),
        }
    }

    /// Returns the requests by crawlers for which a rule is evaluated.
    fn crawlers(&self, solver: &mut Solver, at: usize) -> Formula {
        match self.view.space_of(at) {
            Some(space) => self.space_crawlers(solver, space),
            None => Formula::Constant(true),
        }
    }

    fn space_crawlers(&self, solver: &mut Solver, space: usize) -> Formula {
        let spaces = self.policy.spaces().all();
        let names = |space: &'p crate::policy::space::Space| space.crawlers.iter().map(|n| &**n);
        let own: Vec<&str> = spaces.get(space).into_iter().flat_map(names).collect();
        if !own.is_empty() {
            return solver.table.crawlers(&own);
        }
        let others: Vec<&str> = spaces.iter().flat_map(names).collect();
        if others.is_empty() {
            return Formula::Constant(true);
        }
        solver.table.crawlers(&others).negate()
    }

    /// Returns `true` if the conditions of a rule and of the groups around it hold.
    pub(super) fn holds(&self, at: usize, facts: &CaseFacts) -> bool {
        self.all_hold(self.view.path(at), facts)
            && self.view.space_of(at).is_none_or(|space| {
                let (trail, _) = self.policy.decide(&facts.facts());
                trail.space().is_some_and(|own| usize::from(own.0) == space)
            })
    }

    /// Returns `true` if the conditions of rules hold.
    pub(super) fn all_hold(&self, rules: &[usize], facts: &CaseFacts) -> bool {
        let facts = facts.facts();
        rules
            .iter()
            .filter_map(|at| self.view.assertion(*at))
            .all(|assertion| assertion.evaluate(&facts, &self.policy.lists) == Truth::Yes)
    }
}

//! The rules as lint looks at them: what must hold where one is met, and which is met before which.

use crate::policy::Policy;
use crate::policy::rule::{ChildOrder, Guard, Mode, PolicyStage, Rule, RuleBody, RuleIndex, Sense};

use super::logic::{Claim, Premises, Value};

/// A policy, laid out for questions about its rules. Rules are named by their place.
pub(super) struct View<'p> {
    policy: &'p Policy,
    /// For each rule the groups around it, from outside, and itself.
    paths: Vec<Vec<usize>>,
    /// For each rule what holds where it applies or hits.
    premises: Vec<Premises<'p>>,
    /// The live groups that stop, in document order.
    stops: Vec<usize>,
}

/// The lists of a policy's rules that stand for themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Home {
    Document,
    Space(usize),
}

impl<'p> View<'p> {
    pub(super) fn of(policy: &'p Policy) -> Self {
        let mut view = Self { policy, paths: Vec::new(), premises: Vec::new(), stops: Vec::new() };
        for (at, rule) in policy.rules.iter().enumerate() {
            let parent = rule.parent.map(|parent| parent.0 as usize);
            let around = parent.and_then(|parent| view.paths.get(parent)).cloned().unwrap_or_default();
            let premises = match parent.and_then(|parent| view.premises.get(parent)) {
                Some(premises) => premises.and(claim(rule)),
                None => Premises::of(claim(rule), &policy.lists),
            };
            view.paths.push(around.into_iter().chain([at]).collect());
            view.premises.push(premises);
            let stops = matches!(&rule.body, RuleBody::Group(group) if group.stop);
            if stops && rule.mode == Mode::Enforce {
                view.stops.push(at);
            }
        }
        view
    }

    pub(super) fn policy(&self) -> &'p Policy {
        self.policy
    }

    pub(super) fn rule(&self, at: usize) -> Option<&'p Rule> {
        self.policy.rules.get(at)
    }

    /// Whether a rule takes part. Those of the global space decide no request.
    pub(super) fn is_live(&self, at: usize) -> bool {
        self.home(at).is_some() && self.rule(at).is_some_and(|rule| rule.mode == Mode::Enforce)
    }

    /// The list that a rule belongs to: the document's, or that of a space.
    fn home(&self, at: usize) -> Option<Home> {
        let index = RuleIndex(u32::try_from(at).ok()?);
        let spaces = self.policy.spaces();
        if spaces.runs(index, None) {
            return Some(Home::Document);
        }
        spaces.all().iter().position(|space| space.rules.contains(index)).map(Home::Space)
    }

    /// Whether two rules stand in one list, so that a stop among them ends it for both.
    pub(super) fn share_a_list(&self, at: usize, other: usize) -> bool {
        self.home(at) == self.home(other)
    }

    /// Whether `cause` is asked wherever `rule` is: it stands in the same list, or is for all crawlers.
    fn runs_with(&self, cause: usize, rule: usize) -> bool {
        self.home(cause) == Some(Home::Document) || self.share_a_list(cause, rule)
    }

    /// Whether headers decide at which stage a rule runs.
    pub(super) fn may_run_early(&self, at: usize) -> bool {
        self.rule(at).is_some_and(|rule| rule.by_headers.is_some())
    }

    /// What holds where a rule applies or hits.
    pub(super) fn premises(&self, at: usize) -> Option<&Premises<'p>> {
        self.premises.get(at)
    }

    /// The groups around a rule from outside, and itself.
    pub(super) fn path(&self, at: usize) -> &[usize] {
        self.paths.get(at).map_or(&[], Vec::as_slice)
    }

    /// What a rule itself asks, to apply or to hit.
    pub(super) fn claim(&self, at: usize) -> Option<Claim<'p>> {
        self.rule(at).and_then(claim)
    }

    /// Whether a rule contains no others.
    pub(super) fn is_leaf(&self, at: usize) -> bool {
        self.rule(at).is_some_and(|rule| rule.end.0 as usize == at + 1)
    }

    /// Whether a rule stands in a `match: first` list.
    pub(super) fn is_chosen(&self, at: usize) -> bool {
        let parent = self.rule(at).and_then(|rule| rule.parent);
        parent.and_then(|parent| self.rule(parent.0 as usize)).is_some_and(|parent| match &parent.body {
            RuleBody::Group(group) => matches!(group.order, ChildOrder::First(_)),
            RuleBody::Filter(_) => false,
        })
    }

    /// Whether a rule judges 2xx with content only, by itself or by a group around it.
    pub(super) fn is_gated(&self, at: usize) -> bool {
        self.path(at).iter().any(|at| self.rule(*at).is_some_and(|rule| rule.content_only))
    }

    /// The first stage at which a rule, or one in it, could do something.
    pub(super) fn first_stage(&self, at: usize) -> Option<PolicyStage> {
        let active = self.rule(at)?.active;
        PolicyStage::ALL.into_iter().find(|stage| active.contains(*stage))
    }

    /// The groups around a rule that are not around another, and itself.
    pub(super) fn beside(&self, at: usize, other: usize) -> &[usize] {
        let (path, other) = (self.path(at), self.path(other));
        let shared = path.iter().zip(other).take_while(|(a, b)| a == b).count();
        path.get(shared..).unwrap_or(&[])
    }

    /// Whether one of two rules stands in the other.
    pub(super) fn is_nested(&self, at: usize, other: usize) -> bool {
        self.path(at).contains(&other) || self.path(other).contains(&at)
    }

    /// Whether `cause` applies or hits wherever `rule` does, as soon as it is met. Nothing is said of stops.
    pub(super) fn follows(&self, cause: usize, rule: usize) -> bool {
        let Some(premises) = self.premises(rule) else { return false };
        let early = self.beside(cause, rule).iter().any(|at| self.may_run_early(*at));
        if early || self.may_run_early(rule) || !self.runs_with(cause, rule) {
            return false;
        }
        let gated = self.is_gated(rule);
        self.beside(cause, rule).iter().all(|at| {
            let judges = gated || !self.rule(*at).is_some_and(|rule| rule.content_only);
            judges && !self.is_chosen(*at) && self.claim(*at).is_none_or(|claim| premises.entail(claim))
        })
    }

    /// Whether no stop keeps `cause` from being met where `rule` is met: none stands before it, or both are met at one
    /// stage only, one behind the other, so that what stops the first stops the second.
    pub(super) fn is_met(&self, cause: usize, rule: usize) -> bool {
        let before = |stop: &usize| *stop < cause && !self.path(cause).contains(stop);
        !self.stops.iter().any(before) || self.are_met_together(cause, rule)
    }

    fn are_met_together(&self, cause: usize, rule: usize) -> bool {
        let Some(stage) = self.rule(rule).map(|rule| rule.stage) else { return false };
        let only_then =
            |at: &usize| self.rule(*at).is_some_and(|rule| rule.stage == stage) && self.acts_once(*at);
        let in_line = cause < rule && self.share_a_list(cause, rule);
        in_line && only_then(&rule) && self.beside(cause, rule).iter().all(only_then)
    }

    /// Whether a rule itself does something at its stage and no other: a filter may be decided early.
    pub(super) fn acts_once(&self, at: usize) -> bool {
        let Some(rule) = self.rule(at) else { return false };
        match rule.body {
            RuleBody::Group(_) => true,
            RuleBody::Filter(_) => self.first_stage(at) == Some(rule.stage),
        }
    }

    /// Whether a live group that stops stands from one place to another, the latter aside.
    pub(super) fn stops_between(&self, from: usize, to: usize) -> bool {
        self.stops.iter().any(|stop| (from..to).contains(stop))
    }

    /// The live groups that stop.
    pub(super) fn stops(&self) -> &[usize] {
        &self.stops
    }
}

/// What a rule asks, to apply or to hit; none of a group without a condition.
fn claim(rule: &Rule) -> Option<Claim<'_>> {
    match &rule.body {
        RuleBody::Group(group) => match &group.guard {
            Guard::Always => None,
            Guard::When(condition) => Some(Claim { condition, value: Value::Yes }),
            Guard::Unless(condition) => Some(Claim { condition, value: Value::No }),
        },
        RuleBody::Filter(filter) => {
            let value = match filter.sense {
                Sense::Forbid => Value::Yes,
                Sense::Require => Value::No,
            };
            Some(Claim { condition: &filter.condition, value })
        }
    }
}

//! The rules as lint looks at them: what must hold where one is met, and which is met before which.

use std::collections::HashMap;

use crate::policy::Policy;
use crate::policy::list::PolicyList;
use crate::policy::rule::{
    ChildOrder, EnforcementMode, FilterKind, GroupGuard, PolicyStage, Rule, RuleBody, RuleIndex,
};

use crate::diagnostics::problems::Problems;

use super::WorkBudget;
use super::logic::{Assertion, Assumptions, Polarity};

/// A policy, laid out for questions about its rules. Rules are named by their place.
pub(super) struct LintView<'p> {
    policy: &'p Policy,
    /// Its lists; none where they may be wrong.
    lists: &'p [PolicyList],
    knowledge: Knowledge,
    /// For each rule whether it takes part and it, and those around it, are as their author wrote them.
    sound: Vec<bool>,
    /// For each rule the groups around it, from outside, and itself.
    paths: Vec<Vec<usize>>,
    /// For each rule what holds where it applies or hits.
    assumptions: Vec<Assumptions<'p>>,
    /// The live groups that stop, in document order.
    stops: Vec<usize>,
    index: HostIndex,
}

/// What of a policy is as its author wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Knowledge {
    /// All of it.
    Complete,
    /// Rules without errors.
    SoundRules,
}

/// The live rules by the hosts that they name.
#[derive(Default)]
struct HostIndex {
    any_host: Vec<usize>,
    /// Those that name a few hosts, under each of them.
    by_host: HashMap<String, Vec<usize>>,
}

impl HostIndex {
    fn add(&mut self, at: usize, premises: &Assumptions<'_>) {
        match premises.host_sets().next() {
            Some(hosts) => hosts
                .into_iter()
                .for_each(|host| self.by_host.entry(host).or_default().push(at)),
            None => self.any_host.push(at),
        }
    }
}

/// The lists of a policy's rules that stand for themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RuleOwner {
    Document,
    Space(usize),
}

impl<'p> LintView<'p> {
    pub(super) fn new(policy: &'p Policy, errors: &Problems) -> Self {
        // Of a policy that is refused, what its lists and its options say may be what is wrong.
        let knowledge = if errors.has_errors() {
            Knowledge::SoundRules
        } else {
            Knowledge::Complete
        };
        let lists: &'p [PolicyList] = match knowledge {
            Knowledge::Complete => &policy.lists,
            Knowledge::SoundRules => &[],
        };
        let mut view = Self {
            policy,
            lists,
            knowledge,
            sound: Vec::new(),
            paths: Vec::new(),
            assumptions: Vec::new(),
            stops: Vec::new(),
            index: HostIndex::default(),
        };
        for (at, rule) in policy.rules.iter().enumerate() {
            let parent = rule.parent.map(|parent| parent.0 as usize);
            let around = parent
                .and_then(|parent| view.paths.get(parent))
                .cloned()
                .unwrap_or_default();
            let premises = match parent.and_then(|parent| view.assumptions.get(parent)) {
                Some(premises) => premises.with(rule_assertion(rule)),
                None => Assumptions::new(rule_assertion(rule), lists),
            };
            let around_is_sound = parent.is_none_or(|parent| view.is_sound(parent));
            let is_wrong = knowledge == Knowledge::SoundRules && errors.has_errors_in(&rule.id);
            let is_sound = view.is_live(at) && around_is_sound && !is_wrong;
            if is_sound {
                view.index.add(at, &premises);
            }
            view.sound.push(is_sound);
            view.paths.push(around.into_iter().chain([at]).collect());
            view.assumptions.push(premises);
            let stops = matches!(&rule.body, RuleBody::Group(group) if group.stop);
            if stops && rule.mode == EnforcementMode::Enforce {
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
        self.owner(at).is_some()
            && self
                .rule(at)
                .is_some_and(|rule| rule.mode == EnforcementMode::Enforce)
    }

    /// The list that a rule belongs to: the document's, or that of a space.
    fn owner(&self, at: usize) -> Option<RuleOwner> {
        let index = RuleIndex(u32::try_from(at).ok()?);
        let spaces = self.policy.spaces();
        if spaces.runs_rule(index, None) {
            return Some(RuleOwner::Document);
        }
        spaces
            .all()
            .iter()
            .position(|space| space.rules.contains(index))
            .map(RuleOwner::Space)
    }

    /// Whether a rule belongs to the space of this number.
    pub(super) fn belongs_to_space(&self, at: usize, space: usize) -> bool {
        self.owner(at) == Some(RuleOwner::Space(space))
    }

    /// Whether two rules stand in one list, so that a stop among them ends it for both.
    pub(super) fn share_list(&self, at: usize, other: usize) -> bool {
        self.owner(at) == self.owner(other)
    }

    /// Whether two rules count alike for the codes of refusals, which there are only where there are spaces.
    pub(super) fn have_same_class(&self, at: usize, other: usize) -> bool {
        let class = |at| self.rule(at).map(|rule| rule.class);
        self.policy.spaces().all().is_empty() || class(at) == class(other)
    }

    /// Whether `cause` is asked wherever `rule` is: it stands in the same list, or is for all crawlers.
    fn runs_with(&self, cause: usize, rule: usize) -> bool {
        self.owner(cause) == Some(RuleOwner::Document) || self.share_list(cause, rule)
    }

    /// Whether a rule takes part and nothing is wrong with it or with those around it.
    pub(super) fn is_sound(&self, at: usize) -> bool {
        self.sound.get(at).copied().unwrap_or(false)
    }

    pub(super) fn lists(&self) -> &'p [PolicyList] {
        self.lists
    }

    pub(super) fn knowledge(&self) -> Knowledge {
        self.knowledge
    }

    /// What holds where a rule applies or hits.
    pub(super) fn assumptions(&self, at: usize) -> Option<&Assumptions<'p>> {
        self.assumptions.get(at)
    }

    /// The groups around a rule from outside, and itself.
    pub(super) fn path(&self, at: usize) -> &[usize] {
        self.paths.get(at).map_or(&[], Vec::as_slice)
    }

    /// What a rule itself asks, to apply or to hit.
    pub(super) fn assertion(&self, at: usize) -> Option<Assertion<'p>> {
        self.rule(at).and_then(rule_assertion)
    }

    /// Whether a rule and those around it run at one stage whatever the response: not those that name what headers or
    /// else documents give.
    pub(super) fn has_fixed_stage(&self, at: usize) -> bool {
        self.path(at).iter().all(|at| {
            self.rule(*at)
                .is_some_and(|rule| rule.header_stages.is_none())
        })
    }

    /// Whether a rule contains no others.
    pub(super) fn is_leaf(&self, at: usize) -> bool {
        self.rule(at)
            .is_some_and(|rule| rule.end.0 as usize == at + 1)
    }

    /// Whether a rule stands in a `match: first` list.
    pub(super) fn is_in_first_match(&self, at: usize) -> bool {
        let parent = self.rule(at).and_then(|rule| rule.parent);
        parent
            .and_then(|parent| self.rule(parent.0 as usize))
            .is_some_and(|parent| match &parent.body {
                RuleBody::Group(group) => matches!(group.order, ChildOrder::First(_)),
                RuleBody::Filter(_) => false,
            })
    }

    /// Whether a rule judges 2xx with content only, by itself or by a group around it.
    pub(super) fn is_content_only(&self, at: usize) -> bool {
        self.path(at)
            .iter()
            .any(|at| self.rule(*at).is_some_and(|rule| rule.content_only))
    }

    /// The first stage at which a rule, or one in it, could do something.
    pub(super) fn first_stage(&self, at: usize) -> Option<PolicyStage> {
        let active = self.rule(at)?.active_stages;
        PolicyStage::ALL
            .into_iter()
            .find(|stage| active.contains(*stage))
    }

    /// The groups around a rule that are not around another, and itself.
    pub(super) fn unshared_path(&self, at: usize, other: usize) -> &[usize] {
        let (path, other) = (self.path(at), self.path(other));
        let shared = path.iter().zip(other).take_while(|(a, b)| a == b).count();
        path.get(shared..).unwrap_or(&[])
    }

    /// Whether one of two rules stands in the other.
    pub(super) fn is_nested(&self, at: usize, other: usize) -> bool {
        self.path(at).contains(&other) || self.path(other).contains(&at)
    }

    /// Whether `cause` applies or hits wherever `rule` does, as soon as it is met. Nothing is said of stops.
    pub(super) fn applies_wherever(&self, cause: usize, rule: usize) -> bool {
        let alike = self.has_fixed_stage(cause)
            && self.has_fixed_stage(rule)
            && self.runs_with(cause, rule);
        let alike = alike && self.have_same_class(cause, rule);
        if !self.is_sound(cause) || !alike {
            return false;
        }
        let Some(premises) = self.assumptions(rule) else {
            return false;
        };
        let gated = self.is_content_only(rule);
        self.unshared_path(cause, rule).iter().all(|at| {
            let judges = gated || !self.rule(*at).is_some_and(|rule| rule.content_only);
            judges
                && !self.is_in_first_match(*at)
                && self
                    .assertion(*at)
                    .is_none_or(|claim| premises.entail(claim))
        })
    }

    /// Whether no stop keeps `cause` from being met where `rule` is met: none stands before it, or both are met at one
    /// stage only, one behind the other, so that what stops the first stops the second.
    pub(super) fn is_reached_with(&self, cause: usize, rule: usize) -> bool {
        let before = |stop: &usize| *stop < cause && !self.path(cause).contains(stop);
        !self.stops.iter().any(before) || self.are_reached_together(cause, rule)
    }

    fn are_reached_together(&self, cause: usize, rule: usize) -> bool {
        let Some(stage) = self.rule(rule).map(|rule| rule.stage) else {
            return false;
        };
        let only_then = |at: &usize| {
            self.rule(*at).is_some_and(|rule| rule.stage == stage) && self.acts_at_one_stage(*at)
        };
        let in_line = cause < rule && self.share_list(cause, rule);
        in_line && only_then(&rule) && self.unshared_path(cause, rule).iter().all(only_then)
    }

    /// Whether a rule itself does something at its stage and no other: a filter may be decided early.
    pub(super) fn acts_at_one_stage(&self, at: usize) -> bool {
        let Some(rule) = self.rule(at) else {
            return false;
        };
        match rule.body {
            RuleBody::Group(_) => true,
            RuleBody::Filter(_) => self.first_stage(at) == Some(rule.stage),
        }
    }

    /// Whether what stops could keep a group from being met behind a rule: a stop between them, or around the rule.
    pub(super) fn has_stop_between(&self, at: usize, cause: usize) -> bool {
        let counts = |stop: &&usize| !self.path(cause).contains(stop);
        let first = self.stops.partition_point(|stop| *stop < at);
        let mut between = self
            .stops
            .iter()
            .skip(first)
            .take_while(|stop| **stop < cause);
        let around = self
            .path(at)
            .iter()
            .filter(|around| self.stops.binary_search(around).is_ok());
        between.any(|stop| counts(&stop)) || around.into_iter().any(|stop| counts(&stop))
    }

    /// The rules that could apply wherever a rule does, in document order: all but those of other hosts. None once
    /// there is no time left to look at them.
    pub(super) fn candidate_causes(&self, at: usize, budget: &WorkBudget) -> Vec<usize> {
        let hosts = self
            .assumptions(at)
            .into_iter()
            .flat_map(Assumptions::host_sets);
        let hosts: Vec<String> = hosts.filter_map(|hosts| hosts.into_iter().next()).collect();
        let lists = hosts.iter().flat_map(|host| {
            let parents = host
                .match_indices('.')
                .filter_map(|(dot, _)| host.get(dot + 1..));
            parents
                .chain([&**host])
                .filter_map(|parent| self.index.by_host.get(parent))
        });
        let lists: Vec<&Vec<usize>> = lists.chain([&self.index.any_host]).collect();
        if !budget.try_visit(lists.iter().map(|list| list.len()).sum()) {
            return Vec::new();
        }
        let mut causes: Vec<usize> = lists.into_iter().flatten().copied().collect();
        causes.sort_unstable();
        causes.dedup();
        causes
    }

    /// The live groups that stop.
    pub(super) fn stops(&self) -> &[usize] {
        &self.stops
    }
}

/// What a rule asks, to apply or to hit; none of a group without a condition.
fn rule_assertion(rule: &Rule) -> Option<Assertion<'_>> {
    match &rule.body {
        RuleBody::Group(group) => match &group.guard {
            GroupGuard::Always => None,
            GroupGuard::When(condition) => Some(Assertion {
                condition,
                polarity: Polarity::Yes,
            }),
            GroupGuard::Unless(condition) => Some(Assertion {
                condition,
                polarity: Polarity::No,
            }),
        },
        RuleBody::Filter(filter) => {
            let value = match filter.kind {
                FilterKind::Forbid => Polarity::Yes,
                FilterKind::Require => Polarity::No,
            };
            Some(Assertion {
                condition: &filter.condition,
                polarity: value,
            })
        }
    }
}

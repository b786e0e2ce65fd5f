//! A view of a policy's rules for lint: the assumptions under which a rule is reached, and the order of
//! rules.

use std::borrow::Cow;
use std::collections::HashMap;

use smallvec::SmallVec;

use crate::policy::Policy;
use crate::policy::condition::Assertion;
use crate::policy::list::PolicyList;
use crate::policy::rule::{ChildOrder, EnforcementMode, PolicyStage, Rule, RuleBody, RuleIndex};

use crate::diagnostics::problems::Problems;

use super::WorkBudget;
use super::logic::Assumptions;

/// A policy with indexes for lint. Rules are identified by their position.
pub(crate) struct LintView<'p> {
    policy: &'p Policy,
    /// The lists; empty if they may be wrong.
    lists: &'p [PolicyList],
    knowledge: Knowledge,
    /// For each rule: `true` if it is enforced, and it and the groups around it have no errors.
    sound: Vec<bool>,
    /// For each rule: the groups around it from the outside in, and the rule itself.
    paths: Vec<RulePath>,
    /// For each rule: the conditions under which it applies or matches.
    assumptions: Vec<Assumptions<'p>>,
    /// The enforced groups that stop, in document order.
    stops: Vec<usize>,
    index: HostIndex<'p>,
}

/// Most rules are in no group.
type RulePath = SmallVec<[usize; 2]>;

/// The part of a policy that is as written, without placeholders for errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Knowledge {
    /// The whole policy.
    Complete,
    /// The rules without errors.
    SoundRules,
}

/// The enforced rules by the hosts in their conditions.
#[derive(Default)]
struct HostIndex<'p> {
    any_host: Vec<usize>,
    /// The rules that name hosts, under each of them.
    by_host: HashMap<Cow<'p, str>, SmallVec<[usize; 2]>>,
}

impl<'p> HostIndex<'p> {
    fn add(&mut self, at: usize, assumptions: &Assumptions<'p>) {
        match assumptions.host_sets().next() {
            Some(hosts) => {
                for host in hosts {
                    self.by_host.entry(host).or_default().push(at);
                }
            }
            None => self.any_host.push(at),
        }
    }
}

/// The owner of a rule. A stop ends the rules of one owner only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RuleOwner {
    Document,
    Space(usize),
}

impl<'p> LintView<'p> {
    pub(crate) fn new(policy: &'p Policy, errors: &Problems) -> Self {
        // If the policy has errors, its lists and options may be wrong.
        let knowledge = if errors.has_errors() {
            Knowledge::SoundRules
        } else {
            Knowledge::Complete
        };
        let lists: &'p [PolicyList] = match knowledge {
            Knowledge::Complete => &policy.lists,
            Knowledge::SoundRules => &[],
        };
        let faulty = errors.rules_with_errors();
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
            let mut path: RulePath = parent
                .and_then(|parent| view.paths.get(parent))
                .cloned()
                .unwrap_or_default();
            path.push(at);
            let assumptions = match parent.and_then(|parent| view.assumptions.get(parent)) {
                Some(assumptions) => assumptions.with(rule.assertion()),
                None => Assumptions::new(rule.assertion(), lists),
            };
            let has_error = faulty.contains(&rule.id);
            let is_sound =
                view.is_live(at) && parent.is_none_or(|parent| view.is_sound(parent)) && !has_error;
            if is_sound {
                view.index.add(at, &assumptions);
            }
            view.sound.push(is_sound);
            view.paths.push(path);
            view.assumptions.push(assumptions);
            let stops = matches!(&rule.body, RuleBody::Group(group) if group.stop);
            if stops && rule.mode == EnforcementMode::Enforce {
                view.stops.push(at);
            }
        }
        view
    }

    /// Creates the view of a policy without errors.
    pub(crate) fn without_errors(policy: &'p Policy) -> Self {
        Self::new(policy, &Problems::new())
    }

    pub(crate) fn policy(&self) -> &'p Policy {
        self.policy
    }

    pub(crate) fn rule(&self, at: usize) -> Option<&'p Rule> {
        self.policy.rules.get(at)
    }

    /// Returns `true` if a rule is enforced and may decide requests. Rules of the global space do
    /// not.
    pub(crate) fn is_live(&self, at: usize) -> bool {
        self.owner(at).is_some()
            && self
                .rule(at)
                .is_some_and(|rule| rule.mode == EnforcementMode::Enforce)
    }

    /// The owner of a rule; `None` for the global space.
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

    /// Returns the number of the space that a rule belongs to.
    pub(crate) fn space_of(&self, at: usize) -> Option<usize> {
        match self.owner(at)? {
            RuleOwner::Document => None,
            RuleOwner::Space(space) => Some(space),
        }
    }

    /// Returns `true` if a rule belongs to the space with this number.
    pub(crate) fn belongs_to_space(&self, at: usize, space: usize) -> bool {
        self.owner(at) == Some(RuleOwner::Space(space))
    }

    /// Returns `true` if two rules have the same owner, so that a stop ends the list for both.
    pub(crate) fn share_list(&self, at: usize, other: usize) -> bool {
        self.owner(at) == self.owner(other)
    }

    /// Returns `true` if two rules have the same class, or if classes do not matter because the
    /// policy has no spaces.
    pub(crate) fn have_same_class(&self, at: usize, other: usize) -> bool {
        self.policy.spaces().all().is_empty()
            || self.rule(at).map(|rule| rule.class) == self.rule(other).map(|rule| rule.class)
    }

    /// Returns `true` if `cause` is reached for every crawler for which `rule` is.
    fn runs_with(&self, cause: usize, rule: usize) -> bool {
        self.owner(cause) == Some(RuleOwner::Document) || self.share_list(cause, rule)
    }

    /// Returns `true` if a rule is enforced, and it and the groups around it have no errors.
    pub(crate) fn is_sound(&self, at: usize) -> bool {
        self.sound.get(at).copied().unwrap_or(false)
    }

    pub(crate) fn lists(&self) -> &'p [PolicyList] {
        self.lists
    }

    pub(crate) fn knowledge(&self) -> Knowledge {
        self.knowledge
    }

    /// The conditions under which a rule applies or matches.
    pub(crate) fn assumptions(&self, at: usize) -> Option<&Assumptions<'p>> {
        self.assumptions.get(at)
    }

    /// The groups around a rule from the outside in, and the rule itself.
    pub(crate) fn path(&self, at: usize) -> &[usize] {
        self.paths.get(at).map_or(&[], SmallVec::as_slice)
    }

    /// The condition of a rule, with the value for which it applies or matches.
    pub(crate) fn assertion(&self, at: usize) -> Option<Assertion<'p>> {
        self.rule(at).and_then(Rule::assertion)
    }

    /// Returns `true` if the stage of a rule and of the groups around it does not depend on
    /// response headers.
    pub(crate) fn has_fixed_stage(&self, at: usize) -> bool {
        self.path(at).iter().all(|at| {
            self.rule(*at)
                .is_some_and(|rule| rule.header_stages.is_none())
        })
    }

    /// Returns `true` if a rule has no children.
    pub(crate) fn is_leaf(&self, at: usize) -> bool {
        self.rule(at)
            .is_some_and(|rule| rule.end.0 as usize == at + 1)
    }

    /// Returns `true` if a rule is in a `match: first` list.
    pub(crate) fn is_in_first_match(&self, at: usize) -> bool {
        let parent = self.rule(at).and_then(|rule| rule.parent);
        parent
            .and_then(|parent| self.rule(parent.0 as usize))
            .is_some_and(|parent| match &parent.body {
                RuleBody::Group(group) => matches!(group.order, ChildOrder::First(_)),
                RuleBody::Filter(_) => false,
            })
    }

    /// Returns `true` if a rule or a group around it matches only 2xx with content.
    pub(crate) fn is_content_only(&self, at: usize) -> bool {
        self.path(at)
            .iter()
            .any(|at| self.rule(*at).is_some_and(|rule| rule.content_only))
    }

    /// The first stage at which a rule or one of its children may have an effect.
    pub(crate) fn first_stage(&self, at: usize) -> Option<PolicyStage> {
        let active = self.rule(at)?.active_stages;
        PolicyStage::ALL
            .into_iter()
            .find(|stage| active.contains(*stage))
    }

    /// The groups around a rule that are not around another, and the rule itself.
    pub(crate) fn unshared_path(&self, at: usize, other: usize) -> &[usize] {
        let path = self.path(at);
        let shared = path
            .iter()
            .zip(self.path(other))
            .take_while(|(a, b)| a == b)
            .count();
        path.get(shared..).unwrap_or(&[])
    }

    /// Returns `true` if one of two rules contains the other.
    pub(crate) fn is_nested(&self, at: usize, other: usize) -> bool {
        self.path(at).contains(&other) || self.path(other).contains(&at)
    }

    /// Returns `true` if `cause` applies or matches wherever `rule` does, provided that it is met.
    /// Stops are not considered.
    pub(crate) fn applies_wherever(&self, cause: usize, rule: usize) -> bool {
        let Some(assumptions) = self.assumptions(rule) else {
            return false;
        };
        self.is_comparable(cause, rule)
            && self.unshared_path(cause, rule).iter().all(|at| {
                self.assertion(*at)
                    .is_none_or(|assertion| assumptions.entail(assertion))
            })
    }

    /// Returns `true` if `cause` applies or matches where `rule` does and the conditions of
    /// `cause` hold, provided that it is met.
    pub(crate) fn is_comparable(&self, cause: usize, rule: usize) -> bool {
        let content_only = self.is_content_only(rule);
        self.is_sound(cause)
            && self.has_fixed_stage(cause)
            && self.has_fixed_stage(rule)
            && self.runs_with(cause, rule)
            && self.have_same_class(cause, rule)
            && self.unshared_path(cause, rule).iter().all(|at| {
                let matches_status =
                    content_only || !self.rule(*at).is_some_and(|rule| rule.content_only);
                matches_status && !self.is_in_first_match(*at)
            })
    }

    /// Returns `true` if no stop keeps `cause` from being reached where `rule` is reached: no stop comes
    /// before it, or both are reached at one stage only, `cause` first, so that a stop before `cause`
    /// also stops `rule`.
    pub(crate) fn is_reached_with(&self, cause: usize, rule: usize) -> bool {
        let path = self.path(cause);
        let mut stops_before = self.stops.iter().take_while(|stop| **stop < cause);
        stops_before.all(|stop| path.contains(stop)) || self.are_reached_together(cause, rule)
    }

    fn are_reached_together(&self, cause: usize, rule: usize) -> bool {
        let Some(stage) = self.rule(rule).map(|rule| rule.stage) else {
            return false;
        };
        cause < rule
            && self.share_list(cause, rule)
            && [&[rule], self.unshared_path(cause, rule)]
                .into_iter()
                .flatten()
                .all(|at| {
                    self.rule(*at).is_some_and(|rule| rule.stage == stage)
                        && self.acts_at_one_stage(*at)
                })
    }

    /// Returns `true` if a rule has effects at its own stage only. A filter may be decided earlier.
    pub(crate) fn acts_at_one_stage(&self, at: usize) -> bool {
        let Some(rule) = self.rule(at) else {
            return false;
        };
        match rule.body {
            RuleBody::Group(_) => true,
            RuleBody::Filter(_) => self.first_stage(at) == Some(rule.stage),
        }
    }

    /// Returns `true` if a stop between `at` and `cause`, or around `at`, may keep the later group
    /// `cause` from being met.
    pub(crate) fn has_stop_between(&self, at: usize, cause: usize) -> bool {
        let path = self.path(cause);
        let first = self.stops.partition_point(|stop| *stop < at);
        let mut between = self
            .stops
            .iter()
            .skip(first)
            .take_while(|stop| **stop < cause);
        let mut around = self
            .path(at)
            .iter()
            .filter(|around| self.stops.binary_search(around).is_ok());
        between.any(|stop| !path.contains(stop)) || around.any(|stop| !path.contains(stop))
    }

    /// Returns the rules that may apply wherever a rule does, in document order: all except those
    /// for other hosts. Returns none if the budget is used up.
    pub(crate) fn candidate_causes(&self, at: usize, budget: &WorkBudget) -> Vec<usize> {
        let hosts = self
            .assumptions(at)
            .into_iter()
            .flat_map(Assumptions::host_sets);
        let hosts: Vec<Cow<'p, str>> = hosts.filter_map(|hosts| hosts.into_iter().next()).collect();
        let lists = hosts.iter().flat_map(|host| {
            let parents = host
                .match_indices('.')
                .filter_map(|(dot, _)| host.get(dot + 1..));
            parents
                .chain([&**host])
                .filter_map(|parent| self.index.by_host.get(parent))
        });
        let lists: Vec<&[usize]> = lists
            .map(SmallVec::as_slice)
            .chain([self.index.any_host.as_slice()])
            .collect();
        if !budget.try_visit(lists.iter().map(|list| list.len()).sum()) {
            return Vec::new();
        }
        let mut causes: Vec<usize> = lists.into_iter().flatten().copied().collect();
        causes.sort_unstable();
        causes.dedup();
        causes
    }

    /// The enforced groups that stop.
    pub(crate) fn stops(&self) -> &[usize] {
        &self.stops
    }
}

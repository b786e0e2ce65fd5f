//! Shadow rules: the decision on a request if one of them were enforced.
//!
//! The shadow decision of a rule is that of the policy with this rule and its children enforced in
//! addition. It never affects the live decision. A rule whose own condition does not hold makes no
//! difference, so most requests cost one condition per shadow rule.

use std::net::IpAddr;

use smallvec::SmallVec;

use crate::model::stage::Stage;

use super::Policy;
use super::condition::Truth;
use super::decide::{Cause, Decision, Verdict};
use super::fact::{EvaluationTarget, Facts};
use super::index::FoundRules;
use super::rule::{EnforcementMode, PolicyStage, Rule, RuleIndex};
use super::trail::Trail;

/// The decision before the stage at which a rule makes a difference.
const INITIAL_DECISION: Decision = Decision {
    verdict: Verdict::Admit,
    stage: Stage::Request,
    cause: Cause::Default,
    logged: false,
    exclusion: None,
    reading: None,
};

/// The shadow decisions on one request, for the rules that made a difference so far.
#[derive(Clone, Debug, Default)]
pub struct ShadowDecisions(SmallVec<[ShadowDecision; 1]>);

/// A shadow rule, and the decision on the request with it.
#[derive(Clone, Debug)]
pub struct ShadowDecision {
    /// The outermost shadow rule.
    pub root: RuleIndex,
    /// The decision by the stages so far.
    pub decision: Decision,
    trail: Trail,
}

impl ShadowDecision {
    /// Returns the rule to report: the shadow rule that decides, else the outermost one.
    pub fn reported_rule(&self, policy: &Policy) -> RuleIndex {
        match self.decision.cause {
            Cause::Rule(rule) if policy.is_within(rule, self.root) => rule,
            Cause::Rule(_) | Cause::Default => self.root,
        }
    }

    /// The states of all rules, including the shadow rules.
    pub fn trail(&self) -> &Trail {
        &self.trail
    }

    /// The shadow rules that matched.
    pub fn matched_rules<'s>(&'s self, policy: &'s Policy) -> impl Iterator<Item = RuleIndex> + 's {
        self.trail
            .matched_rules()
            .iter()
            .copied()
            .filter(|rule| policy.is_within(*rule, self.root))
    }
}

impl ShadowDecisions {
    /// Returns the decisions in document order.
    pub fn iter(&self) -> impl Iterator<Item = &ShadowDecision> {
        self.0.iter()
    }

    /// Evaluates the request stage.
    pub fn for_request(policy: &Policy, facts: &Facts<'_>) -> Self {
        let ambiguous = has_readings(facts);
        let decisions = policy
            .shadow_candidates(facts)
            .into_iter()
            .filter(|root| ambiguous || policy.may_apply(*root, PolicyStage::Request, facts))
            .map(|root| {
                let (trail, decision) = policy.decide_request_with_shadow(Some(root), facts);
                ShadowDecision {
                    root,
                    decision,
                    trail,
                }
            })
            .filter(|shadow| ambiguous || shadow.has_effect(policy));
        Self(decisions.collect())
    }

    /// Decides a tunnel.
    pub fn for_tunnel(policy: &Policy, facts: &Facts<'_>) -> Self {
        let decisions = policy
            .shadow_rules
            .iter()
            .map(|root| {
                let (trail, decision) = policy.decide_tunnel(Some(*root), facts);
                ShadowDecision {
                    root: *root,
                    decision,
                    trail,
                }
            })
            .filter(|shadow| shadow.has_effect(policy));
        Self(decisions.collect())
    }

    /// Evaluates a later stage for a request that has not been rejected. `before` is the live trail
    /// before that stage.
    pub fn decide_stage(
        &mut self,
        policy: &Policy,
        stage: PolicyStage,
        facts: &Facts<'_>,
        before: &Trail,
    ) {
        let ambiguous = has_readings(facts);
        for root in self.roots(policy, facts) {
            let may_apply = || ambiguous || policy.may_apply(root, stage, facts);
            let Some(mut shadow) = self.take(root, before, may_apply) else {
                continue;
            };
            if !shadow.decision.rejects() {
                shadow.decision =
                    policy.decide_all_readings(Some(root), &mut shadow.trail, stage, facts);
            }
            self.store(policy, shadow);
        }
    }

    /// Evaluates the destination stage for a host's addresses. The request continues with the first
    /// address that is not rejected.
    pub fn decide_addresses(
        &mut self,
        policy: &Policy,
        facts: &Facts<'_>,
        addresses: &[IpAddr],
        before: &Trail,
    ) {
        let stage = PolicyStage::Destination;
        let ambiguous = has_readings(facts);
        for root in self.roots(policy, facts) {
            let holds = || {
                ambiguous
                    || addresses
                        .iter()
                        .any(|address| policy.may_apply(root, stage, &facts.with_address(*address)))
            };
            let Some(shadow) = self.take(root, before, holds) else {
                continue;
            };
            if shadow.decision.rejects() {
                self.store(policy, shadow);
                continue;
            }
            let decisions = addresses.iter().map(|address| {
                let facts = facts.with_address(*address);
                let mut trail = shadow.trail.clone();
                let decision = policy.decide_all_readings(Some(root), &mut trail, stage, &facts);
                ShadowDecision {
                    root,
                    decision,
                    trail,
                }
            });
            if let Some(shadow) = first_admitted(decisions, |shadow| shadow.decision) {
                self.store(policy, shadow);
            }
        }
    }

    /// Returns the shadow rules that may make a difference, or have made one, in document order.
    fn roots(&self, policy: &Policy, facts: &Facts<'_>) -> FoundRules {
        let mut roots = policy.shadow_candidates(facts);
        roots.extend(self.0.iter().map(|shadow| shadow.root));
        roots.sort_unstable();
        roots.dedup();
        roots
    }

    /// Takes the state of a rule, or the live state if the rule begins to make a difference now.
    fn take(
        &mut self,
        root: RuleIndex,
        before: &Trail,
        holds: impl FnOnce() -> bool,
    ) -> Option<ShadowDecision> {
        if let Some(at) = self.0.iter().position(|shadow| shadow.root == root) {
            return Some(self.0.remove(at));
        }
        holds().then(|| ShadowDecision {
            root,
            decision: INITIAL_DECISION,
            trail: before.clone(),
        })
    }

    fn store(&mut self, policy: &Policy, shadow: ShadowDecision) {
        if shadow.has_effect(policy) || shadow.decision.rejects() {
            let at = self
                .0
                .iter()
                .position(|other| other.root > shadow.root)
                .unwrap_or(self.0.len());
            self.0.insert(at, shadow);
        }
    }
}

/// Returns `true` if lax servers may read the URL differently. A rule may then hold for one of these
/// readings only.
fn has_readings(facts: &Facts<'_>) -> bool {
    matches!(facts.target, EvaluationTarget::Url(target) if target.has_readings())
}

/// Returns the first item that is not rejected, else the first item: the decision on a host with
/// several addresses.
pub fn first_admitted<T>(
    mut items: impl Iterator<Item = T>,
    decision: impl Fn(&T) -> Decision,
) -> Option<T> {
    let first = items.next()?;
    if !decision(&first).rejects() {
        return Some(first);
    }
    Some(
        items
            .find(|next| !decision(next).rejects())
            .unwrap_or(first),
    )
}

impl ShadowDecision {
    /// Returns `true` if the rule or one of its children was reached. Otherwise the decision is the
    /// live one.
    fn has_effect(&self, policy: &Policy) -> bool {
        let end = policy.rule(self.root).map_or(self.root, |rule| rule.end);
        self.trail.has_reached_within(self.root, end)
    }
}

/// Returns the shadow rules that are in no other shadow rule, in document order.
pub(crate) fn outermost_shadow_rules(rules: &[Rule]) -> Box<[RuleIndex]> {
    rules
        .iter()
        .zip(0..)
        .filter(|(rule, _)| {
            let parent = rule.parent.and_then(|at| rules.get(at.0 as usize));
            rule.mode == EnforcementMode::Shadow
                && parent.is_none_or(|parent| parent.mode != EnforcementMode::Shadow)
        })
        .map(|(_, at)| RuleIndex(at))
        .collect()
}

impl Policy {
    /// The shadow rules that are in no other shadow rule, in document order.
    pub fn shadow_rules(&self) -> &[RuleIndex] {
        &self.shadow_rules
    }

    /// Returns a rule by its index.
    pub fn rule(&self, index: RuleIndex) -> Option<&Rule> {
        self.rules.get(index.0 as usize)
    }

    /// Returns `true` if `rule` is `root` or one of its children.
    fn is_within(&self, rule: RuleIndex, root: RuleIndex) -> bool {
        root <= rule && self.rule(root).is_some_and(|group| rule < group.end)
    }

    /// Returns `true` if a rule's own condition is known to hold at this stage.
    fn may_apply(&self, root: RuleIndex, stage: PolicyStage, facts: &Facts<'_>) -> bool {
        let Some(rule) = self
            .rule(root)
            .filter(|rule| rule.active_stages.contains(stage))
        else {
            return false;
        };
        self.evaluate_rule(rule, facts) == Truth::Yes
    }

    /// Evaluates a rule's own condition, regardless of the groups around it.
    pub(crate) fn evaluate_rule(&self, rule: &Rule, facts: &Facts<'_>) -> Truth {
        rule.assertion().map_or(Truth::Yes, |assertion| {
            assertion.evaluate(facts, &self.lists)
        })
    }
}

//! Rules in shadow: what the policy would say of a request if one of them were live (policy.md section 2).
//!
//! The shadow verdict of a rule is that of the policy in which this rule alone, with all that it contains, is live
//! besides. The live decision is made without any of this and never changed by it. A rule whose own condition does not
//! hold makes no difference, so most requests cost one condition a rule.

use std::net::IpAddr;

use smallvec::SmallVec;

use crate::model::stage::Stage;

use super::Policy;
use super::condition::Truth;
use super::decide::{Cause, Decision, Verdict};
use super::fact::{EvaluationTarget, Fact, Facts};
use super::rule::{
    EnforcementMode, FilterKind, GroupGuard, PolicyStage, Rule, RuleBody, RuleIndex,
};
use super::trail::{RuleState, Trail};

/// The decision before the stage at which a rule makes a difference: nothing has rejected the request.
const INITIAL_DECISION: Decision = Decision {
    verdict: Verdict::Admit,
    stage: Stage::Request,
    cause: Cause::Default,
    logged: false,
    exclusion: None,
};

/// What rules in shadow have come to for one request; rules that made no difference so far are not in it.
#[derive(Clone, Debug, Default)]
pub struct ShadowDecisions(SmallVec<[ShadowDecision; 1]>);

/// One rule in shadow, and the request as it would stand with it.
#[derive(Clone, Debug)]
pub struct ShadowDecision {
    /// The outermost rule in shadow.
    pub root: RuleIndex,
    /// The decision, as far as the stages have come that were run.
    pub decision: Decision,
    trail: Trail,
}

impl ShadowDecision {
    /// The rule to name: the one in shadow that decides, else the outermost, for whatever it keeps others from.
    pub fn reported_rule(&self, policy: &Policy) -> RuleIndex {
        match self.decision.cause {
            Cause::Rule(rule) if policy.is_within(rule, self.root) => rule,
            Cause::Rule(_) | Cause::Default => self.root,
        }
    }

    /// What the rules have done, those in shadow among them.
    pub fn trail(&self) -> &Trail {
        &self.trail
    }

    /// The rules in shadow that matched.
    pub fn matched_rules<'s>(&'s self, policy: &'s Policy) -> impl Iterator<Item = RuleIndex> + 's {
        self.trail
            .matched_rules()
            .iter()
            .copied()
            .filter(|rule| policy.is_within(*rule, self.root))
    }
}

impl ShadowDecisions {
    /// Every rule that made a difference, in document order.
    pub fn iter(&self) -> impl Iterator<Item = &ShadowDecision> {
        self.0.iter()
    }

    /// Judges a request at the request stage.
    pub fn for_request(policy: &Policy, facts: &Facts<'_>) -> Self {
        // A URL with two readings is judged in both: a rule may hold for the second one only.
        let ambiguous =
            matches!(facts.target, EvaluationTarget::Url(target) if target.decoded().is_some());
        let asked = policy.shadow_rules.iter().copied();
        let asked =
            asked.filter(|root| ambiguous || policy.may_apply(*root, PolicyStage::Request, facts));
        let judged = asked.map(|root| {
            let (trail, decision) = policy.decide_request_with_shadow(Some(root), facts);
            ShadowDecision {
                root,
                decision,
                trail,
            }
        });
        Self(
            judged
                .filter(|shadow| ambiguous || shadow.has_effect(policy))
                .collect(),
        )
    }

    /// Judges a tunnel.
    pub fn for_tunnel(policy: &Policy, facts: &Facts<'_>) -> Self {
        let judged = policy.shadow_rules.iter().map(|root| {
            let (trail, decision) = policy.decide_tunnel(Some(*root), facts);
            ShadowDecision {
                root: *root,
                decision,
                trail,
            }
        });
        Self(judged.filter(|shadow| shadow.has_effect(policy)).collect())
    }

    /// Judges a request that nothing rejected so far at a later stage. `before` is what the live rules had done before
    /// that stage.
    pub fn decide_stage(
        &mut self,
        policy: &Policy,
        stage: PolicyStage,
        facts: &Facts<'_>,
        before: &Trail,
    ) {
        for root in policy.shadow_rules.iter().copied() {
            let Some(mut shadow) = self.take(root, before, || policy.may_apply(root, stage, facts))
            else {
                continue;
            };
            if !shadow.decision.rejects() {
                shadow.decision =
                    policy.decide_stage_with_shadow(Some(root), &mut shadow.trail, stage, facts);
            }
            self.store(policy, shadow);
        }
    }

    /// Judges a request by its addresses: it goes on with the first that is not rejected.
    pub fn decide_addresses(
        &mut self,
        policy: &Policy,
        facts: &Facts<'_>,
        addresses: &[IpAddr],
        before: &Trail,
    ) {
        let stage = PolicyStage::Destination;
        let at = |address: &IpAddr| Facts {
            address: Fact::Known(Some(*address)),
            ..*facts
        };
        for root in policy.shadow_rules.iter().copied() {
            let holds = || {
                addresses
                    .iter()
                    .any(|address| policy.may_apply(root, stage, &at(address)))
            };
            let Some(shadow) = self.take(root, before, holds) else {
                continue;
            };
            if shadow.decision.rejects() {
                self.store(policy, shadow);
                continue;
            }
            let judged = addresses.iter().map(|address| {
                let mut trail = shadow.trail.clone();
                let decision =
                    policy.decide_stage_with_shadow(Some(root), &mut trail, stage, &at(address));
                ShadowDecision {
                    root,
                    decision,
                    trail,
                }
            });
            if let Some(shadow) = first_admitted(judged, |shadow| shadow.decision) {
                self.store(policy, shadow);
            }
        }
    }

    /// The rule's own state, or the live one if it has made no difference so far and does now.
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

/// The first that is not rejected, else the first of all: what is said of a host's addresses.
pub fn first_admitted<J>(
    mut judged: impl Iterator<Item = J>,
    decision: impl Fn(&J) -> Decision,
) -> Option<J> {
    let first = judged.next()?;
    if !decision(&first).rejects() {
        return Some(first);
    }
    Some(
        judged
            .find(|next| !decision(next).rejects())
            .unwrap_or(first),
    )
}

impl ShadowDecision {
    /// Whether the rule, or one in it, was come to at all; if not, all is as without it.
    fn has_effect(&self, policy: &Policy) -> bool {
        let end = policy.rule(self.root).map_or(self.root, |rule| rule.end);
        (self.root.0..end.0).any(|at| self.trail.state(RuleIndex(at)) != RuleState::Pending)
    }
}

/// The rules in shadow that stand in no other, in document order.
pub(crate) fn outermost_shadow_rules(rules: &[Rule]) -> Box<[RuleIndex]> {
    let in_shadow = |index: Option<RuleIndex>| {
        index
            .and_then(|at| rules.get(at.0 as usize))
            .is_some_and(|rule| rule.mode == EnforcementMode::Shadow)
    };
    let all = rules
        .iter()
        .zip(0..)
        .filter(|(rule, _)| rule.mode == EnforcementMode::Shadow && !in_shadow(rule.parent));
    all.map(|(_, at)| RuleIndex(at)).collect()
}

impl Policy {
    /// The rules in shadow that stand in no other, in document order.
    pub fn shadow_rules(&self) -> &[RuleIndex] {
        &self.shadow_rules
    }

    /// A rule by its place.
    pub fn rule(&self, index: RuleIndex) -> Option<&Rule> {
        self.rules.get(index.0 as usize)
    }

    /// Whether a rule is another, or stands in it.
    fn is_within(&self, rule: RuleIndex, root: RuleIndex) -> bool {
        root <= rule && self.rule(root).is_some_and(|group| rule < group.end)
    }

    /// Whether a rule's own condition lets it do something, as far as this stage knows.
    fn may_apply(&self, root: RuleIndex, stage: PolicyStage, facts: &Facts<'_>) -> bool {
        let Some(rule) = self
            .rule(root)
            .filter(|rule| rule.active_stages.contains(stage))
        else {
            return false;
        };
        self.evaluate_rule(rule, facts) == Truth::Yes
    }

    /// Whether a rule's own condition lets it do something, whatever stands around it.
    pub(crate) fn evaluate_rule(&self, rule: &Rule, facts: &Facts<'_>) -> Truth {
        let condition =
            |condition: &super::condition::Condition| condition.evaluate(facts, &self.lists);
        match &rule.body {
            RuleBody::Group(group) => match &group.guard {
                GroupGuard::Always => Truth::Yes,
                GroupGuard::When(guard) => condition(guard),
                GroupGuard::Unless(guard) => condition(guard).negate(),
            },
            RuleBody::Filter(filter) => match filter.kind {
                FilterKind::Forbid => condition(&filter.condition),
                FilterKind::Require => condition(&filter.condition).negate(),
            },
        }
    }
}

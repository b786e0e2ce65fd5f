//! What stands in shadow, judged beside a request: rules of the live policy, and a whole second policy.
//!
//! Both are judged at each stage that the request comes to, before the live rules are asked there, and neither changes
//! what becomes of it: nothing here is read by a stage. What robots.txt, addresses' ranges and the host's turn would say
//! under other options is not asked. Requests for `/robots.txt` have no shadow: they are judged by their host alone.

use std::net::IpAddr;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::metrics::labels;
use crate::metrics::policy::PolicyMetrics;
use crate::metrics::shadow::{ShadowChange, ShadowNote, ShadowNotes, ShadowSource};
use crate::policy::Policy;
use crate::policy::decide::{Cause, Decision, Verdict};
use crate::policy::fact::{Fact, Facts};
use crate::policy::options::schema;
use crate::policy::rule::{PolicyStage, RuleIndex};
use crate::policy::shadow::{ShadowDecisions, first_admitted};
use crate::policy::trail::Trail;

use super::facts::RequestFacts;
use super::snapshot::PolicySnapshot;

/// A policy that is judged beside the live one.
#[derive(Debug)]
pub struct ShadowPolicy {
    /// The policy.
    pub policy: Arc<Policy>,
    /// The counters of its rules.
    pub counters: Arc<PolicyMetrics>,
}

/// A request as it stands in shadow.
#[derive(Debug)]
pub struct ShadowEvaluation {
    rules: ShadowDecisions,
    policy_evaluation: Option<ShadowPolicyEvaluation>,
}

#[derive(Debug)]
struct ShadowPolicyEvaluation {
    shadow: Arc<ShadowPolicy>,
    trail: Trail,
    decision: Decision,
}

impl ShadowEvaluation {
    /// Judges at the request stage; `None` if nothing stands in shadow.
    pub(crate) fn for_request(
        request_facts: &RequestFacts,
        snapshot: &PolicySnapshot,
    ) -> Option<Box<Self>> {
        if !snapshot.has_shadows() || request_facts.reads_robots_txt() {
            return None;
        }
        let facts = request_facts.policy_facts();
        let whole = snapshot.shadow.as_ref().map(|of| {
            let (trail, decision) = of.policy.decide_request(&facts);
            ShadowPolicyEvaluation {
                shadow: Arc::clone(of),
                trail,
                decision,
            }
        });
        Some(Box::new(Self {
            rules: ShadowDecisions::for_request(&snapshot.policy, &facts),
            policy_evaluation: whole,
        }))
    }

    /// Judges a tunnel; `None` if nothing stands in shadow.
    pub(crate) fn for_tunnel(facts: &Facts<'_>, snapshot: &PolicySnapshot) -> Option<Box<Self>> {
        if !snapshot.has_shadows() {
            return None;
        }
        let whole = snapshot.shadow.as_ref().map(|of| {
            let (trail, decision) = of.policy.decide(facts);
            ShadowPolicyEvaluation {
                shadow: Arc::clone(of),
                trail,
                decision,
            }
        });
        Some(Box::new(Self {
            rules: ShadowDecisions::for_tunnel(&snapshot.policy, facts),
            policy_evaluation: whole,
        }))
    }

    /// Judges at the destination stage. `before` is what the live rules had done before it.
    pub(crate) fn evaluate_addresses(
        &mut self,
        policy: &Policy,
        facts: &Facts<'_>,
        addresses: &[IpAddr],
        before: &Trail,
    ) {
        self.rules
            .decide_addresses(policy, facts, addresses, before);
        if let Some(whole) = self
            .policy_evaluation
            .as_mut()
            .filter(|whole| !whole.decision.rejects())
        {
            whole.evaluate_addresses(facts, addresses);
        }
    }

    /// Judges at a stage behind the origin.
    pub(crate) fn evaluate_stage(
        &mut self,
        policy: &Policy,
        stage: PolicyStage,
        facts: &Facts<'_>,
        before: &Trail,
    ) {
        self.rules.decide_stage(policy, stage, facts, before);
        if let Some(whole) = self
            .policy_evaluation
            .as_mut()
            .filter(|whole| !whole.decision.rejects())
        {
            whole.decision = whole
                .shadow
                .policy
                .decide_stage(&mut whole.trail, stage, facts);
        }
    }
}

impl ShadowEvaluation {
    /// Whether the other policy waits to hear what the document says; the rules in shadow are asked with those that are
    /// live.
    pub(crate) fn awaits_document(&self, facts: &Facts<'_>) -> bool {
        let waits = |whole: &ShadowPolicyEvaluation| {
            !whole.decision.rejects() && whole.shadow.policy.needs_document(&whole.trail, facts)
        };
        self.policy_evaluation.as_ref().is_some_and(waits)
    }
}

impl ShadowPolicyEvaluation {
    /// The request goes on with the first address that is not rejected, as in the live policy.
    fn evaluate_addresses(&mut self, facts: &Facts<'_>, addresses: &[IpAddr]) {
        let policy = &self.shadow.policy;
        if !policy.is_active_at(PolicyStage::Destination) {
            return;
        }
        let judged = addresses.iter().map(|address| {
            let facts = Facts {
                address: Fact::Known(Some(*address)),
                ..*facts
            };
            let mut trail = self.trail.clone();
            let decision = policy.decide_stage(&mut trail, PolicyStage::Destination, &facts);
            (trail, decision)
        });
        if let Some((trail, decision)) = first_admitted(judged, |(_, decision)| *decision) {
            (self.trail, self.decision) = (trail, decision);
        }
    }
}

impl PolicySnapshot {
    /// Whether anything stands in shadow.
    fn has_shadows(&self) -> bool {
        !self.policy.shadow_rules().is_empty() || self.shadow.is_some()
    }

    /// Whether anything in shadow looks at addresses.
    pub(crate) fn shadows_use_addresses(&self) -> bool {
        let acts = |rule: &RuleIndex| {
            self.policy
                .rule(*rule)
                .is_some_and(|rule| rule.active_stages.contains(PolicyStage::Destination))
        };
        self.policy.shadow_rules().iter().any(acts)
            || self
                .shadow
                .as_ref()
                .is_some_and(|shadow| shadow.policy.is_active_at(PolicyStage::Destination))
    }
}

/// What a policy says of a request.
#[derive(Clone, Copy)]
struct DecisionRef<'a> {
    trail: &'a Trail,
    decision: &'a Decision,
}

impl DecisionRef<'_> {
    /// Whether that refuses it: what is undecided does, unless the policy lets such tunnels pass.
    fn refuses(self, policy: &Policy) -> bool {
        match self.decision.verdict {
            Verdict::Admit => false,
            Verdict::Reject(_) => true,
            Verdict::Undecided => {
                self.trail.word(policy, schema::TUNNEL_UNDECIDED) != Some("allow")
            }
        }
    }

    /// What it comes to, for the counters.
    fn verdict_label(self, policy: &Policy) -> labels::VerdictLabel {
        if self.refuses(policy) {
            labels::VerdictLabel::Reject
        } else {
            labels::VerdictLabel::Allow
        }
    }

    /// What it would change if it were live.
    fn change_from_live(self, policy: &Policy, live_refuses: bool) -> ShadowChange {
        match (self.refuses(policy), live_refuses) {
            (true, false) => ShadowChange::WouldReject,
            (false, true) => ShadowChange::WouldAllow,
            (true, true) | (false, false) => ShadowChange::Unchanged,
        }
    }
}

impl ShadowEvaluation {
    /// Returns what the shadows have come to, compared with what the live rules have.
    pub(crate) fn to_notes(
        &self,
        policy: &Policy,
        trail: &Trail,
        decision: &Decision,
    ) -> Box<ShadowNotes> {
        let live_refuses = DecisionRef { trail, decision }.refuses(policy);
        let of_rules = self.rules.iter().map(|shadow| {
            let said = DecisionRef {
                trail: shadow.trail(),
                decision: &shadow.decision,
            };
            let rule = shadow.reported_rule(policy);
            ShadowNote {
                source: ShadowSource::Rule(shadow.root.0),
                matched: shadow.matched_rules(policy).map(|rule| rule.0).collect(),
                rule: Some(rule.0),
                deciding_rule: Some(rule.0).filter(|_| shadow.decision.cause == Cause::Rule(rule)),
                verdict: said.verdict_label(policy),
                change: said.change_from_live(policy, live_refuses),
                reason: shadow.decision.reason(),
                stage: shadow.decision.stage,
            }
        });
        let mut notes: SmallVec<[ShadowNote; 2]> = of_rules.collect();
        notes.extend(
            self.policy_evaluation
                .as_ref()
                .map(|whole| whole.to_note(live_refuses)),
        );
        let whole = self
            .policy_evaluation
            .as_ref()
            .map(|whole| Arc::clone(&whole.shadow.counters));
        Box::new(ShadowNotes {
            policy_metrics: whole,
            notes,
        })
    }
}

impl ShadowPolicyEvaluation {
    fn to_note(&self, live_refuses: bool) -> ShadowNote {
        let said = DecisionRef {
            trail: &self.trail,
            decision: &self.decision,
        };
        let cause = match self.decision.cause {
            Cause::Rule(rule) => Some(rule.0),
            Cause::Default => None,
        };
        ShadowNote {
            source: ShadowSource::Policy,
            matched: self
                .trail
                .matched_rules()
                .iter()
                .map(|rule| rule.0)
                .collect(),
            rule: cause,
            deciding_rule: cause,
            verdict: said.verdict_label(&self.shadow.policy),
            change: said.change_from_live(&self.shadow.policy, live_refuses),
            reason: self.decision.reason(),
            stage: self.decision.stage,
        }
    }
}

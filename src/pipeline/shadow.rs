//! Shadow rules of the active policy, and a shadow policy: evaluated on the same requests without any effect.
//!
//! Both are evaluated at each stage that a request reaches, before the live rules of that stage, and no stage reads the
//! result. What robots.txt, address ranges and pacing would come to under other options is not evaluated. Requests for
//! `/robots.txt` have no shadow, since they are evaluated by their host alone.

use std::net::IpAddr;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::metrics::labels;
use crate::metrics::policy::PolicyMetrics;
use crate::metrics::shadow::{ShadowChange, ShadowNote, ShadowNotes, ShadowSource};
use crate::policy::Policy;
use crate::policy::decide::{Cause, Decision, Verdict};
use crate::policy::fact::Facts;
use crate::policy::options::schema;
use crate::policy::rule::{PolicyStage, RuleIndex};
use crate::policy::shadow::{ShadowDecisions, first_admitted};
use crate::policy::trail::Trail;
use crate::store::policies::ShadowAssignment;

use super::facts::{RequestFacts, TunnelFacts};
use super::snapshot::PolicySnapshot;
use super::tunnel_decisions::TunnelDecisions;

/// A policy that is evaluated in addition to the active one.
#[derive(Debug)]
pub struct ShadowPolicy {
    /// The compiled policy.
    pub policy: Arc<Policy>,
    /// The counters of its rules.
    pub counters: Arc<PolicyMetrics>,
    /// Set if it was set while the proxy ran, and is not the one of the configuration.
    pub assignment: Option<Arc<ShadowAssignment>>,
    /// Its decisions on tunnels.
    tunnels: TunnelDecisions,
}

impl ShadowPolicy {
    /// Prepares a policy for evaluation in addition to the active one.
    pub fn new(policy: impl Into<Arc<Policy>>, counters: Arc<PolicyMetrics>) -> Self {
        Self {
            policy: policy.into(),
            counters,
            assignment: None,
            tunnels: TunnelDecisions::default(),
        }
    }

    /// Adds the record of who set it.
    #[must_use]
    pub fn with_assignment(self, assignment: Option<Arc<ShadowAssignment>>) -> Self {
        Self { assignment, ..self }
    }
}

/// The shadow decisions on a request or a tunnel.
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
    /// Evaluates the request stage; `None` if there are no shadows.
    pub(crate) fn for_request(
        request_facts: &RequestFacts,
        snapshot: &PolicySnapshot,
    ) -> Option<Box<Self>> {
        if !snapshot.has_shadows() || request_facts.reads_robots_txt() {
            return None;
        }
        let facts = request_facts.policy_facts();
        let other = snapshot.shadow.as_ref().map(|shadow| {
            let (trail, decision) = shadow.policy.decide_request(&facts);
            ShadowPolicyEvaluation {
                shadow: Arc::clone(shadow),
                trail,
                decision,
            }
        });
        Some(Box::new(Self {
            rules: ShadowDecisions::for_request(&snapshot.policy, &facts),
            policy_evaluation: other,
        }))
    }

    /// Evaluates a tunnel, or recalls the shadow policy's decision on it; `None` if there are no shadows.
    /// `address` is `None` before the name is resolved.
    pub(crate) fn for_tunnel(
        tunnel: &TunnelFacts,
        address: Option<IpAddr>,
        snapshot: &PolicySnapshot,
    ) -> Option<Box<Self>> {
        if !snapshot.has_shadows() {
            return None;
        }
        let other = snapshot.shadow.as_ref().map(|shadow| {
            let (trail, decision) = shadow.tunnels.decide(&shadow.policy, tunnel, address);
            ShadowPolicyEvaluation {
                shadow: Arc::clone(shadow),
                trail,
                decision,
            }
        });
        Some(Box::new(Self {
            rules: ShadowDecisions::for_tunnel(&snapshot.policy, &tunnel.policy_facts(address)),
            policy_evaluation: other,
        }))
    }

    /// Evaluates the destination stage. `before` is the trail of the live rules before that stage.
    pub(crate) fn evaluate_addresses(
        &mut self,
        policy: &Policy,
        facts: &Facts<'_>,
        addresses: &[IpAddr],
        before: &Trail,
    ) {
        self.rules
            .decide_addresses(policy, facts, addresses, before);
        if let Some(other) = self
            .policy_evaluation
            .as_mut()
            .filter(|other| !other.decision.rejects())
        {
            other.evaluate_addresses(facts, addresses);
        }
    }

    /// Evaluates a stage after the origin.
    pub(crate) fn evaluate_stage(
        &mut self,
        policy: &Policy,
        stage: PolicyStage,
        facts: &Facts<'_>,
        before: &Trail,
    ) {
        self.rules.decide_stage(policy, stage, facts, before);
        if let Some(other) = self
            .policy_evaluation
            .as_mut()
            .filter(|other| !other.decision.rejects())
        {
            other.decision = other
                .shadow
                .policy
                .decide_stage(&mut other.trail, stage, facts);
        }
    }
}

impl ShadowEvaluation {
    /// Returns `true` if the shadow policy depends on the document. Shadow rules are covered by the active
    /// policy.
    pub(crate) fn awaits_document(&self, facts: &Facts<'_>) -> bool {
        self.policy_evaluation.as_ref().is_some_and(|other| {
            !other.decision.rejects() && other.shadow.policy.needs_document(&other.trail, facts)
        })
    }
}

impl ShadowPolicyEvaluation {
    /// Continues with the first address that is not rejected, as the active policy does.
    fn evaluate_addresses(&mut self, facts: &Facts<'_>, addresses: &[IpAddr]) {
        let policy = &self.shadow.policy;
        if !policy.is_active_at(PolicyStage::Destination) {
            return;
        }
        let evaluated = addresses.iter().map(|address| {
            let facts = facts.with_address(*address);
            let mut trail = self.trail.clone();
            let decision = policy.decide_stage(&mut trail, PolicyStage::Destination, &facts);
            (trail, decision)
        });
        if let Some((trail, decision)) = first_admitted(evaluated, |(_, decision)| *decision) {
            (self.trail, self.decision) = (trail, decision);
        }
    }
}

impl PolicySnapshot {
    /// Returns `true` if there are shadow rules or a shadow policy.
    fn has_shadows(&self) -> bool {
        !self.policy.shadow_rules().is_empty() || self.shadow.is_some()
    }

    /// Returns `true` if the shadow policy was set while the proxy ran.
    pub fn has_assigned_shadow(&self) -> bool {
        let shadow = self.shadow.as_ref();
        shadow.is_some_and(|shadow| shadow.assignment.is_some())
    }

    /// Returns `true` if a shadow rule or the shadow policy depends on addresses.
    pub(crate) fn shadows_use_addresses(&self) -> bool {
        let mut rules = self.policy.shadow_rules().iter();
        rules.any(|rule| depends_on_address(&self.policy, *rule))
            || self
                .shadow
                .as_ref()
                .is_some_and(|shadow| shadow.policy.is_active_at(PolicyStage::Destination))
    }
}

fn depends_on_address(policy: &Policy, rule: RuleIndex) -> bool {
    policy
        .rule(rule)
        .is_some_and(|rule| rule.active_stages.contains(PolicyStage::Destination))
}

/// A policy's decision on a request.
#[derive(Clone, Copy)]
struct DecisionRef<'a> {
    trail: &'a Trail,
    decision: &'a Decision,
}

impl DecisionRef<'_> {
    /// Returns `true` if the request is refused. An undecided tunnel is, unless the policy allows such tunnels.
    fn refuses(self, policy: &Policy) -> bool {
        match self.decision.verdict {
            Verdict::Admit => false,
            Verdict::Reject(_) => true,
            Verdict::Undecided => {
                self.trail.word(policy, schema::TUNNEL_UNDECIDED) != Some("allow")
            }
        }
    }

    /// Returns the verdict as the counters name it.
    fn verdict_label(self, policy: &Policy) -> labels::VerdictLabel {
        if self.refuses(policy) {
            labels::VerdictLabel::Reject
        } else {
            labels::VerdictLabel::Allow
        }
    }

    /// Returns what would change if the decision were live.
    fn change_from_live(self, policy: &Policy, live_refuses: bool) -> ShadowChange {
        match (self.refuses(policy), live_refuses) {
            (true, false) => ShadowChange::WouldReject,
            (false, true) => ShadowChange::WouldAllow,
            (true, true) | (false, false) => ShadowChange::Unchanged,
        }
    }
}

impl ShadowEvaluation {
    /// Returns the results of the shadows, compared with those of the live rules.
    pub(crate) fn to_notes(
        &self,
        policy: &Policy,
        trail: &Trail,
        decision: &Decision,
    ) -> Box<ShadowNotes> {
        let live_refuses = DecisionRef { trail, decision }.refuses(policy);
        let of_rules = self.rules.iter().map(|shadow| {
            let reference = DecisionRef {
                trail: shadow.trail(),
                decision: &shadow.decision,
            };
            let rule = shadow.reported_rule(policy);
            ShadowNote {
                source: ShadowSource::Rule(shadow.root.0),
                matched: shadow.matched_rules(policy).map(|rule| rule.0).collect(),
                rule: Some(rule.0),
                deciding_rule: Some(rule.0).filter(|_| shadow.decision.cause == Cause::Rule(rule)),
                verdict: reference.verdict_label(policy),
                change: reference.change_from_live(policy, live_refuses),
                reason: shadow.decision.reason(),
                stage: shadow.decision.stage,
            }
        });
        let mut notes: SmallVec<[ShadowNote; 2]> = of_rules.collect();
        notes.extend(
            self.policy_evaluation
                .as_ref()
                .map(|other| other.to_note(live_refuses)),
        );
        let other = self
            .policy_evaluation
            .as_ref()
            .map(|other| Arc::clone(&other.shadow.counters));
        Box::new(ShadowNotes {
            policy_metrics: other,
            space: trail.space().map(|space| space.0),
            notes,
        })
    }
}

impl ShadowPolicyEvaluation {
    fn to_note(&self, live_refuses: bool) -> ShadowNote {
        let reference = DecisionRef {
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
            verdict: reference.verdict_label(&self.shadow.policy),
            change: reference.change_from_live(&self.shadow.policy, live_refuses),
            reason: self.decision.reason(),
            stage: self.decision.stage,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::metrics::Metrics;
    use crate::model::crawler::Crawler;
    use crate::policy::compile;
    use crate::policy::source::MemoryFileSystem;
    use crate::urls::target::HostTarget;

    fn policy(disposition: &str) -> Policy {
        let text = format!("policy: 1\nname: p\noptions: {{ disposition: {disposition} }}\n");
        let files = MemoryFileSystem::new().with_file("p", text);
        compile::load(&files, "p").unwrap().policy
    }

    fn counters(policy: &Policy) -> Arc<PolicyMetrics> {
        let metrics = Metrics::new(&[], &[]).unwrap();
        metrics.register_policy(policy.name(), policy.revision(), [], &Clock::system())
    }

    /// Returns the shadow policy's verdict on a tunnel.
    fn verdict(tunnel: &TunnelFacts, snapshot: &PolicySnapshot) -> Verdict {
        let shadow = ShadowEvaluation::for_tunnel(tunnel, None, snapshot).unwrap();
        shadow.policy_evaluation.unwrap().decision.verdict
    }

    #[test]
    fn the_shadow_policy_is_evaluated_once_for_a_tunnel() {
        let live = policy("allow");
        let shadow = policy("disallow");
        let shadow_counters = counters(&shadow);
        let shadow = Arc::new(ShadowPolicy::new(shadow, shadow_counters));
        let live_counters = counters(&live);
        let snapshot = PolicySnapshot::new(live, live_counters).with_shadow(Some(shadow.clone()));
        let tunnel = |authority: &str| TunnelFacts {
            host: HostTarget::parse_authority(authority).unwrap(),
            crawler: Crawler::anonymous(),
        };
        // The decision of another policy tells whether it is recalled.
        let remembered = tunnel("a.test:443");
        shadow.tunnels.decide(&policy("allow"), &remembered, None);
        assert_eq!(verdict(&remembered, &snapshot), Verdict::Admit);
        let other = verdict(&tunnel("b.test:443"), &snapshot);
        assert!(matches!(other, Verdict::Reject(_)), "{other:?}");
    }
}

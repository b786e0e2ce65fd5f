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
use crate::metrics::shadow::{Change, Note, Notes, ShadowOf};
use crate::policy::Policy;
use crate::policy::decide::{Cause, Decision, Verdict};
use crate::policy::fact::{Fact, Facts};
use crate::policy::options::schema;
use crate::policy::rule::{PolicyStage, RuleIndex};
use crate::policy::shadow::{Shadows, first_admitted};
use crate::policy::trail::Trail;

use super::judged::{Asked, Judged};
use super::snapshot::Snapshot;
use super::tunnel::TunnelJudged;

/// A policy that is judged beside the live one.
#[derive(Debug)]
pub struct ShadowPolicy<C> {
    /// The policy.
    pub policy: Arc<Policy>,
    /// What others keep per policy.
    pub counters: C,
}

/// A request as it stands in shadow.
#[derive(Debug)]
pub struct Beside<C> {
    rules: Shadows,
    whole: Option<Whole<C>>,
}

#[derive(Debug)]
struct Whole<C> {
    of: Arc<ShadowPolicy<C>>,
    trail: Trail,
    decision: Decision,
}

impl<C> Beside<C> {
    /// Judges at the request stage; `None` if nothing stands in shadow.
    pub(in crate::gate) fn of_request(asked: &Asked, snapshot: &Snapshot<C>) -> Option<Box<Self>> {
        if !snapshot.casts_shadows() || asked.reads_robots_txt() {
            return None;
        }
        let facts = asked.facts();
        let whole = snapshot.shadow.as_ref().map(|of| {
            let (trail, decision) = of.policy.request(&facts);
            Whole {
                of: Arc::clone(of),
                trail,
                decision,
            }
        });
        Some(Box::new(Self {
            rules: Shadows::of_request(&snapshot.policy, &facts),
            whole,
        }))
    }

    /// Judges a tunnel; `None` if nothing stands in shadow.
    pub(in crate::gate) fn of_tunnel(
        facts: &Facts<'_>,
        snapshot: &Snapshot<C>,
    ) -> Option<Box<Self>> {
        if !snapshot.casts_shadows() {
            return None;
        }
        let whole = snapshot.shadow.as_ref().map(|of| {
            let (trail, decision) = of.policy.decide(facts);
            Whole {
                of: Arc::clone(of),
                trail,
                decision,
            }
        });
        Some(Box::new(Self {
            rules: Shadows::of_tunnel(&snapshot.policy, facts),
            whole,
        }))
    }

    /// Judges at the destination stage. `before` is what the live rules had done before it.
    pub(in crate::gate) fn addresses(
        &mut self,
        policy: &Policy,
        facts: &Facts<'_>,
        addresses: &[IpAddr],
        before: &Trail,
    ) {
        self.rules.addresses(policy, facts, addresses, before);
        if let Some(whole) = self
            .whole
            .as_mut()
            .filter(|whole| !whole.decision.rejects())
        {
            whole.addresses(facts, addresses);
        }
    }

    /// Judges at a stage behind the origin.
    pub(in crate::gate) fn stage(
        &mut self,
        policy: &Policy,
        stage: PolicyStage,
        facts: &Facts<'_>,
        before: &Trail,
    ) {
        self.rules.stage(policy, stage, facts, before);
        if let Some(whole) = self
            .whole
            .as_mut()
            .filter(|whole| !whole.decision.rejects())
        {
            whole.decision = whole.of.policy.stage(&mut whole.trail, stage, facts);
        }
    }
}

impl<C> Beside<C> {
    /// Whether the other policy waits to hear what the document says; the rules in shadow are asked with those that are
    /// live.
    pub(in crate::gate) fn awaits_document(&self, facts: &Facts<'_>) -> bool {
        let waits = |whole: &Whole<C>| {
            !whole.decision.rejects() && whole.of.policy.awaits_document(&whole.trail, facts)
        };
        self.whole.as_ref().is_some_and(waits)
    }
}

impl<C> Whole<C> {
    /// The request goes on with the first address that is not rejected, as in the live policy.
    fn addresses(&mut self, facts: &Facts<'_>, addresses: &[IpAddr]) {
        let policy = &self.of.policy;
        if !policy.acts_at(PolicyStage::Destination) {
            return;
        }
        let judged = addresses.iter().map(|address| {
            let facts = Facts {
                address: Fact::Known(Some(*address)),
                ..*facts
            };
            let mut trail = self.trail.clone();
            let decision = policy.stage(&mut trail, PolicyStage::Destination, &facts);
            (trail, decision)
        });
        if let Some((trail, decision)) = first_admitted(judged, |(_, decision)| *decision) {
            (self.trail, self.decision) = (trail, decision);
        }
    }
}

impl<C> Snapshot<C> {
    /// Whether anything stands in shadow.
    fn casts_shadows(&self) -> bool {
        !self.policy.shadows().is_empty() || self.shadow.is_some()
    }

    /// Whether anything in shadow looks at addresses.
    pub(in crate::gate) fn shadows_see_addresses(&self) -> bool {
        let acts = |rule: &RuleIndex| {
            self.policy
                .rule(*rule)
                .is_some_and(|rule| rule.active.contains(PolicyStage::Destination))
        };
        self.policy.shadows().iter().any(acts)
            || self
                .shadow
                .as_ref()
                .is_some_and(|shadow| shadow.policy.acts_at(PolicyStage::Destination))
    }
}

impl Judged<Arc<PolicyMetrics>> {
    /// What stands in shadow says of the request so far; `None` if nothing stands there.
    pub fn shadow_notes(&self) -> Option<Box<Notes>> {
        let live = Said {
            trail: &self.trail,
            decision: &self.decision,
        };
        self.beside
            .as_ref()
            .map(|beside| beside.notes(self.policy(), live))
    }
}

impl TunnelJudged<Arc<PolicyMetrics>> {
    /// What stands in shadow says of the tunnel; `None` if nothing stands there.
    pub fn shadow_notes(&self) -> Option<Box<Notes>> {
        let (trail, decision) = self.said();
        self.beside
            .as_ref()
            .map(|beside| beside.notes(&self.snapshot.policy, Said { trail, decision }))
    }
}

/// What a policy says of a request.
#[derive(Clone, Copy)]
struct Said<'a> {
    trail: &'a Trail,
    decision: &'a Decision,
}

impl Said<'_> {
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
    fn counted_as(self, policy: &Policy) -> labels::Verdict {
        if self.refuses(policy) {
            labels::Verdict::Reject
        } else {
            labels::Verdict::Allow
        }
    }

    /// What it would change if it were live.
    fn change(self, policy: &Policy, live_refuses: bool) -> Change {
        match (self.refuses(policy), live_refuses) {
            (true, false) => Change::Refuses,
            (false, true) => Change::Admits,
            (true, true) | (false, false) => Change::Nothing,
        }
    }
}

impl Beside<Arc<PolicyMetrics>> {
    fn notes(&self, policy: &Policy, live: Said<'_>) -> Box<Notes> {
        let live_refuses = live.refuses(policy);
        let of_rules = self.rules.iter().map(|shadow| {
            let said = Said {
                trail: shadow.trail(),
                decision: &shadow.decision,
            };
            let rule = shadow.rule(policy);
            Note {
                of: ShadowOf::Rule(shadow.root.0),
                matched: shadow.matched(policy).map(|rule| rule.0).collect(),
                rule: Some(rule.0),
                decided: Some(rule.0).filter(|_| shadow.decision.cause == Cause::Rule(rule)),
                verdict: said.counted_as(policy),
                change: said.change(policy, live_refuses),
                reason: shadow.decision.reason(),
                stage: shadow.decision.stage,
            }
        });
        let mut notes: SmallVec<[Note; 2]> = of_rules.collect();
        notes.extend(self.whole.as_ref().map(|whole| whole.note(live_refuses)));
        let whole = self
            .whole
            .as_ref()
            .map(|whole| Arc::clone(&whole.of.counters));
        Box::new(Notes { whole, notes })
    }
}

impl Whole<Arc<PolicyMetrics>> {
    fn note(&self, live_refuses: bool) -> Note {
        let said = Said {
            trail: &self.trail,
            decision: &self.decision,
        };
        let cause = match self.decision.cause {
            Cause::Rule(rule) => Some(rule.0),
            Cause::Default => None,
        };
        Note {
            of: ShadowOf::Policy,
            matched: self.trail.matched().iter().map(|rule| rule.0).collect(),
            rule: cause,
            decided: cause,
            verdict: said.counted_as(&self.of.policy),
            change: said.change(&self.of.policy, live_refuses),
            reason: self.decision.reason(),
            stage: self.decision.stage,
        }
    }
}

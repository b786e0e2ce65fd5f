//! From a CONNECT to a tunnel permit: what the policy says of a host whose URLs the proxy will not see.
//!
//! A tunnel shows its host, port, crawler and address, so the answer has three values (policy.md section 4). What the
//! bytes inside turn out to be is the proxy's business.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::TimeSpan;
use crate::metrics::record::UrlRetention;
use crate::model::crawler::Crawler;
use crate::pacing::pace::{MAX_WAIT, RequestKind};
use crate::policy::Policy;
use crate::policy::decide::{Cause, Decision, Verdict};
use crate::policy::fact::{Fact, Facts};
use crate::policy::options::politeness::PolitenessOption;
use crate::policy::options::timeouts::OriginTimeouts;
use crate::policy::rule::{PolicyStage, RuleIndex};
use crate::policy::trail::Trail;
use crate::urls::target::HostTarget;

use super::admission::{AdmissionQueue, Arrival, HostSlot, WaitTerms};
use super::destination::{AddressList, DestinationError, DestinationResolver, retain_admitted};
use super::permit::TunnelPermit;
use super::refusal::{Refusal, recorded_url_detail};
use super::shadow::ShadowEvaluation;
use super::snapshot::{ActivePolicy, PolicySnapshot};
use super::stage::pace::{self, PaceSubject, Pacing};
use super::stage::{class, stop};

/// What a CONNECT shows.
#[derive(Clone, Debug)]
pub struct TunnelFacts {
    /// Host and port in canonical form.
    pub host: HostTarget,
    /// Who is asking.
    pub crawler: Crawler,
}

/// What the policy says of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelDecision {
    /// Every URL of the host is admitted, as far as a tunnel's facts reach.
    Admit,
    /// Every URL of the host is rejected.
    Reject,
    /// Some are, or may be: `tunnel_undecided` says what becomes of it.
    Undecided,
}

/// A tunnel and the decision that stands, kept for as long as it is open.
#[derive(Debug)]
pub struct TunnelEvaluation {
    /// The facts.
    pub facts: TunnelFacts,
    /// The policy that judged it last.
    pub snapshot: Arc<PolicySnapshot>,
    /// How long it took to find the host's addresses; `None` if they were known.
    pub lookup_time: Option<TimeSpan>,
    pub(crate) shadow: Option<Box<ShadowEvaluation>>,
    trail: Trail,
    decision: Decision,
}

/// A CONNECT that has been through the gate.
#[derive(Debug)]
pub struct TunnelResult<V> {
    /// The permit, or why there is none.
    pub outcome: Result<TunnelPermit<V>, Box<Refusal>>,
    /// Its judgement; under a newer policy than it began with if that came into force while it was held.
    pub evaluation: TunnelEvaluation,
    /// For how long it was held, if it had to wait.
    pub wait_time: Option<Duration>,
}

/// What the stages of a tunnel ask.
pub struct TunnelServices<'a, D> {
    /// Addresses for names.
    pub destinations: &'a D,
    /// The policy that is in force once a hold is over.
    pub active_policy: &'a ActivePolicy,
    /// Where tunnels wait for their host's turn.
    pub admission: &'a Arc<AdmissionQueue>,
    /// For how long, if the policy does not say.
    pub patience: Duration,
}

/// Takes a CONNECT through the gate: the policy by host, the addresses and their ranges, the policy by address, one
/// turn of the host. If the policy has changed while it waited for that, it is judged again.
///
/// Robots rules are about paths, so none is asked for here. A host that the policy refuses costs no look-up.
pub async fn admit_tunnel<D: DestinationResolver>(
    tunnel_facts: TunnelFacts,
    snapshot: Arc<PolicySnapshot>,
    services: &TunnelServices<'_, D>,
) -> TunnelResult<D::Addresses> {
    let (mut judged, mut arrival) = (TunnelEvaluation::new(tunnel_facts, snapshot), None);
    loop {
        let outcome = match run_stages(&mut judged, services, &mut arrival).await {
            Ok((vetted, slot)) => {
                let newer = services.active_policy.load();
                if arrival.is_some() && newer.policy.revision() != judged.snapshot.policy.revision()
                {
                    // Its turn goes back unused; its place in the queue it keeps.
                    drop(slot);
                    let found_in = judged.lookup_time;
                    judged = TunnelEvaluation {
                        lookup_time: found_in,
                        ..TunnelEvaluation::new(judged.facts, newer)
                    };
                    continue;
                }
                Ok(TunnelPermit::new(judged.facts.host.clone(), vetted, slot))
            }
            Err(refusal) => Err(refusal),
        };
        return TunnelResult {
            outcome,
            evaluation: judged,
            wait_time: arrival.map(|arrival| services.admission.time_waited(arrival)),
        };
    }
}

async fn run_stages<D: DestinationResolver>(
    evaluation: &mut TunnelEvaluation,
    services: &TunnelServices<'_, D>,
    arrival: &mut Option<Arrival>,
) -> Result<(D::Addresses, HostSlot), Box<Refusal>> {
    let by_address = evaluation
        .snapshot
        .policy
        .is_active_at(PolicyStage::Destination);
    if evaluation.decision.rejects() || !by_address {
        evaluation.ensure_admitted()?;
    }
    let vetted = services
        .destinations
        .vet_host(&evaluation.facts.host)
        .await
        .map_err(Refusal::from);
    let mut vetted = vetted.map_err(|refusal| Refusal {
        url_detail: evaluation.url_detail(),
        ..refusal
    })?;
    evaluation.lookup_time = vetted.lookup_time().or(evaluation.lookup_time);
    if by_address || evaluation.snapshot.shadows_use_addresses() {
        evaluation.evaluate_addresses(&mut vetted)?;
    }
    if let Some(left) = services.destinations.connect_cooldown(&vetted) {
        return Err(Box::new(Refusal {
            url_detail: evaluation.url_detail(),
            ..DestinationError::ConnectionRefused(left).into()
        }));
    }
    let politeness = PolitenessOption::new(&evaluation.snapshot.policy, &evaluation.trail);
    let (host, crawler) = (evaluation.facts.host.host(), &evaluation.facts.crawler);
    let snapshot = &evaluation.snapshot;
    let limits = snapshot
        .schedules
        .current_limits(&snapshot.policy, &evaluation.trail, || {
            services.admission.wall()
        });
    let (pacing, overflow) = (
        Pacing::for_tunnel(&politeness, limits),
        politeness.overflow(),
    );
    let subject = PaceSubject {
        pacing,
        overflow,
        host,
        kind: RequestKind::Navigation,
        crawler,
        resource: host,
    };
    let patience = evaluation
        .timeouts()
        .connect_total
        .unwrap_or(services.patience)
        .min(MAX_WAIT);
    let terms = WaitTerms {
        patience,
        rank: class::tunnel_rank(&politeness),
    };
    let stoppable = || stop::StopSubject::for_tunnel(evaluation);
    loop {
        stop::wait_for_stops(stoppable, services.admission, arrival, || patience).await?;
        let slot =
            pace::acquire_tunnel_slot(&subject, &vetted, services.admission, arrival, terms).await;
        let slot = slot.map_err(|refusal| Refusal {
            url_detail: evaluation.url_detail(),
            ..refusal
        })?;
        // Its turn goes back unused if it was stopped while it waited for that.
        if stop::current_refusal(stoppable, services.admission).is_none() {
            return Ok((vetted, slot));
        }
    }
}

impl TunnelEvaluation {
    fn new(tunnel_facts: TunnelFacts, snapshot: Arc<PolicySnapshot>) -> Self {
        let (trail, decision) = evaluate(&snapshot.policy, &tunnel_facts);
        let beside =
            ShadowEvaluation::for_tunnel(&policy_facts(&tunnel_facts, Fact::Unknown), &snapshot);
        Self {
            facts: tunnel_facts,
            snapshot,
            trail,
            decision,
            shadow: beside,
            lookup_time: None,
        }
    }

    /// What the rules have done, and what they came to.
    pub(crate) fn trail_and_decision(&self) -> (&Trail, &Decision) {
        (&self.trail, &self.decision)
    }

    /// What the policy says, whatever becomes of it.
    pub fn verdict(&self) -> TunnelDecision {
        match self.decision.verdict {
            Verdict::Admit => TunnelDecision::Admit,
            Verdict::Reject(_) => TunnelDecision::Reject,
            Verdict::Undecided => TunnelDecision::Undecided,
        }
    }

    /// The rules that matched.
    pub fn matched_rules(&self) -> &[RuleIndex] {
        self.trail.matched_rules()
    }

    /// The rule that decided, if one did.
    pub fn cause(&self) -> Option<RuleIndex> {
        match self.decision.cause {
            Cause::Rule(rule) => Some(rule),
            Cause::Default => None,
        }
    }

    /// The option `timeouts`, up to a connection.
    pub fn timeouts(&self) -> OriginTimeouts {
        OriginTimeouts::from_trail(&self.snapshot.policy, &self.trail)
    }

    /// What the log keeps of a host that is refused by something else than the policy.
    pub fn url_detail(&self) -> UrlRetention {
        recorded_url_detail(&self.snapshot.policy, &self.trail, UrlRetention::Host)
    }

    /// Judges an open tunnel by another policy.
    ///
    /// # Errors
    /// If that policy refuses it: the tunnel must be closed.
    pub fn re_evaluate(
        &mut self,
        snapshot: Arc<PolicySnapshot>,
        address: IpAddr,
    ) -> Result<(), Box<Refusal>> {
        self.snapshot = snapshot;
        let facts = policy_facts(&self.facts, Fact::Known(Some(address)));
        (self.trail, self.decision) = self.snapshot.policy.decide(&facts);
        self.shadow = ShadowEvaluation::for_tunnel(&facts, &self.snapshot);
        self.ensure_admitted()
    }

    /// Drops the addresses that the policy refuses; refuses the tunnel if none is left.
    fn evaluate_addresses(&mut self, vetted: &mut impl AddressList) -> Result<(), Box<Refusal>> {
        let policy = &self.snapshot.policy;
        let judge = |address| {
            let (trail, decision) =
                policy.decide(&policy_facts(&self.facts, Fact::Known(Some(address))));
            (trail, decision, address)
        };
        let standing = retain_admitted(vetted, judge, |(trail, decision, _)| {
            Refusal::from_decision(policy, trail, decision).is_none()
        });
        if let Some((trail, decision, address)) = standing {
            (self.trail, self.decision) = (trail, decision);
            let facts = policy_facts(&self.facts, Fact::Known(Some(address)));
            self.shadow = ShadowEvaluation::for_tunnel(&facts, &self.snapshot);
        }
        self.ensure_admitted()
    }

    /// The refusal of an open tunnel that has been stopped since.
    pub fn stop_refusal(&self, admission: &AdmissionQueue) -> Option<Box<Refusal>> {
        stop::current_refusal(|| stop::StopSubject::for_tunnel(self), admission).map(Box::new)
    }

    fn ensure_admitted(&self) -> Result<(), Box<Refusal>> {
        match Refusal::from_decision(&self.snapshot.policy, &self.trail, &self.decision) {
            Some(refusal) => Err(Box::new(refusal)),
            None => Ok(()),
        }
    }
}

/// What a policy says of a tunnel whose address is not known yet.
pub(super) fn evaluate(policy: &Policy, tunnel_facts: &TunnelFacts) -> (Trail, Decision) {
    policy.decide(&policy_facts(tunnel_facts, Fact::Unknown))
}

fn policy_facts(tunnel_facts: &TunnelFacts, address: Fact<Option<IpAddr>>) -> Facts<'_> {
    Facts {
        crawler: tunnel_facts.crawler.as_str(),
        address,
        ..Facts::for_tunnel(&tunnel_facts.host)
    }
}

//! From a CONNECT to a tunnel permit: what the policy says of a host whose URLs the proxy will not see.
//!
//! A tunnel shows its host, port, crawler and address, so the answer has three values (policy.md section 4). What the
//! bytes inside turn out to be is the proxy's business.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Lapse;
use crate::metrics::record::Keep;
use crate::policy::Policy;
use crate::policy::decide::{Cause, Decision, Verdict};
use crate::policy::fact::{Fact, Facts};
use crate::policy::options::politeness::Politeness;
use crate::policy::options::timeouts::ToOrigin;
use crate::policy::rule::{PolicyStage, RuleIndex};
use crate::policy::trail::Trail;
use crate::politeness::pace::{Kind, LONGEST};
use crate::vocab::crawler::Crawler;
use crate::vocab::target::HostTarget;

use super::destination::{Addresses, Destinations, Unreachable, keep_admitted};
use super::hold::{Arrival, Hold, Slot, Terms};
use super::permit::TunnelPermit;
use super::refusal::{Refusal, recorded};
use super::shadow::Beside;
use super::snapshot::{InForce, Snapshot};
use super::stage::pace::{self, Pacing, Subject};
use super::stage::{class, stop};

/// What a CONNECT shows.
#[derive(Clone, Debug)]
pub struct TunnelAsked {
    /// Host and port in canonical form.
    pub host: HostTarget,
    /// Who is asking.
    pub crawler: Crawler,
}

/// What the policy says of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelVerdict {
    /// Every URL of the host is admitted, as far as a tunnel's facts reach.
    Admit,
    /// Every URL of the host is rejected.
    Reject,
    /// Some are, or may be: `tunnel_undecided` says what becomes of it.
    Undecided,
}

/// A tunnel and the decision that stands, kept for as long as it is open.
#[derive(Debug)]
pub struct TunnelJudged<C> {
    /// The facts.
    pub asked: TunnelAsked,
    /// The policy that judged it last.
    pub snapshot: Arc<Snapshot<C>>,
    /// How long it took to find the host's addresses; `None` if they were known.
    pub found_in: Option<Lapse>,
    pub(in crate::gate) beside: Option<Box<Beside<C>>>,
    trail: Trail,
    decision: Decision,
}

/// A CONNECT that has been through the gate.
#[derive(Debug)]
pub struct TunnelPassage<V, C> {
    /// The permit, or why there is none.
    pub outcome: Result<TunnelPermit<V>, Box<Refusal>>,
    /// Its judgement; under a newer policy than it began with if that came into force while it was held.
    pub judged: TunnelJudged<C>,
    /// For how long it was held, if it had to wait.
    pub held: Option<Duration>,
}

/// What the stages of a tunnel ask.
pub struct TunnelWay<'a, D, C> {
    /// Addresses for names.
    pub destinations: &'a D,
    /// The policy that is in force once a hold is over.
    pub in_force: &'a InForce<C>,
    /// Where tunnels wait for their host's turn.
    pub hold: &'a Arc<Hold>,
    /// For how long, if the policy does not say.
    pub patience: Duration,
}

/// Takes a CONNECT through the gate: the policy by host, the addresses and their ranges, the policy by address, one
/// turn of the host. If the policy has changed while it waited for that, it is judged again.
///
/// Robots rules are about paths, so none is asked for here. A host that the policy refuses costs no look-up.
pub async fn tunnel<D: Destinations, C>(
    asked: TunnelAsked,
    snapshot: Arc<Snapshot<C>>,
    way: &TunnelWay<'_, D, C>,
) -> TunnelPassage<D::Vetted, C> {
    let (mut judged, mut arrival) = (TunnelJudged::new(asked, snapshot), None);
    loop {
        let outcome = match stages(&mut judged, way, &mut arrival).await {
            Ok((vetted, slot)) => {
                let newer = way.in_force.load();
                if arrival.is_some() && newer.policy.revision() != judged.snapshot.policy.revision()
                {
                    // Its turn goes back unused; its place in the queue it keeps.
                    drop(slot);
                    let found_in = judged.found_in;
                    judged = TunnelJudged {
                        found_in,
                        ..TunnelJudged::new(judged.asked, newer)
                    };
                    continue;
                }
                Ok(TunnelPermit::new(judged.asked.host.clone(), vetted, slot))
            }
            Err(refusal) => Err(refusal),
        };
        return TunnelPassage {
            outcome,
            judged,
            held: arrival.map(|arrival| way.hold.since(arrival)),
        };
    }
}

async fn stages<D: Destinations, C>(
    judged: &mut TunnelJudged<C>,
    way: &TunnelWay<'_, D, C>,
    arrival: &mut Option<Arrival>,
) -> Result<(D::Vetted, Slot), Box<Refusal>> {
    let by_address = judged.snapshot.policy.acts_at(PolicyStage::Destination);
    if judged.decision.rejects() || !by_address {
        judged.refused()?;
    }
    let vetted = way
        .destinations
        .vet_host(&judged.asked.host)
        .await
        .map_err(Refusal::from);
    let mut vetted = vetted.map_err(|refusal| Refusal {
        keep: judged.keep(),
        ..refusal
    })?;
    judged.found_in = vetted.found_in().or(judged.found_in);
    if by_address || judged.snapshot.shadows_see_addresses() {
        judged.judge_addresses(&mut vetted)?;
    }
    if let Some(left) = way.destinations.refusing(&vetted) {
        return Err(Box::new(Refusal {
            keep: judged.keep(),
            ..Unreachable::Refusing(left).into()
        }));
    }
    let politeness = Politeness::of(&judged.snapshot.policy, &judged.trail);
    let (host, crawler) = (judged.asked.host.host(), &judged.asked.crawler);
    let snapshot = &judged.snapshot;
    let limits = snapshot
        .schedules
        .now(&snapshot.policy, &judged.trail, || way.hold.wall());
    let (pacing, overflow) = (
        Pacing::of_tunnel(&politeness, limits),
        politeness.overflow(),
    );
    let subject = Subject {
        pacing,
        overflow,
        host,
        kind: Kind::Navigation,
        crawler,
        what: host,
    };
    let patience = judged
        .timeouts()
        .connect_total
        .unwrap_or(way.patience)
        .min(LONGEST);
    let terms = Terms {
        patience,
        rank: class::rank_of_tunnel(&politeness),
    };
    let stoppable = || stop::Subject::tunnel(judged);
    loop {
        stop::outlast(stoppable, way.hold, arrival, || patience).await?;
        let slot = pace::open(&subject, &vetted, way.hold, arrival, terms).await;
        let slot = slot.map_err(|refusal| Refusal {
            keep: judged.keep(),
            ..refusal
        })?;
        // Its turn goes back unused if it was stopped while it waited for that.
        if stop::standing(stoppable, way.hold).is_none() {
            return Ok((vetted, slot));
        }
    }
}

impl<C> TunnelJudged<C> {
    fn new(asked: TunnelAsked, snapshot: Arc<Snapshot<C>>) -> Self {
        let (trail, decision) = judge(&snapshot.policy, &asked);
        let beside = Beside::of_tunnel(&facts(&asked, Fact::Unknown), &snapshot);
        Self {
            asked,
            snapshot,
            trail,
            decision,
            beside,
            found_in: None,
        }
    }

    /// What the rules have done, and what they came to.
    pub(in crate::gate) fn said(&self) -> (&Trail, &Decision) {
        (&self.trail, &self.decision)
    }

    /// What the policy says, whatever becomes of it.
    pub fn verdict(&self) -> TunnelVerdict {
        match self.decision.verdict {
            Verdict::Admit => TunnelVerdict::Admit,
            Verdict::Reject(_) => TunnelVerdict::Reject,
            Verdict::Undecided => TunnelVerdict::Undecided,
        }
    }

    /// The rules that matched.
    pub fn matched(&self) -> &[RuleIndex] {
        self.trail.matched()
    }

    /// The rule that decided, if one did.
    pub fn cause(&self) -> Option<RuleIndex> {
        match self.decision.cause {
            Cause::Rule(rule) => Some(rule),
            Cause::Default => None,
        }
    }

    /// The option `timeouts`, up to a connection.
    pub fn timeouts(&self) -> ToOrigin {
        ToOrigin::of(&self.snapshot.policy, &self.trail)
    }

    /// What the log keeps of a host that is refused by something else than the policy.
    pub fn keep(&self) -> Keep {
        recorded(&self.snapshot.policy, &self.trail, Keep::Host)
    }

    /// Judges an open tunnel by another policy.
    ///
    /// # Errors
    /// If that policy refuses it: the tunnel must be closed.
    pub fn judge_again(
        &mut self,
        snapshot: Arc<Snapshot<C>>,
        address: IpAddr,
    ) -> Result<(), Box<Refusal>> {
        self.snapshot = snapshot;
        let facts = facts(&self.asked, Fact::Known(Some(address)));
        (self.trail, self.decision) = self.snapshot.policy.decide(&facts);
        self.beside = Beside::of_tunnel(&facts, &self.snapshot);
        self.refused()
    }

    /// Drops the addresses that the policy refuses; refuses the tunnel if none is left.
    fn judge_addresses(&mut self, vetted: &mut impl Addresses) -> Result<(), Box<Refusal>> {
        let policy = &self.snapshot.policy;
        let judge = |address| {
            let (trail, decision) = policy.decide(&facts(&self.asked, Fact::Known(Some(address))));
            (trail, decision, address)
        };
        let standing = keep_admitted(vetted, judge, |(trail, decision, _)| {
            Refusal::by_policy(policy, trail, decision).is_none()
        });
        if let Some((trail, decision, address)) = standing {
            (self.trail, self.decision) = (trail, decision);
            let facts = facts(&self.asked, Fact::Known(Some(address)));
            self.beside = Beside::of_tunnel(&facts, &self.snapshot);
        }
        self.refused()
    }

    /// The refusal of an open tunnel that has been stopped since.
    pub fn stopped(&self, hold: &Hold) -> Option<Box<Refusal>> {
        stop::standing(|| stop::Subject::tunnel(self), hold).map(Box::new)
    }

    fn refused(&self) -> Result<(), Box<Refusal>> {
        match Refusal::by_policy(&self.snapshot.policy, &self.trail, &self.decision) {
            Some(refusal) => Err(Box::new(refusal)),
            None => Ok(()),
        }
    }
}

/// What a policy says of a tunnel whose address is not known yet.
pub(super) fn judge(policy: &Policy, asked: &TunnelAsked) -> (Trail, Decision) {
    policy.decide(&facts(asked, Fact::Unknown))
}

fn facts(asked: &TunnelAsked, address: Fact<Option<IpAddr>>) -> Facts<'_> {
    Facts {
        crawler: asked.crawler.as_str(),
        address,
        ..Facts::of_tunnel(&asked.host)
    }
}

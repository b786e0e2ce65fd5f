//! A trial: what a policy says of facts that were written down instead of met on a socket, and how the refusal would
//! be answered. For cases, `decide` and `explain`; requests go through [`super::request`].

use crate::model::profile::{Conditional, Profile, WireResponse};
use crate::policy::Policy;
use crate::policy::cases::{Case, CaseFacts, CaseRefusal, Mismatch};
use crate::policy::decide::{Cause, Decision};
use crate::policy::trail::Trail;

use super::refusal::Refusal;

/// Facts, judged as far as they reach.
#[derive(Debug)]
pub struct OfflineEvaluation<'p> {
    /// The policy that judged.
    pub policy: &'p Policy,
    /// What its rules did.
    pub trail: Trail,
    /// What it decided.
    pub decision: Decision,
    /// The refusal; none if the request would pass, which an undecided tunnel may (`tunnel_undecided: allow`).
    pub refusal: Option<Refusal>,
    /// The profile that answers.
    pub profile: Profile,
}

impl<'p> OfflineEvaluation<'p> {
    /// Judges facts.
    pub fn new(policy: &'p Policy, facts: &CaseFacts, profile: Profile) -> Self {
        let (trail, decision) = policy.decide(&facts.facts());
        let refusal = Refusal::from_decision(policy, &trail, &decision);
        Self {
            policy,
            trail,
            decision,
            refusal,
            profile,
        }
    }

    /// The id of the rule that decided.
    pub fn rule_id(&self) -> Option<&'p str> {
        match self.decision.cause {
            Cause::Rule(rule) => self.policy.rule_id(rule),
            Cause::Default => None,
        }
    }

    /// How the refusal would be answered to a request without validators.
    pub fn answer(&self) -> CaseRefusal {
        let Some(refusal) = &self.refusal else {
            return CaseRefusal::default();
        };
        let status = match refusal.to_wire(self.profile, Conditional::No) {
            WireResponse::Status(status) => Some(status),
            WireResponse::Close => None,
        };
        CaseRefusal {
            status,
            code: refusal.code.or(refusal.reason.row().code),
            intent: refusal.intent(),
        }
    }
}

/// A case that does not come out as it says.
#[derive(Debug)]
pub struct CaseFailure<'c> {
    /// The case.
    pub case: &'c Case,
    /// In what it differs; never empty.
    pub mismatches: Vec<Mismatch>,
}

/// Runs a case.
///
/// # Errors
/// In what the decision is not what the case expects.
pub fn run_case<'c>(policy: &Policy, case: &'c Case) -> Result<(), CaseFailure<'c>> {
    let trial = OfflineEvaluation::new(policy, &case.facts, case.profile);
    let mismatches = case.mismatches(policy, &trial.trail, &trial.decision, &trial.answer());
    if mismatches.is_empty() {
        Ok(())
    } else {
        Err(CaseFailure { case, mismatches })
    }
}

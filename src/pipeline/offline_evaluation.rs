//! The evaluation of a policy on facts that were written down instead of read from a socket, and the response that a
//! refusal would get. For cases, `decide` and `explain`; requests go through [`super::request`].

use crate::model::crawler::Crawler;
use crate::model::profile::{Conditional, Profile, WireResponse};
use crate::policy::Policy;
use crate::policy::cases::{Case, CaseFacts, CaseRefusal, Mismatch};
use crate::policy::decide::{Cause, Decision};
use crate::policy::explain::MAX_RULES;
use crate::policy::options::robots::robots_agent;
use crate::policy::trail::Trail;
use crate::robots::agent::RobotsAgent;

use super::refusal::Refusal;
use super::stage::robots;

/// An evaluation, as far as the facts reach.
#[derive(Debug)]
pub struct OfflineEvaluation<'p> {
    pub policy: &'p Policy,
    /// The trail of its rules.
    pub trail: Trail,
    pub decision: Decision,
    /// The refusal; `None` if the request would pass, as an undecided tunnel may (`tunnel_undecided: allow`).
    pub refusal: Option<Refusal>,
    /// The profile of the crawler.
    pub profile: Profile,
}

/// The rules that an explanation has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExplanationScope {
    /// Those that matter for the decision; in a small policy all.
    Relevant,
    All,
}

impl<'p> OfflineEvaluation<'p> {
    /// Evaluates facts.
    pub fn new(policy: &'p Policy, facts: &CaseFacts, profile: Profile) -> Self {
        Self::from_decision(policy, policy.decide(&facts.facts()), profile)
    }

    /// Evaluates facts by every rule, so that the trail has the outcome of each: for explanations and coverage.
    pub fn of_every_rule(policy: &'p Policy, facts: &CaseFacts, profile: Profile) -> Self {
        Self::from_decision(policy, policy.decide_every_rule(&facts.facts()), profile)
    }

    /// Evaluates facts for an explanation.
    pub fn for_explanation(
        policy: &'p Policy,
        facts: &CaseFacts,
        profile: Profile,
        scope: ExplanationScope,
    ) -> Self {
        let every_rule = match scope {
            ExplanationScope::All => true,
            ExplanationScope::Relevant => policy.rules().len() <= MAX_RULES,
        };
        if every_rule {
            Self::of_every_rule(policy, facts, profile)
        } else {
            Self::new(policy, facts, profile)
        }
    }

    fn from_decision(
        policy: &'p Policy,
        (trail, decision): (Trail, Decision),
        profile: Profile,
    ) -> Self {
        let refusal = Refusal::from_decision(policy, &trail, &decision);
        Self {
            policy,
            trail,
            decision,
            refusal,
            profile,
        }
    }

    /// Returns the product token of a crawler in robots.txt.
    pub fn robots_agent<'a>(
        &'a self,
        crawler: &'a Crawler,
        user_agent: &'a str,
    ) -> RobotsAgent<'a> {
        robots::robots_agent(robots_agent(self.policy, &self.trail), crawler, user_agent)
    }

    /// Returns the id of the rule that decided.
    pub fn rule_id(&self) -> Option<&'p str> {
        match self.decision.cause {
            Cause::Rule(rule) => self.policy.rule_id(rule),
            Cause::Default => None,
        }
    }

    /// Returns the response that a request without validators would get.
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
            code: refusal.crawl_code(),
            intent: refusal.intent(),
        }
    }
}

/// A case that fails.
#[derive(Debug)]
pub struct CaseFailure<'c> {
    pub case: &'c Case,
    /// The differences; never empty.
    pub mismatches: Vec<Mismatch>,
}

/// Runs a case.
///
/// # Errors
/// The differences from what the case expects.
pub fn run_case<'c>(policy: &Policy, case: &'c Case) -> Result<(), CaseFailure<'c>> {
    let evaluation = OfflineEvaluation::new(policy, &case.facts, case.profile);
    let mismatches = case.mismatches(
        policy,
        &evaluation.trail,
        &evaluation.decision,
        &evaluation.answer(),
    );
    if mismatches.is_empty() {
        Ok(())
    } else {
        Err(CaseFailure { case, mismatches })
    }
}

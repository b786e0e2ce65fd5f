//! Comparison of the verdicts of a policy with those of the source's system.

use std::collections::BTreeSet;

use crawlgate_policy::UrlTarget;
use crawlgate_policy::internal::policy::Policy;
use crawlgate_policy::internal::policy::cases::CaseFacts;
use crawlgate_policy::internal::policy::decide::{Cause, Decision};
use crawlgate_policy::internal::policy::rule::RuleIndex;
use crawlgate_policy::internal::policy::trail::{RuleState, Trail};
use serde_json::{Map, Value as Json, json};

use crate::draft::CaseRequest;
use crate::input::{ImportError, Place};
use crate::reference::{SourceEvaluator, SourceRequest, SourceVerdict};
use crate::report::Report;

/// A request that the policy and the source's system decide differently.
#[derive(Clone, Debug, PartialEq)]
pub struct Divergence {
    pub url: String,
    /// The facts besides the URL, as in a case.
    pub facts: Map<String, Json>,
    /// The verdict of the source's system.
    pub source: SourceVerdict,
    /// The rule of the policy that decides; `None` if none does.
    pub rule: Option<String>,
    /// The assumption that explains the difference.
    pub assumption: Option<String>,
}

/// Compares the decisions of a policy with those of the source's system.
pub struct Comparison<'a> {
    pub policy: &'a Policy,
    pub report: &'a Report,
    pub evaluator: &'a dyn SourceEvaluator,
}

/// The verdicts on a request.
pub(crate) struct ComparedRequest {
    /// The case of the policy. It expects what the source's system does, unless an assumption explains
    /// the difference.
    pub case: Map<String, Json>,
    /// `None` if the two decide alike.
    pub divergence: Option<Divergence>,
    /// The outcomes that the request shows.
    pub outcomes: BTreeSet<CaseOutcome>,
    pub trail: Trail,
}

/// Something that a case of a policy shows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CaseOutcome {
    /// A rule, by its index, applies or does not.
    Branch { rule: u32, applies: bool },
    /// A rule decides, or none does.
    Decision { rule: Option<u32>, refuses: bool },
    /// The policy differs from the source as the report announces.
    Announced { rule: Option<u32> },
}

impl Comparison<'_> {
    /// Compares the verdicts on a request.
    pub fn compare(
        &self,
        url: &str,
        details: &Map<String, Json>,
    ) -> Result<Option<Divergence>, ImportError> {
        Ok(self.judge(url, details)?.divergence)
    }

    /// Compares the verdicts on a request, and describes it as a case.
    pub(crate) fn judge(
        &self,
        url: &str,
        details: &Map<String, Json>,
    ) -> Result<ComparedRequest, ImportError> {
        let target = UrlTarget::parse(url)
            .map_err(|error| ImportError::invalid(&Place::start(url), error.to_string()))?;
        let url = target.as_str();
        let facts = case_facts(url, details)?;
        let (trail, decision) = self.policy.decide_every_rule(&facts.facts());
        let index = deciding_rule(&decision);
        let rule = index.and_then(|index| self.policy.rule(index));
        let rule = rule.map(|rule| rule.id.as_str().to_owned());
        let refuses = decision.rejects();
        let source = self.evaluator.decide(&SourceRequest {
            url,
            facts: details,
        });
        let differs = match source {
            // What a lax server may read as another URL, which is refused, is refused by every policy.
            SourceVerdict::Allow => refuses && decision.reading.is_none(),
            SourceVerdict::Refuse => !refuses,
            SourceVerdict::Unknown => false,
        };
        let name = rule.as_deref().unwrap_or("disposition");
        let assumption = self.report.assumption_of(name).map(|(text, _)| text);
        let divergence = differs.then(|| Divergence {
            url: url.to_owned(),
            facts: details.clone(),
            source,
            rule: rule.clone(),
            assumption: assumption.map(str::to_owned),
        });
        let mut outcomes = outcomes(self.policy, &trail, &decision);
        if differs && assumption.is_some() {
            let rule = index.map(|index| index.0);
            outcomes.insert(CaseOutcome::Announced { rule });
        }
        let expects_refusal = refuses != (differs && assumption.is_none());
        let mut case = Map::new();
        case.insert("url".to_owned(), json!(url));
        case.extend(details.clone());
        let expected = if expects_refusal { "reject" } else { "allow" };
        case.insert("expect".to_owned(), json!(expected));
        if let Some(rule) = rule.filter(|_| !differs) {
            case.insert("rule".to_owned(), json!(rule));
        }
        Ok(ComparedRequest {
            case,
            divergence,
            outcomes,
            trail,
        })
    }

    /// Returns `true` if a case of a request shows an outcome.
    pub(crate) fn shows(
        &self,
        (url, details): &CaseRequest,
        outcome: &CaseOutcome,
    ) -> Result<bool, ImportError> {
        let facts = case_facts(url, details)?;
        let (trail, decision) = self.policy.decide_every_rule(&facts.facts());
        Ok(outcomes(self.policy, &trail, &decision).contains(outcome))
    }

    /// Returns `true` if a request has other outcomes with another policy of the same rules.
    pub(crate) fn differs_from(
        &self,
        other: &Policy,
        (url, details): &CaseRequest,
    ) -> Result<bool, ImportError> {
        let facts = case_facts(url, details)?;
        let outcomes_of = |policy: &Policy| {
            let (trail, decision) = policy.decide_every_rule(&facts.facts());
            outcomes(policy, &trail, &decision)
        };
        Ok(outcomes_of(self.policy) != outcomes_of(other))
    }
}

fn outcomes(policy: &Policy, trail: &Trail, decision: &Decision) -> BTreeSet<CaseOutcome> {
    let rules = (0..).zip(policy.rules()).map(|(rule, _)| rule);
    let branches = rules.filter_map(|rule| {
        let applies = match trail.state(RuleIndex(rule)) {
            RuleState::Matched => true,
            RuleState::NoMatch => false,
            RuleState::Pending | RuleState::Skipped | RuleState::Undecided => return None,
        };
        Some(CaseOutcome::Branch { rule, applies })
    });
    let decided = CaseOutcome::Decision {
        rule: deciding_rule(decision).map(|rule| rule.0),
        refuses: decision.rejects(),
    };
    branches.chain([decided]).collect()
}

fn deciding_rule(decision: &Decision) -> Option<RuleIndex> {
    match decision.cause {
        Cause::Rule(rule) => Some(rule),
        Cause::Default => None,
    }
}

/// Returns the facts of a request, or the reason why a case cannot have it.
pub(crate) fn case_facts(url: &str, details: &Map<String, Json>) -> Result<CaseFacts, ImportError> {
    let defect = |error: String| ImportError::Defect(format!("{url}: {error}"));
    let mut facts = CaseFacts::for_url(url).map_err(|error| defect(error.to_string()))?;
    for (key, value) in details {
        facts
            .set(key, value)
            .map_err(|error| defect(format!("{error:?}")))?;
    }
    Ok(facts)
}

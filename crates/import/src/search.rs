//! The search for requests that a rule decides, by the policy engine's exact analysis.

use std::collections::BTreeSet;

use crawlgate_policy::internal::policy::Policy;
use crawlgate_policy::internal::policy::exact::{
    VerdictAnswer, VerdictFinder, VerdictQuery, WantedVerdict,
};
use crawlgate_policy::internal::policy::rule::{Rule, RuleBody, RuleIndex};

use crate::draft::CaseRequest;

/// The maximum number of rules that are compared with each other: for each rule that is searched the search
/// reads those before it.
const MAX_COMPARED_RULES: usize = 50_000;

/// The result of a search.
#[derive(Default)]
pub(crate) struct SearchResult {
    /// Requests that each rule decides.
    pub requests: Vec<CaseRequest>,
    /// The ids of rules of which it is proved that they decide no request.
    pub never: BTreeSet<String>,
}

/// Searches requests that each rule of a policy decides, and some of each verdict.
pub(crate) fn search_requests(policy: &Policy) -> SearchResult {
    let mut finder = VerdictFinder::new(policy);
    let mut result = SearchResult::default();
    let searched = MAX_COMPARED_RULES / policy.rules().len().max(1);
    for (index, rule) in (0..).zip(policy.rules()).take(searched) {
        let mut is_never = true;
        for verdict in possible_verdicts(rule) {
            let answer = find(&mut finder, *verdict, Some(RuleIndex(index)), None);
            is_never &= matches!(answer, VerdictAnswer::Never);
            result.requests.extend(found_request(answer));
        }
        if is_never {
            result.never.insert(rule.id.as_str().to_owned());
        }
    }
    for verdict in [WantedVerdict::Allow, WantedVerdict::Reject] {
        let answer = find(&mut finder, verdict, None, None);
        result.requests.extend(found_request(answer));
    }
    result
}

/// Searches a request that a rule refuses.
pub(crate) fn search_refused(
    policy: &Policy,
    rule: &str,
    crawler: Option<&str>,
) -> Option<CaseRequest> {
    let rule = policy.rule_index(rule)?;
    let mut finder = VerdictFinder::new(policy);
    let answer = find(&mut finder, WantedVerdict::Reject, Some(rule), crawler);
    found_request(answer)
}

/// Returns the verdicts that a rule can decide.
fn possible_verdicts(rule: &Rule) -> &'static [WantedVerdict] {
    match &rule.body {
        RuleBody::Filter(_) => &[WantedVerdict::Reject],
        RuleBody::Group(group) if group.assignments.is_empty() => &[],
        RuleBody::Group(_) => &[WantedVerdict::Allow, WantedVerdict::Reject],
    }
}

fn find(
    finder: &mut VerdictFinder<'_>,
    verdict: WantedVerdict,
    rule: Option<RuleIndex>,
    crawler: Option<&str>,
) -> VerdictAnswer {
    finder.find(&VerdictQuery {
        verdict,
        rule,
        under: None,
        host: None,
        crawler,
    })
}

fn found_request(answer: VerdictAnswer) -> Option<CaseRequest> {
    match answer {
        VerdictAnswer::Found(example) => Some((example.url, example.details)),
        VerdictAnswer::Never | VerdictAnswer::Undecided(_) => None,
    }
}

//! The cases of a policy: requests that show each outcome of its rules, with what the source's system does
//! with them.

use std::collections::BTreeSet;

use crawlgate_policy::internal::policy::coverage::Coverage;
use serde_json::{Map, Value as Json};

use crate::comparison::{CaseOutcome, Comparison, Divergence, case_facts};
use crate::draft::{CaseRequest, PolicyDraft};
use crate::input::ImportError;
use crate::probe::RuleConditions;

/// The maximum number of rules that are compiled to find the outcomes that no case shows: each search of one compiles
/// all rules.
const MAX_COMPILED_RULES: usize = 5_000;

/// Adds cases to the draft of a policy: of the requests that were searched, then of the examples, then of
/// the probes, those that show what no earlier one shows. Returns the requests on which policy and source
/// differ without an assumption.
pub(crate) fn add_cases(
    draft: &mut PolicyDraft,
    comparison: &Comparison<'_>,
    searched: Vec<CaseRequest>,
) -> Result<Vec<Divergence>, ImportError> {
    let mut collection = CaseCollection {
        comparison,
        coverage: Coverage::new(comparison.policy),
        cases: Vec::new(),
        requests: Vec::new(),
        seen: BTreeSet::new(),
        shown: BTreeSet::new(),
        divergences: Vec::new(),
    };
    for request in searched {
        collection.add(&request)?;
    }
    let examples = std::mem::take(&mut draft.examples);
    for request in examples
        .iter()
        .filter(|(url, facts)| case_facts(url, facts).is_ok())
    {
        collection.add(request)?;
    }
    if !draft.search_skipped {
        collection.add_probes(draft)?;
    }
    draft.cases = collection.cases;
    Ok(collection.divergences)
}

struct CaseCollection<'c> {
    comparison: &'c Comparison<'c>,
    coverage: Coverage,
    cases: Vec<Map<String, Json>>,
    /// The requests of the cases.
    requests: Vec<CaseRequest>,
    /// All requests that were compared, as text.
    seen: BTreeSet<String>,
    shown: BTreeSet<CaseOutcome>,
    divergences: Vec<Divergence>,
}

impl CaseCollection<'_> {
    /// Compares a request, and makes it a case if it shows something new.
    fn add(&mut self, request: &CaseRequest) -> Result<(), ImportError> {
        let (url, facts) = request;
        if !self.seen.insert(format!("{url} {facts:?}")) {
            return Ok(());
        }
        let compared = self.comparison.judge(url, facts)?;
        let divergence = compared.divergence;
        self.divergences
            .extend(divergence.filter(|found| found.assumption.is_none()));
        let shown = self.shown.len();
        self.shown.extend(compared.outcomes);
        if self.shown.len() > shown {
            self.coverage.record(&compared.trail);
            self.cases.push(compared.case);
            self.requests.push(request.clone());
        }
        Ok(())
    }

    /// Adds requests for the outcomes of rules that no case shows.
    fn add_probes(&mut self, draft: &PolicyDraft) -> Result<(), ImportError> {
        let policy = self.comparison.policy;
        let rules = self.coverage.rule_coverage(policy).into_iter();
        let missed = rules.filter(|rule| rule.missed_branches().next().is_some());
        let conditions = RuleConditions::new(draft);
        let probed = MAX_COMPILED_RULES / policy.rules().len().max(1);
        for missed in missed.take(probed) {
            // Those that were found for earlier rules may be allowed where the searched ones are refused.
            let known = self.requests.clone();
            let id = missed.rule.id.as_str();
            let rule = u32::try_from(missed.index).unwrap_or(u32::MAX);
            for applies in [true, false] {
                let outcome = CaseOutcome::Branch { rule, applies };
                if self.shown.contains(&outcome) {
                    continue;
                }
                for request in conditions.probe(draft, id, applies, &known) {
                    if self.comparison.shows(&request, &outcome)? {
                        self.add(&request)?;
                        break;
                    }
                }
            }
        }
        Ok(())
    }
}

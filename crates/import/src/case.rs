//! The cases of a policy: requests that show each outcome of its rules, with what the source's system does
//! with them.

use std::collections::BTreeSet;

use crawlgate_policy::internal::policy::cases::{CaseRefusal, Mismatch};
use crawlgate_policy::internal::policy::compile::CompiledPolicy;
use crawlgate_policy::internal::policy::coverage::Coverage;
use serde_json::{Map, Value as Json, json};

use crate::comparison::{CaseOutcome, ComparedRequest, Comparison, Divergence, case_facts};
use crate::compile::try_compile;
use crate::decisive::{OtherTest, Replacement, count_tests, other_test};
use crate::draft::{CaseRequest, PolicyDraft};
use crate::input::ImportError;
use crate::probe::RuleConditions;

/// The maximum number of rules that are compiled to find the outcomes that no case shows: each search of one compiles
/// all rules.
const MAX_COMPILED_RULES: usize = 5_000;

/// Adds cases to the draft of a policy: of the requests that were searched, then of the examples, then of
/// the probes, those that show what no earlier one shows, and then one for each test of a condition that all of them
/// would pass without. Returns the requests on which policy and source differ without an assumption.
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
        collection.add_test_probes(draft)?;
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
        let compared = self.judge(request)?;
        let shown = self.shown.len();
        self.shown.extend(compared.outcomes);
        if self.shown.len() > shown {
            self.coverage.record(&compared.trail);
            self.cases.push(compared.case);
            self.requests.push(request.clone());
        }
        Ok(())
    }

    /// Compares a request, and keeps a difference that no assumption explains.
    fn judge(&mut self, (url, facts): &CaseRequest) -> Result<ComparedRequest, ImportError> {
        let mut compared = self.comparison.judge(url, facts)?;
        let divergence = compared.divergence.take();
        let unexplained = divergence
            .filter(|found| found.assumption.is_none() && !self.divergences.contains(found));
        self.divergences.extend(unexplained);
        Ok(compared)
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

    /// Adds a case for each test of a rule that no case notices: with other words in it, all would pass.
    fn add_test_probes(&mut self, draft: &PolicyDraft) -> Result<(), ImportError> {
        let conditions = RuleConditions::new(draft);
        let compiled = MAX_COMPILED_RULES / self.comparison.policy.rules().len().max(1);
        for number in 0..compiled.min(count_tests(draft)) {
            // The words of some tests cannot be others: those of a number, of a type.
            let replacements = [Replacement::OtherWords, Replacement::Never];
            let mut others = replacements
                .map(|it| other_test(draft, number, it))
                .into_iter();
            let changed = others.find_map(|other| {
                let other = other?;
                let changed = compile_with(&other.draft, self.cases.clone())?;
                Some((other, changed))
            });
            let Some((other, changed)) = changed else {
                continue;
            };
            if !mismatches(&changed).is_empty() {
                continue;
            }
            let known = self.requests.clone();
            for request in conditions.probe_test(draft, &other, &known) {
                if !self.comparison.differs_from(&changed.policy, &request)? {
                    continue;
                }
                if let Some(case) = noticing_case(draft, &other, &self.judge(&request)?) {
                    self.cases.push(case);
                    self.requests.push(request);
                    break;
                }
            }
        }
        Ok(())
    }
}

/// Returns a case of a request that passes with a policy and fails with another test in it: by the verdict, the rule, or
/// an option that the rule sets.
fn noticing_case(
    draft: &PolicyDraft,
    other: &OtherTest,
    compared: &ComparedRequest,
) -> Option<Map<String, Json>> {
    let with_option = other.options.iter().filter_map(|(path, value)| {
        let with_value = |value: &Json| {
            let mut case = compared.case.clone();
            case.insert("options".to_owned(), json!({ path: value }));
            case
        };
        let case = with_value(value);
        // Where the rule does not apply, the option has another value.
        let mismatches = mismatches(&compile_with(draft, vec![case.clone()])?);
        match mismatches
            .into_iter()
            .find(|it| it.key == format!("options.{path}"))
        {
            None => Some(case),
            Some(found) => Some(with_value(&to_literal(found.actual))),
        }
    });
    let mut candidates = [compared.case.clone()].into_iter().chain(with_option);
    candidates.find(|case| {
        let passes = |draft| {
            let compiled = compile_with(draft, vec![case.clone()])?;
            Some(mismatches(&compiled).is_empty())
        };
        passes(&other.draft) == Some(false) && passes(draft) == Some(true)
    })
}

/// Returns the value of an option as a case has it, from its text.
fn to_literal(text: String) -> Json {
    match text.parse::<u64>() {
        Ok(number) => json!(number),
        Err(_) => json!(text),
    }
}

/// Compiles a draft with these cases. Returns `None` if it is not valid.
fn compile_with(draft: &PolicyDraft, cases: Vec<Map<String, Json>>) -> Option<CompiledPolicy> {
    let mut draft = draft.clone();
    draft.cases = cases;
    try_compile(&draft).ok()
}

/// Returns the differences between what the cases of a policy expect and its decisions.
fn mismatches(compiled: &CompiledPolicy) -> Vec<Mismatch> {
    let policy = &compiled.policy;
    let cases = compiled.cases.iter();
    let found = cases.flat_map(|case| {
        let (trail, decision) = policy.decide_every_rule(&case.facts.facts());
        case.mismatches(policy, &trail, &decision, &CaseRefusal::default())
    });
    found.collect()
}

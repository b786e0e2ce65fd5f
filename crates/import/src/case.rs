//! The cases of a policy: for each rule requests that it decides and others that it does not, with what
//! the source's system does with them.

use std::collections::BTreeSet;

use crawlgate_policy::MemoryFileSystem;
use crawlgate_policy::internal::policy::Policy;
use crawlgate_policy::internal::policy::cases::CaseFacts;
use crawlgate_policy::internal::policy::compile::{self, CompiledPolicy};
use crawlgate_policy::internal::policy::coverage::Coverage;
use crawlgate_policy::internal::policy::decide::Cause;
use crawlgate_policy::internal::policy::exact::{
    VerdictAnswer, VerdictFinder, VerdictQuery, WantedVerdict,
};
use serde_json::{Map, Value as Json, json};

use crate::draft::PolicyDraft;
use crate::input::ImportError;
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

/// The maximum number of rules for which cases are searched.
const MAX_RULES: usize = 2_000;

/// Adds cases to the policy. Returns those requests on which policy and source differ without an assumption.
pub(crate) fn add_cases(
    draft: &mut PolicyDraft,
    report: &Report,
    evaluator: &dyn SourceEvaluator,
) -> Result<Vec<Divergence>, ImportError> {
    let policy = compile_draft(draft)?.policy;
    let comparison = Comparison {
        policy: &policy,
        report,
        evaluator,
    };
    let mut divergences = Vec::new();
    let mut seen = BTreeSet::new();
    for (url, facts) in find_requests(&policy) {
        if !seen.insert((url.clone(), Json::Object(facts.clone()).to_string())) {
            continue;
        }
        let (case, divergence) = comparison.compare(&url, &facts)?;
        draft.cases.push(case);
        divergences.extend(divergence.filter(|found| found.assumption.is_none()));
    }
    let mut coverage = Coverage::new(&policy);
    for case in &compile_draft(draft)?.cases {
        coverage.record(&policy.decide_every_rule(&case.facts.facts()).0);
    }
    let mut missed = missed_branches(&coverage, &policy);
    for (url, facts) in std::mem::take(&mut draft.samples) {
        if missed == 0 {
            break;
        }
        let Ok(sample) = case_facts(&url, &facts) else {
            continue;
        };
        coverage.record(&policy.decide_every_rule(&sample.facts()).0);
        let still_missed = missed_branches(&coverage, &policy);
        if still_missed < missed {
            missed = still_missed;
            let (case, divergence) = comparison.compare(&url, &facts)?;
            draft.cases.push(case);
            divergences.extend(divergence.filter(|found| found.assumption.is_none()));
        }
    }
    Ok(divergences)
}

/// Returns the number of branches of rules that no case has reached.
fn missed_branches(coverage: &Coverage, policy: &Policy) -> usize {
    let rules = coverage.rule_coverage(policy).into_iter();
    rules.map(|rule| rule.missed_branches().count()).sum()
}

/// Compares the decisions of a policy with those of the source's system.
pub struct Comparison<'a> {
    pub policy: &'a Policy,
    pub report: &'a Report,
    pub evaluator: &'a dyn SourceEvaluator,
}

impl Comparison<'_> {
    /// Returns the case of a request, and the divergence if the two decide differently. The case expects
    /// what the source's system does, unless an assumption explains the difference.
    pub fn compare(
        &self,
        url: &str,
        details: &Map<String, Json>,
    ) -> Result<(Map<String, Json>, Option<Divergence>), ImportError> {
        let facts = case_facts(url, details)?;
        let (_, decision) = self.policy.decide_every_rule(&facts.facts());
        let rule = match decision.cause {
            Cause::Rule(rule) => self.policy.rule(rule),
            Cause::Default => None,
        };
        let rule = rule.map(|rule| rule.id.as_str().to_owned());
        let refuses = decision.rejects();
        let source = self.evaluator.decide(&SourceRequest {
            url,
            facts: details,
        });
        let differs = match source {
            SourceVerdict::Allow => refuses,
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
        let expects_refusal = refuses != (differs && assumption.is_none());
        let mut case = Map::new();
        case.insert("url".to_owned(), json!(url));
        case.extend(details.clone());
        let expected = if expects_refusal { "reject" } else { "allow" };
        case.insert("expect".to_owned(), json!(expected));
        if let Some(rule) = rule.filter(|_| !differs) {
            case.insert("rule".to_owned(), json!(rule));
        }
        Ok((case, divergence))
    }
}

fn case_facts(url: &str, details: &Map<String, Json>) -> Result<CaseFacts, ImportError> {
    let defect = |error: String| ImportError::Defect(format!("{url}: {error}"));
    let mut facts = CaseFacts::for_url(url).map_err(|error| defect(error.to_string()))?;
    for (key, value) in details {
        facts
            .set(key, value)
            .map_err(|error| defect(format!("{error:?}")))?;
    }
    Ok(facts)
}

/// Compiles a draft, which must be valid.
pub(crate) fn compile_draft(draft: &PolicyDraft) -> Result<CompiledPolicy, ImportError> {
    let mut files = MemoryFileSystem::new();
    let texts = draft.to_files();
    for (path, text) in &texts {
        files = files.with_file(path, text.as_bytes());
    }
    compile::load(&files, "policy.yaml").map_err(|problems| {
        let problems = problems.iter().map(ToString::to_string);
        ImportError::Defect(problems.collect::<Vec<_>>().join("\n"))
    })
}

/// Searches requests that each rule decides, and some that none does.
fn find_requests(policy: &Policy) -> Vec<(String, Map<String, Json>)> {
    let mut finder = VerdictFinder::new(policy);
    let rules = policy.rules().iter().take(MAX_RULES);
    let rules = rules.filter_map(|rule| policy.rule_index(rule.id.as_str()));
    let mut requests = Vec::new();
    for rule in rules.map(Some).chain([None]) {
        for verdict in [WantedVerdict::Allow, WantedVerdict::Reject] {
            let answer = finder.find(&VerdictQuery {
                verdict,
                rule,
                under: None,
                crawler: None,
            });
            if let VerdictAnswer::Found(example) = answer {
                requests.push((example.url, example.details));
            }
        }
    }
    requests
}

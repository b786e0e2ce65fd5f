//! The cases of a policy: for each rule requests that it decides and others that it does not, with what
//! the source's system does with them.

use std::collections::BTreeSet;

use crawlgate_policy::MemoryFileSystem;
use crawlgate_policy::internal::policy::Policy;
use crawlgate_policy::internal::policy::cases::CaseFacts;
use crawlgate_policy::internal::policy::compile::{self, CompiledPolicy};
use crawlgate_policy::internal::policy::decide::Cause;
use crawlgate_policy::internal::policy::exact::{
    VerdictAnswer, VerdictFinder, VerdictQuery, WantedVerdict,
};
use serde_json::{Map, Value as Json, json};

use crate::draft::{Condition, GuardDraft, PolicyDraft, RuleDraft, RuleDraftBody, RuleItem};
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

/// A URL with the facts besides it.
type CaseRequest = (String, Map<String, Json>);

/// The maximum number of rules for which cases are searched.
const MAX_RULES: usize = 2_000;

/// Adds cases to the draft of a policy. Returns those requests on which policy and source differ without an assumption.
pub(crate) fn add_cases(
    draft: &mut PolicyDraft,
    policy: &Policy,
    report: &Report,
    evaluator: &dyn SourceEvaluator,
) -> Result<Vec<Divergence>, ImportError> {
    let comparison = Comparison {
        policy,
        report,
        evaluator,
    };
    let mut divergences = Vec::new();
    let mut seen = BTreeSet::new();
    let mut requests = Vec::new();
    if !draft.search_skipped {
        requests = find_requests(policy);
        requests.extend(find_setting_requests(draft)?);
    }
    let examples = draft.examples.iter().cloned();
    requests.extend(examples.filter(|(url, facts)| case_facts(url, facts).is_ok()));
    for (url, facts) in requests {
        if !seen.insert((url.clone(), Json::Object(facts.clone()).to_string())) {
            continue;
        }
        let (case, divergence) = comparison.compare(&url, &facts)?;
        draft.cases.push(case);
        divergences.extend(divergence.filter(|found| found.assumption.is_none()));
    }
    Ok(divergences)
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

/// Searches requests for groups that set options and decide nothing: one to which the group applies, and
/// one to which it does not.
fn find_setting_requests(draft: &PolicyDraft) -> Result<Vec<CaseRequest>, ImportError> {
    let mut conditions = Vec::new();
    collect_setting_conditions(&draft.rules, &mut conditions);
    let mut requests = Vec::new();
    for condition in conditions {
        let mut probe = PolicyDraft {
            name: "probe".to_owned(),
            lists: draft.lists.clone(),
            ..PolicyDraft::default()
        };
        probe.options.set("disposition", "allow");
        probe
            .rules
            .push(RuleDraft::forbid("probe", condition.clone()).into());
        requests.extend(find_requests(&compile_draft(&probe)?.policy));
    }
    Ok(requests)
}

fn collect_setting_conditions<'d>(rules: &'d [RuleItem], found: &mut Vec<&'d Condition>) {
    for item in rules {
        let RuleItem::Rule(rule) = item else {
            continue;
        };
        let RuleDraftBody::Group(group) = &rule.body else {
            continue;
        };
        if group.then.is_none() && !group.set.is_empty() {
            match &group.guard {
                GuardDraft::Always => {}
                GuardDraft::When(condition) | GuardDraft::Unless(condition) => {
                    found.push(condition)
                }
            }
        }
        collect_setting_conditions(&group.rules, found);
    }
}

/// Searches requests that each rule decides, and some that none does.
fn find_requests(policy: &Policy) -> Vec<CaseRequest> {
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

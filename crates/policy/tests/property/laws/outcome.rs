//! A decision in a form that can be compared between policies: rules by their ids, not their
//! positions.

use std::collections::BTreeMap;

use crawlgate_policy::internal::model::stage::Stage;
use crawlgate_policy::internal::policy::Policy;
use crawlgate_policy::internal::policy::cases::CaseFacts;
use crawlgate_policy::internal::policy::decide::{Cause, Decision, Verdict};
use crawlgate_policy::internal::policy::options::OptionSetter;
use crawlgate_policy::internal::policy::rule::{Rule, RuleIndex};
use crawlgate_policy::internal::policy::trail::Trail;
use crawlgate_policy::{PolicyError, load};
use serde_json::Value as Json;

type Options = BTreeMap<String, (Json, String)>;

/// The decision of a policy on some facts.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Outcome {
    pub(super) verdict: Verdict,
    pub(super) reason: &'static str,
    pub(super) stage: Stage,
    pub(super) cause: Option<String>,
    pub(super) logged: bool,
    /// The options that rules set, with those rules.
    options: Options,
    /// The outcome of each rule, by its id.
    rules: BTreeMap<String, &'static str>,
    /// The rules that matched, in order.
    matched: Vec<String>,
}

/// Compiles a document. The error contains all problems.
pub(super) fn compiled(document: &Json) -> Result<Policy, PolicyError> {
    Ok(load(&document.to_string())?.policy)
}

pub(super) fn evaluate(policy: &Policy, facts: &Json) -> Outcome {
    let facts =
        CaseFacts::from_json(facts.as_object().unwrap()).unwrap_or_else(|e| panic!("{facts}: {e}"));
    let (trail, decision) = facts.with_facts(|facts| policy.decide_every_rule(facts));
    Outcome::new(policy, &trail, &decision)
}

fn rule_id(policy: &Policy, rule: RuleIndex) -> String {
    policy.rule_id(rule).unwrap().to_owned()
}

impl Outcome {
    fn new(policy: &Policy, trail: &Trail, decision: &Decision) -> Self {
        let cause = match decision.cause {
            Cause::Rule(rule) => Some(rule_id(policy, rule)),
            Cause::Default => None,
        };
        let options = policy
            .explain_options(trail)
            .filter_map(|option| match option.set_by {
                OptionSetter::Rule(rule) => Some((
                    option.path.to_owned(),
                    (option.value.to_json(), rule_id(policy, rule)),
                )),
                OptionSetter::BuiltIn
                | OptionSetter::Document
                | OptionSetter::Space(_)
                | OptionSetter::Host(_) => None,
            });
        Self {
            verdict: decision.verdict,
            reason: decision.reason().as_str(),
            stage: decision.stage,
            cause,
            logged: decision.logged,
            options: options.collect(),
            rules: policy
                .explain_rules(trail)
                .map(|line| (line.rule.id.to_string(), line.status.as_str()))
                .collect(),
            matched: trail
                .matched_rules()
                .iter()
                .map(|rule| rule_id(policy, *rule))
                .collect(),
        }
    }

    pub(super) fn rejects(&self) -> bool {
        matches!(self.verdict, Verdict::Reject(_))
    }

    /// Returns the decision without the outcomes of rules and options.
    pub(super) fn decision(&self) -> (Verdict, Stage, Option<&str>, bool) {
        (self.verdict, self.stage, self.cause.as_deref(), self.logged)
    }

    pub(super) fn verdict_and_options(&self) -> (Verdict, Stage, bool, &Options) {
        (self.verdict, self.stage, self.logged, &self.options)
    }

    pub(super) fn cause_of<'p>(&self, policy: &'p Policy) -> Option<&'p Rule> {
        let id = self.cause.as_deref()?;
        policy.rules().iter().find(|rule| rule.id.as_str() == id)
    }

    /// Returns the outcome without rules that another policy does not have.
    pub(super) fn among(&self, policy: &Policy) -> Self {
        let mut outcome = self.clone();
        outcome
            .rules
            .retain(|id, _| policy.rules().iter().any(|rule| rule.id.as_str() == id));
        outcome
    }

    /// Returns the outcome with each id replaced by `new`.
    pub(super) fn with_ids(&self, new: impl Fn(&str) -> String) -> Self {
        let options = self.options.iter();
        let options = options.map(|(path, (value, by))| (path.clone(), (value.clone(), new(by))));
        Self {
            cause: self.cause.as_deref().map(&new),
            options: options.collect(),
            rules: self
                .rules
                .iter()
                .map(|(id, status)| (new(id), *status))
                .collect(),
            matched: self.matched.iter().map(|id| new(id)).collect(),
            ..self.clone()
        }
    }
}

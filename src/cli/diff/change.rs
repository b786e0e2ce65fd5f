//! A decision that differs between two policies.

use crate::model::intent::Intent;
use crate::pipeline::offline_evaluation::OfflineEvaluation;
use crate::policy::Policy;
use crate::policy::cases::{CaseFacts, CaseRefusal, CaseTarget};
use crate::policy::options::{OptionIndex, OptionValue};
use crate::report::decision;

/// The decisions of two policies for one request, which differ.
pub(super) struct DecisionChange<'f, 'p> {
    pub(super) facts: &'f CaseFacts,
    /// The number of times that the request was made.
    pub(super) count: usize,
    pub(super) old: DiffOutcome<'p>,
    pub(super) new: DiffOutcome<'p>,
    pub(super) kind: DecisionChangeKind,
    pub(super) differences: Vec<Difference>,
}

/// The parts of a decision that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DiffOutcome<'a> {
    pub(super) verdict: &'static str,
    pub(super) reason: &'static str,
    pub(super) rule: Option<&'a str>,
    pub(super) answer: CaseRefusal,
    pub(super) logged: bool,
}

/// The kinds of changes, the most important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DecisionChangeKind {
    /// The verdict changes, from the first to the second.
    Verdict(&'static str, &'static str),
    /// The request is refused by both, for another reason or with another response.
    Refusal,
    /// The request is allowed by both, with other options.
    Options,
    /// Only the rule that decides changes.
    Rule,
}

/// A value that differs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Difference {
    pub(super) key: String,
    pub(super) old: String,
    pub(super) new: String,
}

/// The kind and the cause of a change, by which changes are grouped.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ChangeGroupKey<'p> {
    pub(super) kind: DecisionChangeKind,
    /// The rule that decided before; `None` for the default.
    pub(super) old_rule: Option<&'p str>,
    /// The rule that decides now; `None` for the default.
    pub(super) new_rule: Option<&'p str>,
    /// The differences other than verdict and rule.
    pub(super) differences: Vec<Difference>,
}

impl DecisionChangeKind {
    /// Returns the name of the kind, which is also its value in JSON.
    pub(super) fn headline(self) -> String {
        match self {
            Self::Verdict(old, new) => format!("{old} -> {new}"),
            Self::Refusal => "refused otherwise".to_owned(),
            Self::Options => "allowed with other options".to_owned(),
            Self::Rule => "the same by another rule".to_owned(),
        }
    }
}

impl<'f, 'p> DecisionChange<'f, 'p> {
    /// Compares two evaluations of one request, and returns `None` if they do not differ in any value that matters.
    pub(super) fn between(
        facts: &'f CaseFacts,
        old: &OfflineEvaluation<'p>,
        new: &OfflineEvaluation<'p>,
        options: &OptionPairs<'_>,
    ) -> Option<Self> {
        let old_outcome = DiffOutcome::from_evaluation(old);
        let new_outcome = DiffOutcome::from_evaluation(new);
        let mut differences = old_outcome.differences(&new_outcome);
        // The options of a URL that is refused have no effect.
        if old.refusal.is_none() && new.refusal.is_none() {
            differences.extend(options.differences(old, new));
        }
        let kind = classify_change(&old_outcome, &new_outcome, &differences)?;
        Some(Self {
            facts,
            count: 1,
            old: old_outcome,
            new: new_outcome,
            kind,
            differences,
        })
    }

    /// Returns the key by which changes are grouped.
    pub(super) fn group_key(&self) -> ChangeGroupKey<'p> {
        // If the verdict changes, the rules are the cause: status and intent always change with it.
        let differences = match self.kind {
            DecisionChangeKind::Verdict(..) => Vec::new(),
            DecisionChangeKind::Refusal
            | DecisionChangeKind::Options
            | DecisionChangeKind::Rule => self
                .differences
                .iter()
                .filter(|difference| !matches!(&*difference.key, "verdict" | "rule"))
                .cloned()
                .collect(),
        };
        ChangeGroupKey {
            kind: self.kind,
            old_rule: self.old.rule,
            new_rule: self.new.rule,
            differences,
        }
    }

    /// Returns the host of the request.
    pub(super) fn host(&self) -> &'f str {
        match self.facts.target() {
            CaseTarget::Url(url) | CaseTarget::Tunnel(_, url) => url.host(),
        }
    }
}

fn classify_change(
    old: &DiffOutcome<'_>,
    new: &DiffOutcome<'_>,
    differences: &[Difference],
) -> Option<DecisionChangeKind> {
    if old.effect() != new.effect() {
        return Some(DecisionChangeKind::Verdict(old.effect(), new.effect()));
    }
    let mut keys = differences.iter().map(|difference| &*difference.key);
    let options_differ = keys.clone().any(|key| key.starts_with("options."));
    let answer_differs = keys.any(|key| !key.starts_with("options.") && key != "rule");
    if answer_differs && old.verdict != "allow" {
        return Some(DecisionChangeKind::Refusal);
    }
    if options_differ {
        return Some(DecisionChangeKind::Options);
    }
    (!differences.is_empty()).then_some(DecisionChangeKind::Rule)
}

impl<'a> DiffOutcome<'a> {
    /// Returns the verdict, and for an undecided tunnel also the outcome.
    fn effect(&self) -> &'static str {
        match (self.verdict, self.answer.status) {
            ("undecided", None) => "undecided and allowed",
            ("undecided", Some(_)) => "undecided and refused",
            (verdict, _) => verdict,
        }
    }

    fn from_evaluation(evaluation: &OfflineEvaluation<'a>) -> Self {
        Self {
            verdict: decision::verdict(evaluation),
            reason: evaluation.decision.reason().as_str(),
            rule: evaluation.rule_id(),
            answer: evaluation.answer(),
            logged: evaluation.decision.logged,
        }
    }

    fn differences(&self, new: &Self) -> Vec<Difference> {
        self.values()
            .into_iter()
            .zip(new.values())
            .filter(|((_, old), (_, new))| old != new)
            .map(|((key, old), (_, new))| Difference {
                key: key.to_owned(),
                old,
                new,
            })
            .collect()
    }

    fn values(&self) -> [(&'static str, String); 7] {
        [
            ("verdict", self.verdict.to_owned()),
            ("reason", self.reason.to_owned()),
            ("rule", text_or_none(self.rule)),
            ("status", text_or_none(self.answer.status)),
            (
                "intent",
                text_or_none(self.answer.intent.map(Intent::as_str)),
            ),
            ("code", text_or_none(self.answer.code)),
            ("logged", self.logged.to_string()),
        ]
    }
}

fn text_or_none(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| value.to_string())
}

/// The options of two policies, paired by their paths.
pub(super) struct OptionPairs<'p> {
    pairs: Vec<(&'p str, Option<OptionIndex>, Option<OptionIndex>)>,
}

/// Options without an effect on allowed URLs.
const REFUSAL_OPTIONS: [&str; 5] = [
    "disposition",
    "reject",
    "reject_status",
    "record",
    "tunnel_undecided",
];

impl<'p> OptionPairs<'p> {
    /// Pairs the options of two policies.
    pub(super) fn new(old: &'p Policy, new: &'p Policy) -> Self {
        let mut pairs: Vec<(&str, Option<OptionIndex>, Option<OptionIndex>)> = option_indexes(old)
            .map(|(path, index)| (path, Some(index), new.option_index(path)))
            .collect();
        let added = option_indexes(new).filter(|(path, _)| old.option_index(path).is_none());
        pairs.extend(added.map(|(path, index)| (path, None, Some(index))));
        pairs.retain(|(path, ..)| !REFUSAL_OPTIONS.contains(path));
        Self { pairs }
    }

    fn differences(
        &self,
        old: &OfflineEvaluation<'_>,
        new: &OfflineEvaluation<'_>,
    ) -> Vec<Difference> {
        let mut differences = Vec::new();
        for (path, old_index, new_index) in &self.pairs {
            let old_value = old_index.map_or(&OptionValue::None, |index| {
                old.trail.value(old.policy, index)
            });
            let new_value = new_index.map_or(&OptionValue::None, |index| {
                new.trail.value(new.policy, index)
            });
            if old_value != new_value {
                differences.push(Difference {
                    key: format!("options.{path}"),
                    old: old_value.to_string(),
                    new: new_value.to_string(),
                });
            }
        }
        differences
    }
}

fn option_indexes(policy: &Policy) -> impl Iterator<Item = (&str, OptionIndex)> {
    policy
        .option_paths()
        .zip(0..)
        .map(|(path, index)| (path, OptionIndex(index)))
}

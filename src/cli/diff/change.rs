//! One changed decision.

use crate::model::intent::Intent;
use crate::pipeline::offline_evaluation::OfflineEvaluation;
use crate::policy::Policy;
use crate::policy::cases::{CaseFacts, CaseRefusal, CaseTarget};
use crate::policy::options::{OptionSlot, OptionValue};
use crate::report::decision;

/// What the two policies say of one request, where that differs.
pub(super) struct DecisionChange<'a> {
    /// The request.
    pub(super) facts: &'a CaseFacts,
    /// What was decided.
    pub(super) old: DiffOutcome<'a>,
    /// What is decided.
    pub(super) new: DiffOutcome<'a>,
    /// In which way it differs.
    pub(super) kind: DecisionChangeKind,
    /// Every difference: key, old and new value.
    pub(super) differences: Vec<Difference>,
}

/// The parts of a decision by which changes are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DiffOutcome<'a> {
    pub(super) verdict: &'static str,
    pub(super) reason: &'static str,
    pub(super) rule: Option<&'a str>,
    pub(super) answer: CaseRefusal,
    pub(super) logged: bool,
}

/// The ways in which a decision changes, the gravest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DecisionChangeKind {
    /// Another verdict.
    Verdict(&'static str, &'static str),
    /// Refused as before, for another reason or with another answer.
    Refusal,
    /// Allowed as before, with other options.
    Options,
    /// All the same, but for the rule that decided.
    Rule,
}

/// One thing that differs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Difference {
    pub(super) key: String,
    pub(super) old: String,
    pub(super) new: String,
}

impl DecisionChangeKind {
    /// The headline of such changes.
    pub(super) fn headline(self) -> String {
        match self {
            Self::Verdict(old, new) => format!("{old} -> {new}"),
            Self::Refusal => "refused otherwise".to_owned(),
            Self::Options => "allowed with other options".to_owned(),
            Self::Rule => "the same by another rule".to_owned(),
        }
    }
}

impl<'a> DecisionChange<'a> {
    /// Compares two trials of one request; `None` if nothing differs that matters.
    pub(super) fn between(
        facts: &'a CaseFacts,
        old: &OfflineEvaluation<'a>,
        new: &OfflineEvaluation<'a>,
        options: &OptionPairs<'_>,
    ) -> Option<Self> {
        let (was, is) = (DiffOutcome::from_trial(old), DiffOutcome::from_trial(new));
        let mut differences = was.differences(&is);
        // What is assigned to a URL that is refused has no effect.
        if old.refusal.is_none() && new.refusal.is_none() {
            differences.extend(options.differences(old, new));
        }
        let kind = classify_change(&was, &is, &differences)?;
        Some(Self {
            facts,
            old: was,
            new: is,
            kind,
            differences,
        })
    }

    /// The host that is asked.
    pub(super) fn host(&self) -> &'a str {
        match self.facts.target() {
            CaseTarget::Url(url) | CaseTarget::Tunnel(_, url) => url.host(),
        }
    }
}

fn classify_change(
    was: &DiffOutcome<'_>,
    is: &DiffOutcome<'_>,
    differences: &[Difference],
) -> Option<DecisionChangeKind> {
    let differs =
        |test: fn(&str) -> bool| differences.iter().any(|difference| test(&difference.key));
    if was.effect() != is.effect() {
        return Some(DecisionChangeKind::Verdict(was.effect(), is.effect()));
    }
    if differs(|key| !key.starts_with("options.") && key != "rule") && was.verdict != "allow" {
        return Some(DecisionChangeKind::Refusal);
    }
    if differs(|key| key.starts_with("options.")) {
        return Some(DecisionChangeKind::Options);
    }
    (!differences.is_empty()).then_some(DecisionChangeKind::Rule)
}

impl<'a> DiffOutcome<'a> {
    /// The verdict; of a tunnel that is undecided also what becomes of it.
    fn effect(&self) -> &'static str {
        match (self.verdict, self.answer.status) {
            ("undecided", None) => "undecided and let through",
            ("undecided", Some(_)) => "undecided and refused",
            (verdict, _) => verdict,
        }
    }

    fn from_trial(trial: &OfflineEvaluation<'a>) -> Self {
        Self {
            verdict: decision::verdict(trial),
            reason: trial.decision.reason().as_str(),
            rule: trial.rule_id(),
            answer: trial.answer(),
            logged: trial.decision.logged,
        }
    }

    fn differences(&self, new: &Self) -> Vec<Difference> {
        let text = |value: Option<&str>| value.unwrap_or("none").to_owned();
        let number =
            |value: Option<u16>| value.map_or_else(|| "none".to_owned(), |n| n.to_string());
        let intent = |value: Option<Intent>| text(value.map(Intent::as_str));
        let all = [
            ("verdict", self.verdict.to_owned(), new.verdict.to_owned()),
            ("reason", self.reason.to_owned(), new.reason.to_owned()),
            ("rule", text(self.rule), text(new.rule)),
            (
                "status",
                number(self.answer.status),
                number(new.answer.status),
            ),
            (
                "intent",
                intent(self.answer.intent),
                intent(new.answer.intent),
            ),
            ("code", number(self.answer.code), number(new.answer.code)),
            ("logged", self.logged.to_string(), new.logged.to_string()),
        ];
        let differ = all.into_iter().filter(|(_, old, new)| old != new);
        differ
            .map(|(key, old, new)| Difference {
                key: key.to_owned(),
                old,
                new,
            })
            .collect()
    }
}

/// The options of two policies side by side.
pub(super) struct OptionPairs<'p> {
    pairs: Vec<(&'p str, Option<OptionSlot>, Option<OptionSlot>)>,
}

/// Options that say nothing of a URL that is allowed.
const REFUSAL_OPTIONS: [&str; 5] = [
    "disposition",
    "reject",
    "reject_status",
    "record",
    "tunnel_undecided",
];

impl<'p> OptionPairs<'p> {
    /// Finds which option of one policy is which of the other.
    pub(super) fn new(old: &'p Policy, new: &'p Policy) -> Self {
        let mut pairs: Vec<(&str, Option<OptionSlot>, Option<OptionSlot>)> = slots(old)
            .map(|(path, slot)| (path, Some(slot), new.option_slot(path)))
            .collect();
        let added = slots(new).filter(|(path, _)| old.option_slot(path).is_none());
        pairs.extend(added.map(|(path, slot)| (path, None, Some(slot))));
        pairs.retain(|(path, ..)| !REFUSAL_OPTIONS.contains(path));
        Self { pairs }
    }

    fn differences(
        &self,
        old: &OfflineEvaluation<'_>,
        new: &OfflineEvaluation<'_>,
    ) -> Vec<Difference> {
        let differ = self.pairs.iter().filter_map(|(path, was, is)| {
            let was = was.map_or(&OptionValue::None, |slot| old.trail.value(old.policy, slot));
            let is = is.map_or(&OptionValue::None, |slot| new.trail.value(new.policy, slot));
            let differ = was != is;
            differ.then(|| Difference {
                key: format!("options.{path}"),
                old: was.to_string(),
                new: is.to_string(),
            })
        });
        differ.collect()
    }
}

fn slots(policy: &Policy) -> impl Iterator<Item = (&str, OptionSlot)> {
    policy
        .option_paths()
        .zip(0..)
        .map(|(path, at)| (path, OptionSlot(at)))
}

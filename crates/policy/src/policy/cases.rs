//! Cases: the tests that travel with a policy, as data; and the facts that they and `crawlgate decide` give.
//!
//! Nothing here runs a case: whoever does it hands the decision to [`Case::mismatches`].

mod facts;

pub use facts::{CaseFacts, CaseTarget, FACT_KEYS};

use super::Policy;
use super::decide::{Cause, Decision, Verdict};
use super::options::{OptionSlot, OptionValue};
use super::trail::Trail;
use crate::diagnostics::problem::SourceLocation;
use crate::model::intent::Intent;
use crate::model::profile::Profile;
use crate::model::reason::Reason;
use crate::model::stage::Stage;

/// One case.
#[derive(Clone, Debug)]
pub struct Case {
    /// Where it is written.
    pub place: SourceLocation,
    /// What is asked.
    pub facts: CaseFacts,
    /// The profile by which it is answered; generic where the case names none.
    pub profile: Profile,
    /// What is expected.
    pub expect: Expectation,
}

/// What a case expects; what it leaves out may be anything.
#[derive(Clone, Debug)]
pub struct Expectation {
    /// The verdict, which every case names.
    pub verdict: ExpectedVerdict,
    /// The stage that ended it.
    pub stage: Option<Stage>,
    /// The rule that is its cause.
    pub rule: Option<Box<str>>,
    /// The reason; of an allow, `rule` or `default`.
    pub reason: Option<Reason>,
    /// The OmniFind-style code.
    pub code: Option<u16>,
    /// The wire status of the refusal.
    pub status: Option<u16>,
    /// Whether a record is kept.
    pub logged: Option<bool>,
    /// The meaning of the refusal.
    pub intent: Option<Intent>,
    /// Options by their paths.
    pub options: Vec<(Box<str>, OptionValue)>,
}

/// The verdicts, as words of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedVerdict {
    /// None of the stages that are run rejects.
    Allow,
    /// One of them does.
    Reject,
    /// A tunnel whose verdict depends on what it hides.
    Undecided,
}

impl ExpectedVerdict {
    /// Every verdict, in the order of the documentation.
    pub const ALL: [Self; 3] = [Self::Allow, Self::Reject, Self::Undecided];

    /// The word in a case, and in what `decide` writes.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Reject => "reject",
            Self::Undecided => "undecided",
        }
    }

    /// Reads the word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|v| v.as_str() == word)
    }

    /// The word for a decision's verdict.
    pub fn from_verdict(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Admit => Self::Allow,
            Verdict::Reject(_) => Self::Reject,
            Verdict::Undecided => Self::Undecided,
        }
    }
}

/// How a refusal would be answered; all of it empty where nothing is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CaseRefusal {
    /// The wire status; none where the connection is closed instead.
    pub status: Option<u16>,
    /// The OmniFind-style code.
    pub code: Option<u16>,
    /// The meaning of the refusal.
    pub intent: Option<Intent>,
}

/// One thing in which a decision is not what a case expects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The key of the case: `expect`, `rule`, `options.priority`.
    pub key: String,
    /// What the case says.
    pub expected: String,
    /// What was decided.
    pub actual: String,
}

impl Case {
    /// In what the decision is not what the case expects; empty if the case passes.
    pub fn mismatches(
        &self,
        policy: &Policy,
        trail: &Trail,
        decision: &Decision,
        answer: &CaseRefusal,
    ) -> Vec<Mismatch> {
        let expect = &self.expect;
        let rule = match decision.cause {
            Cause::Rule(rule) => policy.rule_id(rule),
            Cause::Default => None,
        };
        let number = |n: u16| n.to_string();
        let word = |text: &str| text.to_owned();
        let verdict = ExpectedVerdict::from_verdict(decision.verdict);
        let mut all: Vec<Mismatch> = [
            check_value(
                "expect",
                Some(expect.verdict.as_str()),
                Some(verdict.as_str()),
                word,
            ),
            check_value(
                "stage",
                expect.stage.map(Stage::as_str),
                Some(decision.stage.as_str()),
                word,
            ),
            check_value("rule", expect.rule.as_deref(), rule, word),
            check_value(
                "reason",
                expect.reason.map(Reason::as_str),
                Some(decision.reason().as_str()),
                word,
            ),
            check_value("code", expect.code, answer.code, number),
            check_value("status", expect.status, answer.status, number),
            check_value("logged", expect.logged, Some(decision.logged), |logged| {
                logged.to_string()
            }),
            check_value(
                "intent",
                expect.intent.map(Intent::as_str),
                answer.intent.map(Intent::as_str),
                word,
            ),
        ]
        .into_iter()
        .flatten()
        .collect();
        all.extend(
            expect
                .options
                .iter()
                .filter_map(|(path, value)| check_option(policy, trail, path, value)),
        );
        all
    }
}

fn check_value<T: PartialEq>(
    key: &str,
    expected: Option<T>,
    found: Option<T>,
    show: impl Fn(T) -> String,
) -> Option<Mismatch> {
    let differs = expected.is_some() && expected != found;
    let show = |value: Option<T>| value.map_or_else(|| "none".to_owned(), &show);
    differs.then(|| Mismatch {
        key: key.to_owned(),
        expected: show(expected),
        actual: show(found),
    })
}

fn check_option(
    policy: &Policy,
    trail: &Trail,
    path: &str,
    expected: &OptionValue,
) -> Option<Mismatch> {
    let place = policy
        .options
        .entries
        .iter()
        .position(|entry| *entry.path == *path);
    let slot = place.and_then(|at| u16::try_from(at).ok()).map(OptionSlot);
    let found = slot.map_or(&OptionValue::None, |slot| trail.value(policy, slot));
    (found != expected).then(|| Mismatch {
        key: format!("options.{path}"),
        expected: value_text(expected),
        actual: value_text(found),
    })
}

/// A value as a policy would have it.
fn value_text(value: &OptionValue) -> String {
    let json = value.to_json();
    if json.is_null() {
        return "none".to_owned();
    }
    json.as_str()
        .map_or_else(|| json.to_string(), str::to_owned)
}

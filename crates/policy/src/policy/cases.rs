//! Test cases in a policy, and the facts of a case, which `crawlgate decide` also accepts.
//!
//! The caller runs a case and passes the decision to [`Case::mismatches`]. An assertion about a set
//! of URLs is a question to the exact analysis.

mod assertion;
mod facts;

use std::fmt::Display;

pub use assertion::{AssertedClaim, CaseAssertion};
pub use facts::{CaseFacts, CaseTarget, FACT_KEYS};

use super::Policy;
use super::decide::{Cause, Decision, Verdict};
use super::options::{OptionIndex, OptionValue};
use super::trail::Trail;
use crate::diagnostics::problem::SourceLocation;
use crate::model::intent::Intent;
use crate::model::profile::Profile;
use crate::model::reason::Reason;
use crate::model::stage::Stage;
use crate::model::words::words;

/// A test case.
#[derive(Clone, Debug)]
pub struct Case {
    /// The location of the case in its file.
    pub place: SourceLocation,
    /// The facts of the request.
    pub facts: CaseFacts,
    /// The profile for the status of a refusal; generic if the case names none.
    pub profile: Profile,
    pub expect: Expectation,
}

/// The expected decision. `None` accepts any value.
#[derive(Clone, Debug)]
pub struct Expectation {
    /// The verdict, which every case contains.
    pub verdict: ExpectedVerdict,
    /// The stage that decided.
    pub stage: Option<Stage>,
    /// The rule that decided.
    pub rule: Option<Box<str>>,
    /// The reason; `rule` or `default` if the verdict is `allow`.
    pub reason: Option<Reason>,
    /// The OmniFind code.
    pub code: Option<u16>,
    /// The status of the refusal.
    pub status: Option<u16>,
    /// `true` if a record is expected.
    pub logged: Option<bool>,
    /// The intent of the refusal.
    pub intent: Option<Intent>,
    /// Options by path.
    pub options: Vec<(Box<str>, OptionValue)>,
}

words! {
    /// The verdict of a case.
    pub enum ExpectedVerdict {
        /// No evaluated stage rejects.
        Allow = "allow",
        /// A stage rejects.
        Reject = "reject",
        /// The decision on a tunnel depends on what it hides.
        Undecided = "undecided",
    }
}

impl ExpectedVerdict {
    /// Returns the word for a decision's verdict.
    pub fn from_verdict(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Admit => Self::Allow,
            Verdict::Reject(_) => Self::Reject,
            Verdict::Undecided => Self::Undecided,
        }
    }
}

/// The response to a refusal; empty if nothing is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CaseRefusal {
    /// The status; `None` if the connection is closed instead.
    pub status: Option<u16>,
    /// The OmniFind code.
    pub code: Option<u16>,
    pub intent: Option<Intent>,
}

/// A difference between a decision and the expectation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The key in the case: `expect`, `rule`, `options.priority`.
    pub key: String,
    /// The value in the case.
    pub expected: String,
    /// The value of the decision.
    pub actual: String,
}

impl Case {
    /// Compares a decision with the expectation; the result is empty if the case passes.
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
        let verdict = ExpectedVerdict::from_verdict(decision.verdict);
        let mut all: Vec<Mismatch> = [
            check_value(
                "expect",
                Some(expect.verdict.as_str()),
                Some(verdict.as_str()),
            ),
            check_value(
                "stage",
                expect.stage.map(Stage::as_str),
                Some(decision.stage.as_str()),
            ),
            check_value("rule", expect.rule.as_deref(), rule),
            check_value(
                "reason",
                expect.reason.map(Reason::as_str),
                Some(decision.reason().as_str()),
            ),
            check_value("code", expect.code, answer.code),
            check_value("status", expect.status, answer.status),
            check_value("logged", expect.logged, Some(decision.logged)),
            check_value(
                "intent",
                expect.intent.map(Intent::as_str),
                answer.intent.map(Intent::as_str),
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

fn check_value<T: PartialEq + Display>(
    key: &str,
    expected: Option<T>,
    actual: Option<T>,
) -> Option<Mismatch> {
    let differs = expected.is_some() && expected != actual;
    differs.then(|| Mismatch {
        key: key.to_owned(),
        expected: text_or_none(expected),
        actual: text_or_none(actual),
    })
}

fn text_or_none(value: Option<impl Display>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| value.to_string())
}

fn check_option(
    policy: &Policy,
    trail: &Trail,
    path: &str,
    expected: &OptionValue,
) -> Option<Mismatch> {
    let index_in_table = policy
        .options
        .entries
        .iter()
        .position(|entry| *entry.path == *path);
    let index = index_in_table
        .and_then(|at| u16::try_from(at).ok())
        .map(OptionIndex);
    let actual = index.map_or(&OptionValue::None, |index| trail.value(policy, index));
    (actual != expected).then(|| Mismatch {
        key: format!("options.{path}"),
        expected: expected.to_string(),
        actual: actual.to_string(),
    })
}

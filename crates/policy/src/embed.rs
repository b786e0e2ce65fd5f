//! Functions for crawlers that embed the engine.

use std::fmt;

use crate::diagnostics::problem::Problem;
use crate::pacing::adaptive::AdaptiveDelay;
use crate::pacing::pace::{HostPace, Jitter, MAX_WAIT, RateLimit};
use crate::policy::Policy;
use crate::policy::compile;
use crate::policy::decide::{Cause, Decision, Verdict};
use crate::policy::explain::RuleStatus;
use crate::policy::fact::Facts;
use crate::policy::options::politeness::PolitenessOption;
use crate::policy::source::{FileSystem, MemoryFileSystem};
use crate::policy::trail::Trail;

/// A policy without errors, and the warnings about it.
#[derive(Debug)]
pub struct ValidPolicy {
    /// The policy.
    pub policy: Policy,
    /// Warnings and advice, in the order of the text.
    pub warnings: Vec<Problem>,
}

/// All problems of a policy that has errors. Its text is that of `crawlgate check`.
#[derive(Debug)]
pub struct PolicyError {
    problems: Vec<Problem>,
}

impl PolicyError {
    /// All errors and warnings, in the order of the text.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.problems.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            f.write_str(&problem.render())?;
        }
        Ok(())
    }
}

impl std::error::Error for PolicyError {}

/// Loads a policy from YAML text.
///
/// # Errors
/// Returns all problems if there is an error among them.
pub fn load(text: &str) -> Result<ValidPolicy, PolicyError> {
    const NAME: &str = "policy.yaml";
    load_files(&MemoryFileSystem::new().with_file(NAME, text), NAME)
}

/// Loads a policy with the files that it names. `path` is a file, or a directory of `*.yaml` files.
///
/// # Errors
/// Returns all problems if there is an error among them.
pub fn load_files(files: &dyn FileSystem, path: &str) -> Result<ValidPolicy, PolicyError> {
    match compile::load(files, path) {
        Ok(compiled) => Ok(ValidPolicy {
            policy: compiled.policy,
            warnings: compiled.problems,
        }),
        Err(problems) => Err(PolicyError { problems }),
    }
}

/// Explains the decision on a request. [`Explanation`] implements [`Display`](fmt::Display).
pub fn explain<'a>(policy: &'a Policy, facts: &'a Facts<'a>) -> Explanation<'a> {
    let (trail, decision) = policy.decide_every_rule(facts);
    Explanation {
        policy,
        facts,
        trail,
        decision,
    }
}

/// The pace at which the policy lets the crawler send requests to the host, after a decision with
/// this trail.
pub fn host_pace(policy: &Policy, trail: &Trail) -> HostPace {
    let option = PolitenessOption::new(policy, trail);
    let pages = option.pages();
    HostPace {
        delay: pages.delay.min(MAX_WAIT),
        jitter: option
            .jitter()
            .map_or(Jitter::NONE, |(from, to)| Jitter::new(from, to)),
        rate: pages
            .rate
            .map(|(count, per)| RateLimit::new(count, per, pages.burst)),
        concurrency: pages.concurrency,
        adaptive: option
            .adaptive()
            .map(|(factor, min, max)| AdaptiveDelay::new(factor, min, max)),
        bytes_per_second: option.bytes_per_second(),
    }
}

/// The explanation of a decision: the outcome of each rule, with the tests that decided it.
#[derive(Debug)]
pub struct Explanation<'a> {
    policy: &'a Policy,
    facts: &'a Facts<'a>,
    trail: Trail,
    decision: Decision,
}

/// The outcome of one rule in an [`Explanation`].
#[derive(Clone, Debug)]
pub struct ExplainedRule<'a> {
    /// The id of the rule, or its position.
    pub id: &'a str,
    /// The number of groups around it.
    pub depth: usize,
    /// The outcome.
    pub status: RuleStatus,
    /// The tests that decided the outcome, such as `path /a.png has the extension png`.
    pub tests: Vec<String>,
}

impl<'a> Explanation<'a> {
    /// The decision.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// The id of the rule that decided; `None` if the policy's options did.
    pub fn rule(&self) -> Option<&'a str> {
        match self.decision.cause {
            Cause::Rule(rule) => self.policy.rule_id(rule),
            Cause::Default => None,
        }
    }

    /// All rules with their outcomes, in document order.
    pub fn rules(&self) -> impl Iterator<Item = ExplainedRule<'_>> {
        self.policy
            .explain_rules(&self.trail)
            .map(|line| ExplainedRule {
                id: line.rule.id.as_str(),
                depth: line.depth,
                status: line.status,
                tests: self
                    .policy
                    .decisive_tests(&line, self.facts)
                    .iter()
                    .map(ToString::to_string)
                    .collect(),
            })
    }
}

/// Writes the decision, then one line per rule.
impl fmt::Display for Explanation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.decision.verdict {
            Verdict::Admit => "allowed",
            Verdict::Reject(_) => "rejected",
            Verdict::Undecided => "undecided",
        };
        write!(f, "{verdict} at stage {} by ", self.decision.stage.as_str())?;
        match self.rule() {
            Some(id) => write!(f, "rule {id}")?,
            None => f.write_str("the policy's options")?,
        }
        if let Some(reading) = self.decision.reading {
            write!(f, ", as read by {}", reading.servers())?;
        }
        for rule in self.rules() {
            write!(
                f,
                "\n{:indent$}{}: {}",
                "",
                rule.id,
                rule.status.as_str(),
                indent = 2 + 2 * rule.depth
            )?;
            if !rule.tests.is_empty() {
                write!(f, " ({})", rule.tests.join("; "))?;
            }
        }
        Ok(())
    }
}

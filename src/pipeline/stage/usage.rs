//! Usage: the uses of its pages that the host's robots.txt allows or denies. The policy evaluates the uses in a
//! response's header.

use crate::model::reason::Reason;
use crate::model::stage::Stage;
use crate::pipeline::evaluation::Evaluation;
use crate::pipeline::refusal::{Refusal, RobotsCause, RobotsDetail};
use crate::policy::fact::UsagePreference;
use crate::policy::options::robots::RobotsOption;
use crate::robots::RobotsFile;
use crate::robots::agent::RobotsAgent;
use crate::robots::extension::UsageRule;
use crate::robots::state::RobotsState;

const BY_THE_ANSWER: &str = "the answer denies a use that the policy declares, in Content-Usage, Content-Signal, TDM-Reservation or X-Robots-Tag";

/// A statement of the file about one use of the URL, kept for later stages.
#[derive(Debug)]
struct RobotsUsageStatement {
    /// The use, and whether it is allowed.
    fact: (Box<str>, UsagePreference),
    line: u32,
    rule: Box<str>,
}

/// The terms of a host's robots.txt for a URL, kept for later stages. Most hosts have none, so they take one word of each
/// request.
#[derive(Debug, Default)]
pub(crate) struct RobotsTerms(Option<Box<StatedTerms>>);

#[derive(Debug)]
struct StatedTerms {
    /// The uses that it allows or denies, if the policy depends on them.
    usage: Box<[RobotsUsageStatement]>,
    /// The URL of the site's license.
    license: Option<Box<str>>,
}

impl RobotsTerms {
    pub(super) fn new(statements: Vec<UsageRule<'_>>, robots: &RobotsState) -> Self {
        let license = robots.file().and_then(RobotsFile::license);
        if statements.is_empty() && license.is_none() {
            return Self(None);
        }
        Self(Some(Box::new(StatedTerms {
            usage: statements
                .into_iter()
                .map(RobotsUsageStatement::from)
                .collect(),
            license: license.map(Box::from),
        })))
    }

    fn usage(&self) -> &[RobotsUsageStatement] {
        self.0.as_ref().map_or(&[], |terms| &terms.usage)
    }

    /// Returns the uses as facts.
    pub(crate) fn usage_facts(&self) -> Vec<(Box<str>, UsagePreference)> {
        self.usage().iter().map(|s| s.fact.clone()).collect()
    }

    /// Returns the URL of the site's license; empty if there is none.
    pub(crate) fn license(&self) -> &str {
        let terms = self.0.as_ref();
        terms
            .and_then(|terms| terms.license.as_deref())
            .unwrap_or_default()
    }
}

impl From<UsageRule<'_>> for RobotsUsageStatement {
    fn from(stated: UsageRule<'_>) -> Self {
        let UsageRule {
            purpose,
            preference,
            line,
            line_text: rule,
        } = stated;
        Self {
            fact: (purpose, preference),
            line,
            rule: rule.into(),
        }
    }
}

/// Returns the file's statements on the uses that a policy, live or in shadow, depends on.
pub(super) fn read_statements<'k>(
    evaluation: &Evaluation,
    robots: &'k RobotsState,
    agent: RobotsAgent<'_>,
) -> Vec<UsageRule<'k>> {
    let uses = evaluation.snapshot().uses();
    match robots.file().filter(|_| uses.clone().next().is_some()) {
        Some(rules) => {
            rules.usage_rules_for(agent, evaluation.facts().target.path_and_query(), uses)
        }
        None => vec![],
    }
}

/// Refuses a request for a use that the file denies.
pub(super) fn check_denied_uses(
    option: &RobotsOption<'_>,
    statements: &[UsageRule<'_>],
    agent: RobotsAgent<'_>,
) -> Result<(), Refusal> {
    let mut denied = statements
        .iter()
        .filter(|statement| statement.preference == UsagePreference::Deny);
    match denied.find(|statement| is_declared(option, &statement.purpose)) {
        Some(statement) => Err(with_usage_detail(
            Refusal::new(Reason::Usage, Stage::Robots),
            &statement.purpose,
            RobotsCause::new(statement.line, agent),
            &statement.line_text,
        )),
        None => Ok(()),
    }
}

/// Returns `true` if the policy declares a use.
fn is_declared(option: &RobotsOption<'_>, purpose: &str) -> bool {
    option.uses().any(|name| name == purpose)
}

/// Adds the source of the denial for which the policy refuses a response: a line of robots.txt, for a use that a rule
/// on responses has declared, else the response itself.
pub(super) fn with_usage_source(evaluation: &Evaluation, refusal: Refusal) -> Refusal {
    if refusal.detail.is_some() {
        return refusal;
    }
    let option = RobotsOption::new(evaluation.policy(), evaluation.trail());
    let mut denied = evaluation
        .robots_terms()
        .usage()
        .iter()
        .filter(|statement| statement.fact.1 == UsagePreference::Deny);
    match denied.find(|statement| is_declared(&option, &statement.fact.0)) {
        Some(statement) => {
            let cause = RobotsCause::new(statement.line, evaluation.robots_agent());
            with_usage_detail(refusal, &statement.fact.0, cause, &statement.rule)
        }
        None => refusal.with_detail(BY_THE_ANSWER),
    }
}

fn with_usage_detail(refusal: Refusal, purpose: &str, cause: RobotsCause, rule: &str) -> Refusal {
    let line = cause.line;
    let detail =
        format!("line {line} of the host's robots.txt denies the use {purpose}: it is {rule:?}");
    Refusal {
        robots: Some(Box::new(RobotsDetail::Line(cause))),
        ..refusal.with_detail(detail)
    }
}

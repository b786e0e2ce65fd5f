//! Usage: what the host's robots.txt says that its pages may be used for. What an answer's headers say is judged with the
//! answer, by the policy.

use crate::model::reason::Reason;
use crate::model::stage::Stage;
use crate::pipeline::evaluation::Evaluation;
use crate::pipeline::refusal::Refusal;
use crate::policy::fact::UsagePreference;
use crate::policy::options::robots::RobotsOption;
use crate::robots::extension::UsageRule;
use crate::robots::state::RobotsState;

const BY_THE_ANSWER: &str =
    "the answer denies a use that the policy declares, in Content-Usage or Content-Signal";

/// What the file says of one use of the URL, for the stages that come later.
#[derive(Debug)]
pub(crate) struct RobotsUsageStatement {
    /// The use and what is said of it.
    pub(crate) fact: (Box<str>, UsagePreference),
    line: u32,
    rule: Box<str>,
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

/// What the file says of the uses of the URL that a policy asks about, live or in shadow.
pub(super) fn read_statements<'k>(
    evaluation: &Evaluation,
    known: &'k RobotsState,
    agent: &str,
) -> Vec<UsageRule<'k>> {
    let uses = evaluation.snapshot().uses();
    match known.file().filter(|_| uses.clone().next().is_some()) {
        Some(rules) => {
            rules.usage_rules_for(agent, evaluation.facts().target.path_and_query(), uses)
        }
        None => vec![],
    }
}

/// Refuses what is asked for a use that the file denies.
pub(super) fn check_denied_uses(
    option: &RobotsOption<'_>,
    statements: &[UsageRule<'_>],
) -> Result<(), Refusal> {
    let declared = |stated: &&UsageRule<'_>| option.uses().any(|name| *name == *stated.purpose);
    let mut denied = statements
        .iter()
        .filter(|stated| stated.preference == UsagePreference::Deny);
    let refused = |s: &UsageRule<'_>| {
        with_usage_detail(
            Refusal::new(Reason::Usage, Stage::Robots),
            &s.purpose,
            s.line,
            &s.line_text,
        )
    };
    denied
        .find(declared)
        .map_or(Ok(()), |stated| Err(refused(stated)))
}

/// Says who denies the use that the policy refuses the answer for: a rule on answers may have declared one that robots.txt
/// was not asked about, else it is the answer.
pub(super) fn with_usage_source(evaluation: &Evaluation, refusal: Refusal) -> Refusal {
    if refusal.detail.is_some() {
        return refusal;
    }
    let option = RobotsOption::new(evaluation.policy(), evaluation.trail());
    let declared = |said: &&RobotsUsageStatement| option.uses().any(|name| *name == *said.fact.0);
    let mut denied = evaluation
        .usage()
        .iter()
        .filter(|said| said.fact.1 == UsagePreference::Deny);
    match denied.find(declared) {
        Some(said) => with_usage_detail(refusal, &said.fact.0, said.line, &said.rule),
        None => refusal.with_detail(BY_THE_ANSWER),
    }
}

fn with_usage_detail(refusal: Refusal, purpose: &str, line: u32, rule: &str) -> Refusal {
    let detail =
        format!("line {line} of the host's robots.txt denies the use {purpose}: it is {rule:?}");
    Refusal {
        robots_line: Some(line),
        ..refusal.with_detail(detail)
    }
}

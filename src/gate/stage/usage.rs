//! Usage: what the host's robots.txt says that its pages may be used for. What an answer's headers say is judged with the
//! answer, by the policy.

use crate::gate::judged::Judged;
use crate::gate::refusal::Refusal;
use crate::policy::fact::Preference;
use crate::policy::options::robots::RobotsOption;
use crate::robots::extension::Stated;
use crate::robots::standing::Known;
use crate::vocab::reason::Reason;
use crate::vocab::stage::Stage;

const BY_THE_ANSWER: &str =
    "the answer denies a use that the policy declares, in Content-Usage or Content-Signal";

/// What the file says of one use of the URL, for the stages that come later.
#[derive(Debug)]
pub(in crate::gate) struct Said {
    /// The use and what is said of it.
    pub(in crate::gate) fact: (Box<str>, Preference),
    line: u32,
    rule: Box<str>,
}

impl From<Stated<'_>> for Said {
    fn from(stated: Stated<'_>) -> Self {
        let Stated {
            purpose,
            preference,
            line,
            rule,
        } = stated;
        Self {
            fact: (purpose, preference),
            line,
            rule: rule.into(),
        }
    }
}

/// What the file says of the uses of the URL that a policy asks about, live or in shadow.
pub(super) fn stated<'k, C>(judged: &Judged<C>, known: &'k Known, agent: &str) -> Vec<Stated<'k>> {
    let uses = judged.snapshot.uses();
    match known.rules().filter(|_| uses.clone().next().is_some()) {
        Some(rules) => rules.usage_of(agent, judged.asked.target.path_and_query(), uses),
        None => vec![],
    }
}

/// Refuses what is asked for a use that the file denies.
pub(super) fn obey(option: &RobotsOption<'_>, stated: &[Stated<'_>]) -> Result<(), Refusal> {
    let declared = |stated: &&Stated<'_>| option.uses().any(|name| *name == *stated.purpose);
    let mut denied = stated
        .iter()
        .filter(|stated| stated.preference == Preference::Deny);
    let refused = |s: &Stated<'_>| {
        told(
            Refusal::new(Reason::Usage, Stage::Robots),
            &s.purpose,
            s.line,
            &s.rule,
        )
    };
    denied
        .find(declared)
        .map_or(Ok(()), |stated| Err(refused(stated)))
}

/// Says who denies the use that the policy refuses the answer for: a rule on answers may have declared one that robots.txt
/// was not asked about, else it is the answer.
pub(super) fn source_told<C>(judged: &Judged<C>, refusal: Refusal) -> Refusal {
    if refusal.detail.is_some() {
        return refusal;
    }
    let option = RobotsOption::of(judged.policy(), &judged.trail);
    let declared = |said: &&Said| option.uses().any(|name| *name == *said.fact.0);
    let mut denied = judged
        .usage
        .iter()
        .filter(|said| said.fact.1 == Preference::Deny);
    match denied.find(declared) {
        Some(said) => told(refusal, &said.fact.0, said.line, &said.rule),
        None => refusal.with_detail(BY_THE_ANSWER),
    }
}

fn told(refusal: Refusal, purpose: &str, line: u32, rule: &str) -> Refusal {
    let detail =
        format!("line {line} of the host's robots.txt denies the use {purpose}: it is {rule:?}");
    Refusal {
        robots_line: Some(line),
        ..refusal.with_detail(detail)
    }
}

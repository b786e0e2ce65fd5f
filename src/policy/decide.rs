//! From facts to a decision: the plain evaluator (policy.md sections 2 and 4).
//!
//! It walks the rules in document order, once a stage. Later and faster evaluators must name the same verdict and
//! the same cause; this one stays as their oracle.

mod content;
mod exclusion;
mod reading;
mod walk;

pub use content::Tags;
pub use exclusion::{Exclusion, ExclusionCode};
pub use reading::OfDocuments;

use crate::robots::agent::product_token;
use crate::vocab::disposition::Disposition;
use crate::vocab::intent::Intent;
use crate::vocab::reason::Reason;
use crate::vocab::stage::Stage;

use super::Policy;
use super::fact::{Fact, Facts, Subject};
use super::options::recrawl::{AFTER_ERROR, MIN_INTERVAL};
use super::options::robots::{RobotsOption, named_agent};
use super::options::{SetBy, Slot, Value, schema};
use super::rule::{PolicyStage, RuleBody, RuleIndex};
use super::trail::{State, Trail, bit};
use walk::Walk;

/// What a policy says of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing rejects it at the stages that were run.
    Admit,
    /// It is rejected, for this reason.
    Reject(Reason),
    /// A tunnel whose verdict depends on URLs that it hides.
    Undecided,
}

/// What decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// This rule.
    Rule(RuleIndex),
    /// No rule: the policy's options.
    Default,
}

/// A verdict and its one cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The verdict.
    pub verdict: Verdict,
    /// The stage that ended it; the last one that was run if nothing rejected.
    pub stage: Stage,
    /// What decided.
    pub cause: Cause,
    /// Whether a record of the rejected URL is kept.
    pub logged: bool,
    /// What becomes of a rejected URL of the ledger, in a policy with crawl spaces.
    pub exclusion: Option<Exclusion>,
}

impl Decision {
    /// The reason of a rejection; of an admission `rule` or `default`, after its cause.
    pub fn reason(&self) -> Reason {
        match (self.verdict, self.cause) {
            (Verdict::Reject(reason), _) => reason,
            (Verdict::Undecided, _) => Reason::Undecided,
            (Verdict::Admit, Cause::Rule(_)) => Reason::Rule,
            (Verdict::Admit, Cause::Default) => Reason::Default,
        }
    }

    /// Whether it rejects.
    pub fn rejects(&self) -> bool {
        matches!(self.verdict, Verdict::Reject(_))
    }
}

/// How a rejection by the policy is to be answered.
#[derive(Clone, Copy, Debug)]
pub struct Refusing<'p> {
    /// The meaning of the refusal.
    pub intent: Intent,
    /// A wire status that the policy sets, whatever the crawler's profile.
    pub status: Option<u16>,
    /// The cause's text.
    pub about: Option<&'p str>,
    /// The cause's id.
    pub rule: Option<&'p str>,
    /// OmniFind's code, where one applies.
    pub code: Option<u16>,
}

impl Policy {
    /// Judges a request for a URL at the request stage, in its raw and, where that differs, its decoded form.
    pub fn request(&self, facts: &Facts<'_>) -> (Trail, Decision) {
        self.request_with(None, facts)
    }

    /// The same with a rule in shadow live besides.
    pub(in crate::policy) fn request_with(
        &self,
        beside: Option<RuleIndex>,
        facts: &Facts<'_>,
    ) -> (Trail, Decision) {
        let mut trail = Trail::new(self, facts.crawler);
        let decision = self.stage_with(beside, &mut trail, PolicyStage::Request, facts);
        let decision = self
            .unambiguous(beside, decision, facts)
            .unwrap_or(decision);
        (trail, decision)
    }

    /// Judges a request that no earlier stage rejected at a later stage.
    pub fn stage(&self, trail: &mut Trail, stage: PolicyStage, facts: &Facts<'_>) -> Decision {
        self.stage_with(None, trail, stage, facts)
    }

    /// The same with a rule in shadow live besides.
    pub(in crate::policy) fn stage_with(
        &self,
        beside: Option<RuleIndex>,
        trail: &mut Trail,
        stage: PolicyStage,
        facts: &Facts<'_>,
    ) -> Decision {
        match beside {
            Some(root) => Walk::new(self, facts, stage, trail).beside(root).run(),
            None if self.stages.contains(stage) => Walk::new(self, facts, stage, trail).run(),
            None => {}
        }
        let decision = self.conclude(trail, stage, facts);
        if stage == PolicyStage::Request && self.traps.is_some() && !decision.rejects() {
            return self.trapped(trail, facts).unwrap_or(decision);
        }
        decision
    }

    /// Runs the stages as far as the facts reach; the first rejection is final.
    pub fn decide(&self, facts: &Facts<'_>) -> (Trail, Decision) {
        if let Subject::Tunnel(_) = facts.subject {
            return self.tunnel(None, facts);
        }
        // A stage knows nothing of later facts, although the caller does.
        let answered = Facts {
            document: Fact::Unknown,
            ..*facts
        };
        let connected = Facts {
            response: Fact::Unknown,
            ..answered
        };
        let asked = Facts {
            address: Fact::Unknown,
            ..connected
        };
        let (mut trail, mut decision) = self.request(&asked);
        let later = [
            (
                PolicyStage::Destination,
                facts.address != Fact::Unknown,
                connected,
            ),
            (
                PolicyStage::Response,
                matches!(facts.response, Fact::Known(_)),
                answered,
            ),
            (PolicyStage::Document, self.reads_document(facts), *facts),
        ];
        for (stage, known, facts) in later {
            if known && !decision.rejects() {
                let facts = Facts {
                    agent: self.agent(&trail, &facts),
                    ..facts
                };
                decision = self.stage(&mut trail, stage, &facts);
            }
        }
        decision.exclusion = self.note_exclusion(&mut trail, &decision, facts);
        (trail, decision)
    }

    /// By which name lines for one crawler speak of this one: the option `robots.agent`, else what is known of it.
    fn agent<'a>(&'a self, trail: &Trail, facts: &Facts<'a>) -> &'a str {
        let option = named_agent(self, trail).map(product_token);
        option
            .filter(|token| !token.is_empty())
            .unwrap_or_else(|| facts.agent())
    }

    /// How a rejection is answered: the cause's own words, else the options' (policy.md section 2, step 7).
    pub fn refusing(&self, trail: &Trail, decision: &Decision) -> Refusing<'_> {
        let rule = match decision.cause {
            Cause::Rule(index) => self.rules.get(index.0 as usize),
            Cause::Default => None,
        };
        let own = match rule.map(|r| &r.body) {
            Some(RuleBody::Filter(filter)) => {
                (filter.reject, filter.soft_error.or(filter.reject_status))
            }
            Some(RuleBody::Group(_)) | None => (None, None),
        };
        let code = decision.exclusion.map(|exclusion| exclusion.code);
        let status = trail
            .number(self, schema::REJECT_STATUS)
            .and_then(|n| u16::try_from(n).ok());
        Refusing {
            // A code has an intent of its own, which gives way to the cause's but not to the options'.
            intent: own
                .0
                .or(code.map(ExclusionCode::intent))
                .or_else(|| trail.reject(self))
                .unwrap_or(Intent::Deny),
            status: own.1.or(status),
            about: rule.and_then(|r| r.about.as_deref()),
            rule: rule.map(|r| r.id.as_str()),
            code: code.map(ExclusionCode::number),
        }
    }

    /// A URL that servers could read in two ways is rejected if the two get different verdicts (section 7).
    fn unambiguous(
        &self,
        beside: Option<RuleIndex>,
        raw: Decision,
        facts: &Facts<'_>,
    ) -> Option<Decision> {
        let Subject::Url(target) = facts.subject else {
            return None;
        };
        let decoded = target.decoded()?;
        let facts = Facts {
            subject: Subject::Url(&decoded),
            ..*facts
        };
        let mut second = Trail::new(self, facts.crawler);
        let other = self.stage_with(beside, &mut second, PolicyStage::Request, &facts);
        if other.rejects() == raw.rejects() {
            return None;
        }
        let refusing = if raw.rejects() { raw } else { other };
        Some(Decision {
            verdict: Verdict::Reject(Reason::AmbiguousUrl),
            ..refusing
        })
    }

    fn conclude(&self, trail: &Trail, stage: PolicyStage, facts: &Facts<'_>) -> Decision {
        let rejection = match stage {
            PolicyStage::Request => self.too_deep(trail, facts).or_else(|| self.by_rules(trail)),
            PolicyStage::Destination => self.by_rules(trail),
            PolicyStage::Response => self.by_response(trail, facts),
            PolicyStage::Document => self.by_document(trail, facts),
        };
        let (verdict, cause) = match rejection {
            Some((reason, cause)) => (Verdict::Reject(reason), cause),
            None => (Verdict::Admit, self.cause_of(trail, schema::DISPOSITION)),
        };
        Decision {
            verdict,
            stage: stage.stage(),
            cause,
            logged: self.logged(trail, verdict),
            exclusion: None,
        }
    }

    /// Filters first; else the option `disposition`.
    fn by_rules(&self, trail: &Trail) -> Option<(Reason, Cause)> {
        if let Some(filter) = trail.filtered {
            return Some((Reason::Rule, Cause::Rule(filter)));
        }
        let cause = self.cause_of(trail, schema::DISPOSITION);
        let reason = if cause == Cause::Default {
            Reason::Default
        } else {
            Reason::Rule
        };
        trail.is_disposed_of(self).then_some((reason, cause))
    }

    fn too_deep(&self, trail: &Trail, facts: &Facts<'_>) -> Option<(Reason, Cause)> {
        let limit = trail.number(self, schema::MAX_DEPTH)?;
        let deeper = facts.depth.is_some_and(|depth| depth > limit);
        deeper.then(|| (Reason::TooDeep, self.cause_of(trail, schema::MAX_DEPTH)))
    }

    /// What would be admitted but for the option `traps`.
    fn trapped(&self, trail: &mut Trail, facts: &Facts<'_>) -> Option<Decision> {
        let Subject::Url(target) = facts.subject else {
            return None;
        };
        let set = self.traps.as_ref()?.now(self, trail)?;
        trail.trap = Some(set.first(target, facts.year)?);
        let verdict = Verdict::Reject(Reason::Trap);
        let (cause, logged) = (
            self.cause_of(trail, schema::TRAPS),
            self.logged(trail, verdict),
        );
        Some(Decision {
            verdict,
            stage: Stage::Request,
            cause,
            logged,
            exclusion: None,
        })
    }

    /// Filters log if one of them says so; a disposition says it itself; other reasons follow the filters.
    fn logged(&self, trail: &Trail, verdict: Verdict) -> bool {
        let by_disposition =
            trail.filtered.is_none() && trail.disposition(self) == Disposition::DisallowLog;
        match verdict {
            Verdict::Reject(Reason::Rule | Reason::Default) => trail.log || by_disposition,
            Verdict::Reject(_) => trail.log,
            Verdict::Admit | Verdict::Undecided => false,
        }
    }

    fn cause_of(&self, trail: &Trail, slot: Slot) -> Cause {
        match trail.set_by(self, slot) {
            SetBy::Rule(rule) => Cause::Rule(rule),
            SetBy::Document | SetBy::Space(_) | SetBy::BuiltIn => Cause::Default,
        }
    }
}

/// Tunnels: only what is the same for every URL of the host counts (section 4).
impl Policy {
    /// Judges a tunnel by what its host and port show. Facts of every later stage stay unknown but the address.
    pub(in crate::policy) fn tunnel(
        &self,
        beside: Option<RuleIndex>,
        facts: &Facts<'_>,
    ) -> (Trail, Decision) {
        let mut trail = Trail::new(self, facts.crawler);
        for stage in PolicyStage::ALL {
            // As everywhere, a stage knows nothing of later facts, although the caller does; and of what goes through a
            // tunnel nobody knows anything.
            let address = if stage == PolicyStage::Request {
                Fact::Unknown
            } else {
                facts.address
            };
            let facts = Facts {
                address,
                response: Fact::Unknown,
                document: Fact::Unknown,
                ..*facts
            };
            let walk = Walk::new(self, &facts, stage, &mut trail);
            match beside {
                Some(root) => walk.beside(root).run(),
                None => walk.run(),
            }
            match self.certain_rejection(&trail) {
                // Many answers have no document, so what it would reject is not certain.
                Some((_, Cause::Rule(rule))) if stage == PolicyStage::Document => trail.doubt(rule),
                Some((reason, cause)) => return self.tunnel_rejected(trail, stage, reason, cause),
                None => {}
            }
            survivors(&mut trail);
        }
        self.doubt_options(&mut trail);
        let (verdict, cause) = match trail.doubt {
            Some(rule) => (Verdict::Undecided, Cause::Rule(rule)),
            None if trail.dispositions == 0 => (Verdict::Undecided, Cause::Default),
            None => (Verdict::Admit, self.cause_of(&trail, schema::DISPOSITION)),
        };
        (
            trail,
            Decision {
                verdict,
                stage: Stage::Connect,
                cause,
                logged: false,
                exclusion: None,
            },
        )
    }

    fn tunnel_rejected(
        &self,
        trail: Trail,
        stage: PolicyStage,
        reason: Reason,
        cause: Cause,
    ) -> (Trail, Decision) {
        let verdict = Verdict::Reject(reason);
        let logged = self.logged(&trail, verdict);
        (
            trail,
            Decision {
                verdict,
                stage: stage.stage(),
                cause,
                logged,
                exclusion: None,
            },
        )
    }

    fn certain_rejection(&self, trail: &Trail) -> Option<(Reason, Cause)> {
        let admits = trail.dispositions & bit(Disposition::Allow) != 0;
        if trail.filtered.is_none() && admits {
            return None;
        }
        // Where several dispositions are possible and all reject, the last certain one names the cause.
        self.by_rules(trail)
    }

    /// Options that check what a tunnel hides leave it undecided.
    fn doubt_options(&self, trail: &mut Trail) {
        let all = self.rules.iter().zip(0..).map(|(_, at)| RuleIndex(at));
        let undecided: Vec<RuleIndex> = all
            .filter(|rule| trail.state(*rule) == State::Undecided)
            .collect();
        for slot in HIDDEN_IN_TUNNELS {
            let hidden = if slot == schema::USAGE {
                RobotsOption::of(self, trail).uses().next().is_some()
            } else {
                judges(trail.value(self, slot))
            };
            if let (true, SetBy::Rule(rule)) = (hidden, trail.set_by(self, slot)) {
                trail.doubt(rule);
            } else if hidden {
                trail.dispositions = 0;
            }
            if let Some(rule) = undecided
                .iter()
                .find(|rule| self.assigned(**rule, slot).is_some())
            {
                trail.doubt(*rule);
            }
        }
        for (flag, level) in STRIPPED_IN_DOCUMENTS {
            let whose = |slot, value| self.perhaps_set_by(trail, &undecided, slot, value);
            let strips = whose(level, &Value::Word(schema::STRIP));
            match whose(flag, &Value::Bool(false)).and_then(|off| Some([strips?, off])) {
                Some([SetBy::Rule(rule), _] | [_, SetBy::Rule(rule)]) => trail.doubt(rule),
                Some(_) => trail.dispositions = 0,
                None => {}
            }
        }
    }

    /// Who gives an option this value, or might do so.
    fn perhaps_set_by(
        &self,
        trail: &Trail,
        undecided: &[RuleIndex],
        slot: Slot,
        value: &Value,
    ) -> Option<SetBy> {
        if trail.value(self, slot) == value {
            return Some(trail.set_by(self, slot));
        }
        let sets = |rule: &&RuleIndex| self.assigned(**rule, slot) == Some(value);
        undecided.iter().find(sets).map(|rule| SetBy::Rule(*rule))
    }
}

/// What is off, and how that is enforced: what has to be gone from a document stays in one that nobody sees. What is only
/// said, in its head or in a page, is the crawler's to heed, and refuses nothing.
const STRIPPED_IN_DOCUMENTS: [(Slot, Slot); 2] = [
    (schema::INDEX, schema::ENFORCE_INDEX),
    (schema::FOLLOW, schema::ENFORCE_FOLLOW),
];

/// Options that refuse by what only URLs and answers show.
const HIDDEN_IN_TUNNELS: [Slot; 14] = [
    schema::HTML_ONLY,
    schema::MAX_BODY,
    schema::NONCANONICAL,
    schema::NOINDEX,
    schema::USAGE,
    schema::UNMODIFIED,
    schema::DUPLICATE,
    schema::TRAPS,
    schema::URLS,
    schema::NEW_URLS,
    schema::BYTES,
    schema::HOSTS,
    MIN_INTERVAL,
    AFTER_ERROR,
];

/// Whether an option with this value could refuse something.
fn judges(value: &Value) -> bool {
    match value {
        Value::Bool(on) => *on,
        Value::Word(word) => *word == schema::REJECTS,
        Value::List(items) => !items.is_empty(),
        Value::Integer(_) | Value::Size(_) | Value::Duration(_) => true,
        Value::None
        | Value::Decimal(_)
        | Value::Text(_)
        | Value::Rate { .. }
        | Value::Range(..)
        | Value::Map(_)
        | Value::Disposition(_)
        | Value::Intent(_) => false,
    }
}

/// URLs that a stage may have rejected go no further; what the next stage judges are those that it did not.
fn survivors(trail: &mut Trail) {
    if trail.dispositions != bit(Disposition::Allow) {
        trail.dispositions = bit(Disposition::Allow);
        if let Some(rule) = trail.open.take() {
            trail.doubt(rule);
        }
    }
}

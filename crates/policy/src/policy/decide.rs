//! The evaluator: from facts to a decision.
//!
//! It walks the rules in document order, once per stage. Of long lists it visits only the rules that
//! the index cannot rule out, which changes neither the verdict nor its cause.

mod content;
mod document_needs;
mod exclusion;
mod reading;
mod walk;
mod whole_host;

pub use content::ContentTags;
pub use document_needs::DocumentNeeds;
pub use exclusion::{Exclusion, ExclusionCode};

use crate::model::disposition::Disposition;
use crate::model::intent::Intent;
use crate::model::reason::Reason;
use crate::model::stage::Stage;
use crate::robots::product_token::product_token;
use crate::urls::target::LaxReading;

use super::Policy;
use super::fact::{EvaluationTarget, Fact, Facts};
use super::options::checks::CheckAction;
use super::options::recrawl::{AFTER_ERROR, MIN_INTERVAL};
use super::options::robots::{RobotsOption, robots_agent};
use super::options::{OptionIndex, OptionSetter, OptionValue, schema};
use super::rule::{PolicyStage, RuleBody, RuleIndex};
use super::trail::{RuleState, Trail, disposition_bit};
use walk::Walk;

/// The decision on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No evaluated stage rejects the request.
    Admit,
    /// The request is rejected for this reason.
    Reject(Reason),
    /// The decision on a tunnel depends on URLs that it hides.
    Undecided,
}

/// The cause of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A rule.
    Rule(RuleIndex),
    /// The policy's options, since no rule decided.
    Default,
}

/// A verdict and its cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Admitted, rejected or undecided.
    pub verdict: Verdict,
    /// The stage that decided; the last evaluated one if none rejected.
    pub stage: Stage,
    /// The rule that decided, if one did.
    pub cause: Cause,
    /// `true` if a record of the rejected URL is kept.
    pub logged: bool,
    /// The consequence for a rejected URL that is in the ledger, if the policy has crawl spaces.
    pub exclusion: Option<Exclusion>,
    /// The reading of the URL that is rejected, if the URL itself is admitted.
    pub reading: Option<LaxReading>,
}

impl Decision {
    /// The reason of a rejection. If nothing is rejected, `rule` or `default`, according to the
    /// cause.
    pub fn reason(&self) -> Reason {
        match (self.verdict, self.cause) {
            (Verdict::Reject(reason), _) => reason,
            (Verdict::Undecided, _) => Reason::Undecided,
            (Verdict::Admit, Cause::Rule(_)) => Reason::Rule,
            (Verdict::Admit, Cause::Default) => Reason::Default,
        }
    }

    /// Returns `true` if the verdict is a rejection.
    pub fn rejects(&self) -> bool {
        matches!(self.verdict, Verdict::Reject(_))
    }
}

/// The response to a rejection by the policy.
#[derive(Clone, Copy, Debug)]
pub struct PolicyRefusal<'p> {
    /// The intent.
    pub intent: Intent,
    /// A status that the policy sets, which overrides the crawler's profile.
    pub status: Option<u16>,
    /// The description of the rule that decided.
    pub about: Option<&'p str>,
    /// The id of the rule that decided.
    pub rule: Option<&'p str>,
    /// OmniFind's code, if one applies.
    pub code: Option<u16>,
}

impl Policy {
    /// Evaluates the request stage.
    pub fn decide_request(&self, facts: &Facts<'_>) -> (Trail, Decision) {
        self.decide_request_with_shadow(None, facts)
    }

    /// Like [`Self::decide_request`], with one shadow rule enforced.
    pub(crate) fn decide_request_with_shadow(
        &self,
        shadow: Option<RuleIndex>,
        facts: &Facts<'_>,
    ) -> (Trail, Decision) {
        self.decide_request_from(Trail::for_request(self, facts), shadow, facts)
    }

    fn decide_request_from(
        &self,
        mut trail: Trail,
        shadow: Option<RuleIndex>,
        facts: &Facts<'_>,
    ) -> (Trail, Decision) {
        let decision = self.decide_all_readings(shadow, &mut trail, PolicyStage::Request, facts);
        (trail, decision)
    }

    /// Evaluates a later stage for a request that no earlier stage rejected.
    pub fn decide_stage(
        &self,
        trail: &mut Trail,
        stage: PolicyStage,
        facts: &Facts<'_>,
    ) -> Decision {
        self.decide_all_readings(None, trail, stage, facts)
    }

    /// Evaluates a stage for a URL and, if it is admitted, for its readings by lax servers.
    pub(crate) fn decide_all_readings(
        &self,
        shadow: Option<RuleIndex>,
        trail: &mut Trail,
        stage: PolicyStage,
        facts: &Facts<'_>,
    ) -> Decision {
        let decision = self.decide_stage_with_shadow(shadow, trail, stage, facts);
        if decision.rejects() {
            return decision;
        }
        self.rejection_by_reading(shadow, stage, facts)
            .unwrap_or(decision)
    }

    /// Evaluates a stage, possibly with one shadow rule enforced.
    fn decide_stage_with_shadow(
        &self,
        shadow: Option<RuleIndex>,
        trail: &mut Trail,
        stage: PolicyStage,
        facts: &Facts<'_>,
    ) -> Decision {
        match shadow {
            Some(root) => Walk::new(self, facts, stage, trail)
                .with_shadow_rule(root)
                .run(),
            None if self.active_stages.contains(stage) => {
                Walk::new(self, facts, stage, trail).run()
            }
            None => {}
        }
        let decision = self.conclude_stage(trail, stage, facts);
        if stage == PolicyStage::Request && self.traps.is_some() && !decision.rejects() {
            return self.rejection_by_trap(trail, facts).unwrap_or(decision);
        }
        if !decision.rejects() {
            self.record_links(trail, facts);
        }
        decision
    }

    /// Evaluates all stages for which the facts are known. The first rejection is final.
    pub fn decide(&self, facts: &Facts<'_>) -> (Trail, Decision) {
        self.decide_from(Trail::for_request(self, facts), facts)
    }

    /// Like [`Self::decide`], without the index: evaluates every rule, including those that cannot have an
    /// effect, so that the trail has the outcome of each.
    pub fn decide_every_rule(&self, facts: &Facts<'_>) -> (Trail, Decision) {
        self.decide_from(Trail::for_request(self, facts).with_every_rule(), facts)
    }

    fn decide_from(&self, trail: Trail, facts: &Facts<'_>) -> (Trail, Decision) {
        if let EvaluationTarget::Tunnel(_) = facts.target {
            return self.decide_tunnel(None, facts);
        }
        let request_facts = facts_at(PolicyStage::Request, facts);
        let (mut trail, mut decision) = self.decide_request_from(trail, None, &request_facts);
        let later = [
            (PolicyStage::Destination, facts.address != Fact::Unknown),
            (
                PolicyStage::Response,
                matches!(facts.response, Fact::Known(_)),
            ),
            (PolicyStage::Document, self.runs_document_stage(facts)),
        ];
        for (stage, known) in later {
            if known && !decision.rejects() {
                let facts = Facts {
                    agent: self.robots_agent(&trail, facts),
                    ..facts_at(stage, facts)
                };
                decision = self.decide_stage(&mut trail, stage, &facts);
            }
        }
        decision.exclusion = self.record_exclusion(&mut trail, &decision, facts);
        (trail, decision)
    }

    /// Returns the product token for lines that address one crawler: the option `robots.agent`,
    /// else that of the request.
    fn robots_agent<'a>(&'a self, trail: &Trail, facts: &Facts<'a>) -> &'a str {
        let option = robots_agent(self, trail).map(product_token);
        option
            .filter(|token| !token.is_empty())
            .unwrap_or_else(|| facts.robots_agent())
    }

    /// Returns the response to a rejection: the rule's own settings, else the options.
    pub fn refusal(&self, trail: &Trail, decision: &Decision) -> PolicyRefusal<'_> {
        let rule = match decision.cause {
            Cause::Rule(index) => self.rules.get(index.0 as usize),
            Cause::Default => None,
        };
        let (rule_intent, rule_status) = match rule.map(|r| &r.body) {
            Some(RuleBody::Filter(filter)) => (
                filter.reject_intent,
                filter.soft_error.or(filter.reject_status),
            ),
            Some(RuleBody::Group(_)) | None => (None, None),
        };
        let code = decision.exclusion.map(|exclusion| exclusion.code);
        let status = trail
            .number(self, schema::REJECT_STATUS)
            .and_then(|n| u16::try_from(n).ok());
        PolicyRefusal {
            // The rule's intent precedes the one implied by the code, which precedes the options'.
            intent: rule_intent
                .or(code.map(ExclusionCode::intent))
                .or_else(|| trail.reject_intent(self))
                .unwrap_or(Intent::Deny),
            status: rule_status.or(status),
            about: rule.and_then(|r| r.about.as_deref()),
            rule: rule.map(|r| r.id.as_str()),
            code: code.map(ExclusionCode::number),
        }
    }

    fn conclude_stage(&self, trail: &Trail, stage: PolicyStage, facts: &Facts<'_>) -> Decision {
        let rejection = match stage {
            PolicyStage::Request => self
                .rejection_by_depth(trail, facts)
                .or_else(|| self.rejection_by_rules(trail)),
            PolicyStage::Destination => self.rejection_by_rules(trail),
            PolicyStage::Response => self.rejection_by_response(trail, facts),
            PolicyStage::Document => self.rejection_by_document(trail, facts),
        };
        let (verdict, cause) = match rejection {
            Some((reason, cause)) => (Verdict::Reject(reason), cause),
            None => (Verdict::Admit, self.cause_of(trail, schema::DISPOSITION)),
        };
        Decision {
            verdict,
            stage: stage.to_stage(),
            cause,
            logged: self.is_logged(trail, verdict),
            exclusion: None,
            reading: None,
        }
    }

    /// Applies filters first, then the option `disposition`.
    fn rejection_by_rules(&self, trail: &Trail) -> Option<(Reason, Cause)> {
        if let Some(filter) = trail.first_filter {
            return Some((Reason::Rule, Cause::Rule(filter)));
        }
        let cause = self.cause_of(trail, schema::DISPOSITION);
        let reason = if cause == Cause::Default {
            Reason::Default
        } else {
            Reason::Rule
        };
        trail
            .is_rejected_by_disposition(self)
            .then_some((reason, cause))
    }

    fn rejection_by_depth(&self, trail: &Trail, facts: &Facts<'_>) -> Option<(Reason, Cause)> {
        let limit = trail.number(self, schema::MAX_DEPTH)?;
        let deeper = facts.depth.is_some_and(|depth| depth > limit);
        deeper.then(|| (Reason::TooDeep, self.cause_of(trail, schema::MAX_DEPTH)))
    }

    /// Applies the option `traps` to a request that would be admitted otherwise.
    fn rejection_by_trap(&self, trail: &mut Trail, facts: &Facts<'_>) -> Option<Decision> {
        let EvaluationTarget::Url(target) = facts.target else {
            return None;
        };
        let set = self.traps.as_ref()?.current(self, trail)?;
        let set = match facts.read_from {
            Some(_) => set.for_readings(),
            None => *set,
        };
        trail.trap = Some(set.first_match(target, facts.year)?);
        let verdict = Verdict::Reject(Reason::Trap);
        Some(Decision {
            verdict,
            stage: Stage::Request,
            cause: self.cause_of(trail, schema::TRAPS),
            logged: self.is_logged(trail, verdict),
            exclusion: None,
            reading: None,
        })
    }

    /// A rejection is logged if a matching filter has `log`, or if the disposition is
    /// `disallow-log`.
    fn is_logged(&self, trail: &Trail, verdict: Verdict) -> bool {
        let by_disposition =
            trail.first_filter.is_none() && trail.disposition(self) == Disposition::DisallowLog;
        match verdict {
            Verdict::Reject(Reason::Rule | Reason::Default) => trail.log || by_disposition,
            Verdict::Reject(_) => trail.log,
            Verdict::Admit | Verdict::Undecided => false,
        }
    }

    fn cause_of(&self, trail: &Trail, index: OptionIndex) -> Cause {
        match trail.set_by(self, index) {
            OptionSetter::Rule(rule) => Cause::Rule(rule),
            OptionSetter::Document
            | OptionSetter::Space(_)
            | OptionSetter::Host(_)
            | OptionSetter::BuiltIn => Cause::Default,
        }
    }
}

/// Decisions on tunnels: only what holds for every URL of the host counts.
impl Policy {
    /// Decides a tunnel by its host and port. Of the facts of later stages, only the address is
    /// known.
    pub(crate) fn decide_tunnel(
        &self,
        shadow: Option<RuleIndex>,
        facts: &Facts<'_>,
    ) -> (Trail, Decision) {
        let mut trail = Trail::for_request(self, facts);
        for stage in PolicyStage::ALL {
            // Each stage sees only the facts of that stage; the response and the document are
            // hidden in the tunnel.
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
            match shadow {
                Some(root) => walk.with_shadow_rule(root).run(),
                None => walk.run(),
            }
            match self.certain_rejection(&trail) {
                // Many responses have no document, so a rejection at this stage is not certain.
                Some((_, Cause::Rule(rule))) if stage == PolicyStage::Document => {
                    trail.record_doubt(rule)
                }
                Some((reason, cause)) => return self.tunnel_rejection(trail, stage, reason, cause),
                None => {}
            }
            keep_admitted(&mut trail);
        }
        self.record_option_doubts(&mut trail);
        let (verdict, cause) = match trail.first_doubt {
            Some(rule) => (Verdict::Undecided, Cause::Rule(rule)),
            None if trail.possible_dispositions == 0 => (Verdict::Undecided, Cause::Default),
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
                reading: None,
            },
        )
    }

    fn tunnel_rejection(
        &self,
        trail: Trail,
        stage: PolicyStage,
        reason: Reason,
        cause: Cause,
    ) -> (Trail, Decision) {
        let verdict = Verdict::Reject(reason);
        let logged = self.is_logged(&trail, verdict);
        (
            trail,
            Decision {
                verdict,
                stage: stage.to_stage(),
                cause,
                logged,
                exclusion: None,
                reading: None,
            },
        )
    }

    fn certain_rejection(&self, trail: &Trail) -> Option<(Reason, Cause)> {
        let admits = trail.possible_dispositions & disposition_bit(Disposition::Allow) != 0;
        if trail.first_filter.is_none() && admits {
            return None;
        }
        // If all possible dispositions reject, the last certain one is the cause.
        self.rejection_by_rules(trail)
    }

    /// Marks the tunnel undecided if an option depends on what it hides.
    fn record_option_doubts(&self, trail: &mut Trail) {
        let undecided: Vec<RuleIndex> = trail.rules_in_state(RuleState::Undecided).collect();
        for index in HIDDEN_IN_TUNNELS {
            let hidden = if index == schema::ROBOTS_USAGE {
                RobotsOption::new(self, trail).uses().next().is_some()
            } else {
                may_refuse(trail.value(self, index))
            };
            if let (true, OptionSetter::Rule(rule)) = (hidden, trail.set_by(self, index)) {
                trail.record_doubt(rule);
            } else if hidden {
                trail.possible_dispositions = 0;
            }
            if let Some(rule) = undecided
                .iter()
                .find(|rule| self.assigned_value(**rule, index).is_some())
            {
                trail.record_doubt(*rule);
            }
        }
        for (flag, level) in STRIPPED_IN_DOCUMENTS {
            let strips = self.possibly_set_by(
                trail,
                &undecided,
                level,
                &OptionValue::Word(schema::STRIP_WORD),
            );
            let disabled = self.possibly_set_by(trail, &undecided, flag, &OptionValue::Bool(false));
            match strips.zip(disabled) {
                Some((OptionSetter::Rule(rule), _) | (_, OptionSetter::Rule(rule))) => {
                    trail.record_doubt(rule)
                }
                Some(_) => trail.possible_dispositions = 0,
                None => {}
            }
        }
    }

    /// Returns the setter of an option that has this value or may get it.
    fn possibly_set_by(
        &self,
        trail: &Trail,
        undecided: &[RuleIndex],
        index: OptionIndex,
        value: &OptionValue,
    ) -> Option<OptionSetter> {
        if trail.value(self, index) == value {
            return Some(trail.set_by(self, index));
        }
        undecided
            .iter()
            .find(|rule| self.assigned_value(**rule, index) == Some(value))
            .map(|rule| OptionSetter::Rule(*rule))
    }
}

/// Flags and the options that enforce them by stripping links or documents, which is impossible in
/// a tunnel. Enforcement by headers or meta tags only informs the crawler and refuses nothing.
const STRIPPED_IN_DOCUMENTS: [(OptionIndex, OptionIndex); 2] = [
    (schema::INDEX, schema::ENFORCE_INDEX),
    (schema::FOLLOW, schema::ENFORCE_FOLLOW),
];

/// Options that refuse by facts that tunnels hide.
const HIDDEN_IN_TUNNELS: [OptionIndex; 14] = [
    schema::HTML_ONLY,
    schema::MAX_BODY,
    schema::NONCANONICAL,
    schema::NOINDEX,
    schema::ROBOTS_USAGE,
    schema::UNMODIFIED,
    schema::DUPLICATE,
    schema::TRAPS,
    schema::BUDGET_URLS,
    schema::BUDGET_NEW_URLS,
    schema::BUDGET_BYTES,
    schema::BUDGET_HOSTS,
    MIN_INTERVAL,
    AFTER_ERROR,
];

/// Returns `true` if an option with this value may refuse a request.
fn may_refuse(value: &OptionValue) -> bool {
    match value {
        OptionValue::Bool(on) => *on,
        OptionValue::Word(word) => matches!(
            CheckAction::from_word(word),
            CheckAction::Reject | CheckAction::Links
        ),
        OptionValue::List(items) => !items.is_empty(),
        OptionValue::Integer(_) | OptionValue::Size(_) | OptionValue::Duration(_) => true,
        OptionValue::None
        | OptionValue::Decimal(_)
        | OptionValue::Text(_)
        | OptionValue::Rate { .. }
        | OptionValue::Range(..)
        | OptionValue::Map(_)
        | OptionValue::Disposition(_)
        | OptionValue::Intent(_) => false,
    }
}

/// Returns the facts that are known at a stage in production.
fn facts_at<'a>(stage: PolicyStage, facts: &Facts<'a>) -> Facts<'a> {
    let mut known = *facts;
    if stage < PolicyStage::Document {
        known.document = Fact::Unknown;
    }
    if stage < PolicyStage::Response {
        known.response = Fact::Unknown;
    }
    if stage < PolicyStage::Destination {
        known.address = Fact::Unknown;
    }
    known
}

/// Restricts the trail to URLs that no stage has rejected so far; only these reach the next stage.
fn keep_admitted(trail: &mut Trail) {
    if trail.possible_dispositions != disposition_bit(Disposition::Allow) {
        trail.possible_dispositions = disposition_bit(Disposition::Allow);
        if let Some(rule) = trail.uncertain_rule.take() {
            trail.record_doubt(rule);
        }
    }
}

//! Which documents are read: only those of which a rule or an option still waits to hear something.

use crate::policy::Policy;
use crate::policy::condition::Truth;
use crate::policy::fact::{Fact, Facts, ResponseFacts};
use crate::policy::options::checks::{self, CheckAction};
use crate::policy::options::{OptionSlot, schema};
use crate::policy::rule::{EnforcementMode, PolicyStage, Rule, RuleBody, RuleIndex};
use crate::policy::space::RuleRange;
use crate::policy::trail::{RuleState, Trail};

/// What a policy asks of documents, known when it is loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DocumentNeeds {
    /// A rule could do something at the document stage, live or in shadow.
    pub rules: bool,
    /// `noindex` or `noncanonical` is set to more than `pass` somewhere.
    pub checks: bool,
    /// A rule names `body_prefix`: the text is read, and not only the head.
    pub body_prefix: bool,
}

impl Policy {
    /// What it asks of documents, of whatever answer.
    pub fn document_needs(&self) -> DocumentNeeds {
        self.document_needs
    }

    /// Whether the document of an answer that passed the response stage has to be read: it is of a kind that is, and
    /// something still waits for it.
    pub fn needs_document(&self, trail: &Trail, facts: &Facts<'_>) -> bool {
        let Fact::Known(response) = facts.response else {
            return false;
        };
        let asks = self.document_needs.rules || self.document_needs.checks;
        asks && is_inspectable(facts.method, &response)
            && (self.has_document_check(trail) || self.any_rule_needs_document(trail, facts))
    }

    /// The document stage runs for a GET answered with 2xx and content, in HTML or text; an answer that does not tell its
    /// type may be either.
    pub(super) fn runs_document_stage(&self, facts: &Facts<'_>) -> bool {
        let (Fact::Known(response), Fact::Known(_)) = (facts.response, facts.document) else {
            return false;
        };
        is_inspectable(facts.method, &response)
    }

    fn has_document_check(&self, trail: &Trail) -> bool {
        let checks = |slot: OptionSlot| checks::read_action(self, trail, slot) != CheckAction::Pass;
        self.document_needs.checks && (checks(schema::NOINDEX) || checks(schema::NONCANONICAL))
    }

    fn any_rule_needs_document(&self, trail: &Trail, facts: &Facts<'_>) -> bool {
        if !self.document_needs.rules {
            return false;
        }
        let of_space = trail
            .space()
            .and_then(|space| self.spaces.get(space))
            .map(|space| space.rules);
        let stretches = [Some(self.spaces.document_rules), of_space];
        stretches
            .into_iter()
            .flatten()
            .any(|range| self.range_needs_document(range, trail, facts))
    }

    fn range_needs_document(
        &self,
        RuleRange { from, to }: RuleRange,
        trail: &Trail,
        facts: &Facts<'_>,
    ) -> bool {
        let mut at = from;
        while at < to {
            let Some(rule) = self.rules.get(at as usize) else {
                return false;
            };
            let index = RuleIndex(at);
            match self.document_interest(index, rule, trail, facts) {
                DocumentInterest::Yes => return true,
                DocumentInterest::No => at = rule.end.0.max(at + 1),
                DocumentInterest::InChildren => at += 1,
            }
        }
        false
    }

    fn document_interest(
        &self,
        at: RuleIndex,
        rule: &Rule,
        trail: &Trail,
        facts: &Facts<'_>,
    ) -> DocumentInterest {
        if !self.acts_on_document(at, rule) {
            return DocumentInterest::No;
        }
        match (trail.state(at), rule.mode) {
            // What stands in shadow has no state here; what contradicts its condition already will do so later.
            (_, EnforcementMode::Shadow) | (RuleState::Pending, EnforcementMode::Enforce) => {
                match self.evaluate_rule(rule, facts) {
                    Truth::No => DocumentInterest::No,
                    Truth::Yes | Truth::Unknown => DocumentInterest::Yes,
                }
            }
            (RuleState::Matched, EnforcementMode::Enforce)
                if matches!(rule.body, RuleBody::Group(_)) =>
            {
                DocumentInterest::InChildren
            }
            (
                RuleState::Matched | RuleState::NoMatch | RuleState::Skipped | RuleState::Undecided,
                _,
            ) => DocumentInterest::No,
            (RuleState::Pending, EnforcementMode::Disabled) => DocumentInterest::No,
        }
    }

    /// Whether it, or a rule in shadow that it contains, could do something at the document stage.
    fn acts_on_document(&self, at: RuleIndex, rule: &Rule) -> bool {
        let acts = |rule: &Rule| rule.active_stages.contains(PolicyStage::Document);
        let in_it = |root: &RuleIndex| at < *root && *root < rule.end;
        let of_shadow = || {
            self.shadow_rules
                .iter()
                .filter(|root| in_it(root))
                .filter_map(|root| self.rule(*root))
        };
        rule.mode != EnforcementMode::Disabled && (acts(rule) || of_shadow().any(acts))
    }
}

/// Whether the document stage still has something to hear from a rule.
enum DocumentInterest {
    /// It does.
    Yes,
    /// Neither from it nor from one in it.
    No,
    /// Perhaps from one in it.
    InChildren,
}

fn is_inspectable(method: &str, response: &ResponseFacts<'_>) -> bool {
    method == "GET" && response.is_text() && response.is_success_with_content()
}

//! Selection of the documents that must be read: those that a rule or an option may still depend
//! on.

use crate::policy::Policy;
use crate::policy::condition::Truth;
use crate::policy::fact::{Fact, Facts, ResponseFacts};
use crate::policy::index::Candidates;
use crate::policy::options::checks::{self, CheckAction};
use crate::policy::options::schema;
use crate::policy::rule::{EnforcementMode, PolicyStage, Rule, RuleBody, RuleIndex};
use crate::policy::space::RuleRange;
use crate::policy::trail::{RuleState, Trail};

/// The parts of documents that a policy needs, known when it is loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DocumentNeeds {
    /// `true` if a rule may take effect at the document stage, including shadow rules.
    pub rules: bool,
    /// `true` if `noindex` or `noncanonical` is set to a value other than `pass` anywhere, or
    /// `duplicate` to `links`.
    pub checks: bool,
    /// `true` if `noindex` or `duplicate` is set to `links` anywhere.
    pub links: bool,
    /// `true` if a rule names `body_prefix`, so that the text is read in addition to the head.
    pub body_prefix: bool,
}

impl Policy {
    /// The parts of documents that the policy needs.
    pub fn document_needs(&self) -> DocumentNeeds {
        self.document_needs
    }

    /// Returns `true` if the document of a response that passed the response stage has to be read:
    /// its type can be inspected, and a rule or an option depends on it.
    pub fn needs_document(&self, trail: &Trail, facts: &Facts<'_>) -> bool {
        self.trail_needs_document(trail, facts)
            || self.document_needs.rules && self.any_reading_needs_document(facts)
    }

    pub(super) fn trail_needs_document(&self, trail: &Trail, facts: &Facts<'_>) -> bool {
        let Fact::Known(response) = facts.response else {
            return false;
        };
        let has_use = self.document_needs.rules || self.document_needs.checks;
        has_use
            && is_inspectable(facts.method, &response)
            && (self.has_document_check(trail) || self.any_rule_needs_document(trail, facts))
    }

    /// Returns `true` for a GET with a 2xx and content in HTML or text. A response without a type
    /// may be either.
    pub(super) fn runs_document_stage(&self, facts: &Facts<'_>) -> bool {
        let (Fact::Known(response), Fact::Known(_)) = (facts.response, facts.document) else {
            return false;
        };
        is_inspectable(facts.method, &response)
    }

    fn has_document_check(&self, trail: &Trail) -> bool {
        self.document_needs.checks
            && ([schema::NOINDEX, schema::NONCANONICAL]
                .into_iter()
                .any(|index| checks::read_action(self, trail, index) != CheckAction::Pass)
                // The document also decides if its links may be followed.
                || checks::read_action(self, trail, schema::DUPLICATE) == CheckAction::Links)
    }

    fn any_rule_needs_document(&self, trail: &Trail, facts: &Facts<'_>) -> bool {
        if !self.document_needs.rules {
            return false;
        }
        let space_rules = trail
            .space()
            .and_then(|space| self.spaces.get(space))
            .map(|space| space.rules);
        [Some(self.spaces.document_rules), space_rules]
            .into_iter()
            .flatten()
            .any(|RuleRange { from, to }| {
                let mut candidates =
                    Candidates::new(self, PolicyStage::Document, facts, trail.every_rule);
                let list = (RuleIndex(from), RuleIndex(to));
                self.list_needs_document(&mut candidates, list, trail, facts)
            })
    }

    fn list_needs_document(
        &self,
        candidates: &mut Candidates<'_>,
        (from, to): (RuleIndex, RuleIndex),
        trail: &Trail,
        facts: &Facts<'_>,
    ) -> bool {
        let list = candidates.list(from, to);
        let mut next = from;
        while let Some((at, rule)) = candidates.next(list, next) {
            next = rule.end;
            let needs = match self.document_interest(at, rule, trail, facts) {
                DocumentInterest::Yes => true,
                DocumentInterest::No => false,
                DocumentInterest::InChildren => {
                    let children = (RuleIndex(at.0 + 1), rule.end);
                    self.list_needs_document(candidates, children, trail, facts)
                }
            };
            if needs {
                return true;
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
            // Shadow rules have no state in this trail. A condition that is false now stays false.
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

    /// Returns `true` if the rule, or a shadow rule in it, may take effect at the document stage.
    fn acts_on_document(&self, at: RuleIndex, rule: &Rule) -> bool {
        rule.mode != EnforcementMode::Disabled
            && (rule.active_stages.contains(PolicyStage::Document)
                || self
                    .shadow_rules
                    .iter()
                    .filter(|root| at < **root && **root < rule.end)
                    .filter_map(|root| self.rule(*root))
                    .any(|rule| rule.active_stages.contains(PolicyStage::Document)))
    }
}

/// The need of a rule for the document.
enum DocumentInterest {
    /// The rule needs it.
    Yes,
    /// Neither the rule nor its children need it.
    No,
    /// The rule does not need it, but its children may.
    InChildren,
}

fn is_inspectable(method: &str, response: &ResponseFacts<'_>) -> bool {
    method == "GET" && response.is_text() && response.is_success_with_content()
}

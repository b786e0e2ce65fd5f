//! Which documents are read: only those of which a rule or an option still waits to hear something.

use crate::policy::Policy;
use crate::policy::condition::Truth;
use crate::policy::fact::{Fact, Facts, ResponseFacts};
use crate::policy::options::checks::{self, Check};
use crate::policy::options::{Slot, schema};
use crate::policy::rule::{Mode, PolicyStage, Rule, RuleBody, RuleIndex};
use crate::policy::space::RuleRange;
use crate::policy::trail::{State, Trail};

/// What a policy asks of documents, known when it is loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OfDocuments {
    /// A rule could do something at the document stage, live or in shadow.
    pub rules: bool,
    /// `noindex` or `noncanonical` is set to more than `pass` somewhere.
    pub checks: bool,
    /// A rule names `body_prefix`: the text is read, and not only the head.
    pub body_prefix: bool,
}

impl Policy {
    /// What it asks of documents, of whatever answer.
    pub fn documents(&self) -> OfDocuments {
        self.documents
    }

    /// Whether the document of an answer that passed the response stage has to be read: it is of a kind that is, and
    /// something still waits for it.
    pub fn awaits_document(&self, trail: &Trail, facts: &Facts<'_>) -> bool {
        let Fact::Known(response) = facts.response else {
            return false;
        };
        let asks = self.documents.rules || self.documents.checks;
        asks && is_read(facts.method, &response)
            && (self.checks_document(trail) || self.some_rule_waits(trail, facts))
    }

    /// The document stage runs for a GET answered with 2xx and content, in HTML or text; an answer that does not tell its
    /// type may be either.
    pub(super) fn reads_document(&self, facts: &Facts<'_>) -> bool {
        let (Fact::Known(response), Fact::Known(_)) = (facts.response, facts.document) else {
            return false;
        };
        is_read(facts.method, &response)
    }

    fn checks_document(&self, trail: &Trail) -> bool {
        let checks = |slot: Slot| checks::of(self, trail, slot) != Check::Pass;
        self.documents.checks && (checks(schema::NOINDEX) || checks(schema::NONCANONICAL))
    }

    fn some_rule_waits(&self, trail: &Trail, facts: &Facts<'_>) -> bool {
        if !self.documents.rules {
            return false;
        }
        let of_space = trail
            .space()
            .and_then(|space| self.spaces.get(space))
            .map(|space| space.rules);
        let stretches = [Some(self.spaces.document), of_space];
        stretches
            .into_iter()
            .flatten()
            .any(|range| self.waits_in(range, trail, facts))
    }

    fn waits_in(
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
            match self.waits(index, rule, trail, facts) {
                Waiting::Yes => return true,
                Waiting::No => at = rule.end.0.max(at + 1),
                Waiting::Within => at += 1,
            }
        }
        false
    }

    fn waits(&self, at: RuleIndex, rule: &Rule, trail: &Trail, facts: &Facts<'_>) -> Waiting {
        if !self.has_part(at, rule) {
            return Waiting::No;
        }
        match (trail.state(at), rule.mode) {
            // What stands in shadow has no state here; what contradicts its condition already will do so later.
            (_, Mode::Shadow) | (State::Pending, Mode::Enforce) => {
                match self.applies(rule, facts) {
                    Truth::No => Waiting::No,
                    Truth::Yes | Truth::Unknown => Waiting::Yes,
                }
            }
            (State::Matched, Mode::Enforce) if matches!(rule.body, RuleBody::Group(_)) => {
                Waiting::Within
            }
            (State::Matched | State::NoMatch | State::Cut | State::Undecided, _) => Waiting::No,
            (State::Pending, Mode::Disabled) => Waiting::No,
        }
    }

    /// Whether it, or a rule in shadow that it contains, could do something at the document stage.
    fn has_part(&self, at: RuleIndex, rule: &Rule) -> bool {
        let acts = |rule: &Rule| rule.active.contains(PolicyStage::Document);
        let in_it = |root: &RuleIndex| at < *root && *root < rule.end;
        let of_shadow = || {
            self.shadows
                .iter()
                .filter(|root| in_it(root))
                .filter_map(|root| self.rule(*root))
        };
        rule.mode != Mode::Disabled && (acts(rule) || of_shadow().any(acts))
    }
}

/// Whether the document stage still has something to hear from a rule.
enum Waiting {
    /// It does.
    Yes,
    /// Neither from it nor from one in it.
    No,
    /// Perhaps from one in it.
    Within,
}

fn is_read(method: &str, response: &ResponseFacts<'_>) -> bool {
    method == "GET" && response.is_text() && response.is_success_with_content()
}

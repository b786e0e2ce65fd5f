//! Codes of refused URLs that are in the ledger: OmniFind's 760 and 761.
//!
//! A code does not change the verdict. It says whether the URL leaves the index, or stays because
//! another crawler may have it.

use super::walk::{RuleSelection, Walk};
use super::{Cause, Decision, Verdict};
use crate::model::disposition::Disposition;
use crate::model::intent::Intent;
use crate::model::reason::Reason;
use crate::policy::Policy;
use crate::policy::fact::{EvaluationTarget, Fact, Facts, LedgerPresence};
use crate::policy::options::schema;
use crate::policy::rule::{PolicyStage, RuleBody, RuleClass, RuleIndex};
use crate::policy::space::{GlobalSpace, RuleRange, SpaceIndex};
use crate::policy::trail::Trail;

/// The code of a refused URL that is in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExclusionCode {
    /// 760: excluded; to be removed from the index.
    Remove,
    /// 761: excluded here, but in another crawler's space; kept in the index.
    Keep,
}

impl ExclusionCode {
    /// The value of `Crawl-Code`.
    pub fn number(self) -> u16 {
        match self {
            Self::Remove => 760,
            Self::Keep => 761,
        }
    }

    /// The intent of the refusal.
    pub fn intent(self) -> Intent {
        match self {
            Self::Remove => Intent::Gone,
            Self::Keep => Intent::Keep,
        }
    }
}

/// A code and its cause in the global space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exclusion {
    pub code: ExclusionCode,
    /// The rule of the global space that applied, if there was one.
    pub global_rule: Option<RuleIndex>,
}

impl Policy {
    /// Returns the code for a decision that refuses a URL in the ledger; `None` if nothing is
    /// refused by a rule or by default, the URL is not in the ledger, or the policy has no spaces.
    ///
    /// The facts are all known ones, including the address: it counts even if an earlier stage
    /// refused.
    pub fn exclusion(
        &self,
        trail: &Trail,
        decision: &Decision,
        facts: &Facts<'_>,
    ) -> Option<Exclusion> {
        self.find_exclusion(trail, decision, facts)
            .map(|(exclusion, _)| exclusion)
    }

    /// Like [`Self::exclusion`], and records the states of the global space's rules in the trail.
    pub(super) fn record_exclusion(
        &self,
        trail: &mut Trail,
        decision: &Decision,
        facts: &Facts<'_>,
    ) -> Option<Exclusion> {
        let (exclusion, global_trail) = self.find_exclusion(trail, decision, facts)?;
        if let (Some(global_trail), GlobalSpace::Rules(range)) =
            (global_trail, self.spaces.global())
        {
            trail.copy_states(&global_trail, range);
        }
        Some(exclusion)
    }

    fn find_exclusion(
        &self,
        trail: &Trail,
        decision: &Decision,
        facts: &Facts<'_>,
    ) -> Option<(Exclusion, Option<Trail>)> {
        let refused = matches!(
            decision.verdict,
            Verdict::Reject(Reason::Rule | Reason::Default)
        );
        let EvaluationTarget::Url(_) = facts.target else {
            return None;
        };
        if !refused || facts.in_ledger == LedgerPresence::Absent || self.spaces.all().is_empty() {
            return None;
        }
        let removed = Exclusion {
            code: ExclusionCode::Remove,
            global_rule: None,
        };
        if self.refusing_class(trail, decision) == RuleClass::Other
            || self.is_refused_by_address(trail, facts)
        {
            return Some((removed, None));
        }
        Some(match self.spaces.global() {
            GlobalSpace::Undefined => (removed, None),
            GlobalSpace::Union if self.is_allowed_by_another_space(trail, facts) => (
                Exclusion {
                    code: ExclusionCode::Keep,
                    global_rule: None,
                },
                None,
            ),
            GlobalSpace::Union => (removed, None),
            GlobalSpace::Rules(range) => self.decide_by_global_space(range, facts),
        })
    }

    /// Returns the class of the refusing rule: if filters matched, `Other` if one of them is not a
    /// domain rule; else the class of the rule that set the disposition. The default counts as a
    /// domain rule.
    fn refusing_class(&self, trail: &Trail, decision: &Decision) -> RuleClass {
        if trail.first_filter.is_some() {
            return self.strictest_class(self.matched_filters(trail));
        }
        let by_disposition = trail.disposition(self).rejects();
        match (by_disposition, decision.cause) {
            (true, Cause::Default) => RuleClass::Domain,
            (true, Cause::Rule(rule)) => self.strictest_class([rule]),
            // `html_only` refuses by the type of the response.
            (false, Cause::Rule(_) | Cause::Default) => RuleClass::Other,
        }
    }

    fn matched_filters(&self, trail: &Trail) -> impl Iterator<Item = RuleIndex> {
        trail.matched_rules().iter().copied().filter(|rule| {
            match self.rule(*rule).map(|rule| &rule.body) {
                Some(RuleBody::Filter(_)) => true,
                Some(RuleBody::Group(_)) | None => false,
            }
        })
    }

    fn strictest_class(&self, rules: impl IntoIterator<Item = RuleIndex>) -> RuleClass {
        let all_domain = rules
            .into_iter()
            .all(|rule| self.rule(rule).map(|rule| rule.class) == Some(RuleClass::Domain));
        if all_domain {
            RuleClass::Domain
        } else {
            RuleClass::Other
        }
    }

    /// Returns `true` if an address rule refuses, too, what only domain rules have refused so far.
    /// Address rules are tested before the code is chosen, although the request did not reach them.
    fn is_refused_by_address(&self, trail: &Trail, facts: &Facts<'_>) -> bool {
        if facts.address == Fact::Unknown || !self.active_stages.contains(PolicyStage::Destination)
        {
            return false;
        }
        let connected = Facts {
            response: Fact::Unknown,
            document: Fact::Unknown,
            ..*facts
        };
        let mut at_destination = trail.clone();
        Walk::new(
            self,
            &connected,
            PolicyStage::Destination,
            &mut at_destination,
        )
        .run();
        if self.strictest_class(self.matched_filters(&at_destination)) == RuleClass::Other {
            return true;
        }
        let cause = self.cause_of(&at_destination, schema::DISPOSITION);
        let rejects = cause != self.cause_of(trail, schema::DISPOSITION)
            && at_destination.disposition(self).rejects();
        let Cause::Rule(rule) = cause else {
            return false;
        };
        rejects && self.strictest_class([rule]) == RuleClass::Other
    }

    /// In the global space the first matching rule decides; without a match the URL is removed.
    fn decide_by_global_space(
        &self,
        range: RuleRange,
        facts: &Facts<'_>,
    ) -> (Exclusion, Option<Trail>) {
        let mut trail = Trail::new(self, facts.crawler);
        Walk::new(self, facts, PolicyStage::Request, &mut trail).run_first_match(range);
        let set_by = self.cause_of(&trail, schema::DISPOSITION);
        let allows =
            matches!(set_by, Cause::Rule(_)) && trail.disposition(self) == Disposition::Allow;
        let code = if allows && trail.first_filter.is_none() {
            ExclusionCode::Keep
        } else {
            ExclusionCode::Remove
        };
        (
            Exclusion {
                code,
                global_rule: trail.matched_rules().first().copied(),
            },
            Some(trail),
        )
    }

    /// Returns `true` if the document's domain rules and those of another space allow the URL.
    fn is_allowed_by_another_space(&self, trail: &Trail, facts: &Facts<'_>) -> bool {
        let count = u16::try_from(self.spaces.all().len()).unwrap_or(u16::MAX);
        let mut others = (0..count)
            .map(SpaceIndex)
            .filter(|space| Some(*space) != trail.space());
        others.any(|space| {
            let mut trail = Trail::for_space(self, Some(space));
            Walk::new(self, facts, PolicyStage::Request, &mut trail)
                .with_selection(RuleSelection::Domain)
                .run();
            trail.first_filter.is_none() && !trail.disposition(self).rejects()
        })
    }
}

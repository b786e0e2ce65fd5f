//! What becomes of a refused URL that the ledger has: OmniFind's 760 and 761 (policy.md section 6).
//!
//! It changes no verdict: it says whether the URL leaves the index, or stays since another crawler may have it.

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

/// The code of a refused URL of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExclusionCode {
    /// 760: excluded, and to be removed from the index.
    Remove,
    /// 761: excluded here, and kept: it is in another crawler's space.
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

    /// What it means to the crawler.
    pub fn intent(self) -> Intent {
        match self {
            Self::Remove => Intent::Gone,
            Self::Keep => Intent::Keep,
        }
    }
}

/// The code, and what in the global space chose it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exclusion {
    /// The code.
    pub code: ExclusionCode,
    /// The rule of the global space that applied, if that was asked and one did.
    pub global_rule: Option<RuleIndex>,
}

impl Policy {
    /// The code of a decision that refuses a URL of the ledger; none where nothing is refused by rule or default, the
    /// ledger does not have the URL, or the policy has no spaces.
    ///
    /// The facts are all that are known, the address included: it counts although an earlier stage refused.
    pub fn exclusion(
        &self,
        trail: &Trail,
        decision: &Decision,
        facts: &Facts<'_>,
    ) -> Option<Exclusion> {
        self.find_exclusion(trail, decision, facts)
            .map(|(exclusion, _)| exclusion)
    }

    /// The same; what the rules of the global space did is noted with what the others did.
    pub(super) fn record_exclusion(
        &self,
        trail: &mut Trail,
        decision: &Decision,
        facts: &Facts<'_>,
    ) -> Option<Exclusion> {
        let (exclusion, asked) = self.find_exclusion(trail, decision, facts)?;
        if let (Some(asked), GlobalSpace::Rules(range)) = (asked, self.spaces.global()) {
            trail.copy_states(&asked, range);
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

    /// Which kind of rule refuses: of filters that hit any other than a domain rule counts, and without one of them what
    /// set the disposition. The default counts as a domain rule.
    fn refusing_class(&self, trail: &Trail, decision: &Decision) -> RuleClass {
        if trail.first_filter.is_some() {
            return self.strictest_class(self.matched_filters(trail));
        }
        let by_disposition = trail.disposition(self).rejects();
        match (by_disposition, decision.cause) {
            (true, Cause::Default) => RuleClass::Domain,
            (true, Cause::Rule(rule)) => self.strictest_class([rule]),
            // `html_only` refuses by what the answer is.
            (false, Cause::Rule(_) | Cause::Default) => RuleClass::Other,
        }
    }

    fn matched_filters(&self, trail: &Trail) -> impl Iterator<Item = RuleIndex> {
        let is_filter = |rule: &RuleIndex| {
            let rule = self.rules.get(rule.0 as usize);
            matches!(rule.map(|rule| &rule.body), Some(RuleBody::Filter(_)))
        };
        trail.matched_rules().iter().copied().filter(is_filter)
    }

    fn strictest_class(&self, rules: impl IntoIterator<Item = RuleIndex>) -> RuleClass {
        let class = |rule: RuleIndex| self.rules.get(rule.0 as usize).map(|rule| rule.class);
        let all_domain = rules
            .into_iter()
            .all(|rule| class(rule) == Some(RuleClass::Domain));
        if all_domain {
            RuleClass::Domain
        } else {
            RuleClass::Other
        }
    }

    /// Whether address rules refuse as well what domain rules alone have refused: they are tested before the code is
    /// chosen, although the request got no further.
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
        let mut tested = trail.clone();
        Walk::new(self, &connected, PolicyStage::Destination, &mut tested).run();
        if self.strictest_class(self.matched_filters(&tested)) == RuleClass::Other {
            return true;
        }
        let cause = self.cause_of(&tested, schema::DISPOSITION);
        let disposed = cause != self.cause_of(trail, schema::DISPOSITION)
            && tested.disposition(self).rejects();
        let Cause::Rule(rule) = cause else {
            return false;
        };
        disposed && self.strictest_class([rule]) == RuleClass::Other
    }

    /// Of the global space the first rule that applies decides, and no rule means no.
    fn decide_by_global_space(
        &self,
        range: RuleRange,
        facts: &Facts<'_>,
    ) -> (Exclusion, Option<Trail>) {
        let mut trail = Trail::new(self, facts.crawler);
        Walk::new(self, facts, PolicyStage::Request, &mut trail).run_first_match(range);
        let global = trail.matched_rules().first().copied();
        let set_by = self.cause_of(&trail, schema::DISPOSITION);
        let allows =
            matches!(set_by, Cause::Rule(_)) && trail.disposition(self) == Disposition::Allow;
        let keeps = allows && trail.first_filter.is_none();
        let code = if keeps {
            ExclusionCode::Keep
        } else {
            ExclusionCode::Remove
        };
        (
            Exclusion {
                code,
                global_rule: global,
            },
            Some(trail),
        )
    }

    /// Whether the document's domain rules and those of some other space allow the URL.
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

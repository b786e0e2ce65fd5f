//! What becomes of a refused URL that the ledger has: OmniFind's 760 and 761 (policy.md section 6).
//!
//! It changes no verdict: it says whether the URL leaves the index, or stays since another crawler may have it.

use super::walk::{Part, Walk};
use super::{Cause, Decision, Verdict};
use crate::policy::Policy;
use crate::policy::fact::{Fact, Facts, InLedger, Subject};
use crate::policy::options::schema;
use crate::policy::rule::{PolicyStage, RuleBody, RuleClass, RuleIndex};
use crate::policy::space::{GlobalSpace, RuleRange, SpaceIndex};
use crate::policy::trail::Trail;
use crate::vocab::disposition::Disposition;
use crate::vocab::intent::Intent;
use crate::vocab::reason::Reason;

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
    pub global: Option<RuleIndex>,
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
        self.excluded(trail, decision, facts)
            .map(|(exclusion, _)| exclusion)
    }

    /// The same; what the rules of the global space did is noted with what the others did.
    pub(super) fn note_exclusion(
        &self,
        trail: &mut Trail,
        decision: &Decision,
        facts: &Facts<'_>,
    ) -> Option<Exclusion> {
        let (exclusion, asked) = self.excluded(trail, decision, facts)?;
        if let (Some(asked), GlobalSpace::Rules(range)) = (asked, self.spaces.global()) {
            trail.adopt(&asked, range);
        }
        Some(exclusion)
    }

    fn excluded(
        &self,
        trail: &Trail,
        decision: &Decision,
        facts: &Facts<'_>,
    ) -> Option<(Exclusion, Option<Trail>)> {
        let refused = matches!(
            decision.verdict,
            Verdict::Reject(Reason::Rule | Reason::Default)
        );
        let Subject::Url(_) = facts.subject else {
            return None;
        };
        if !refused || facts.in_ledger == InLedger::No || self.spaces.all().is_empty() {
            return None;
        }
        let removed = Exclusion {
            code: ExclusionCode::Remove,
            global: None,
        };
        if self.refused_by(trail, decision) == RuleClass::Other
            || self.refused_by_address(trail, facts)
        {
            return Some((removed, None));
        }
        Some(match self.spaces.global() {
            GlobalSpace::Undefined => (removed, None),
            GlobalSpace::Union if self.another_space_allows(trail, facts) => (
                Exclusion {
                    code: ExclusionCode::Keep,
                    global: None,
                },
                None,
            ),
            GlobalSpace::Union => (removed, None),
            GlobalSpace::Rules(range) => self.by_global_space(range, facts),
        })
    }

    /// Which kind of rule refuses: of filters that hit any other than a domain rule counts, and without one of them what
    /// set the disposition. The default counts as a domain rule.
    fn refused_by(&self, trail: &Trail, decision: &Decision) -> RuleClass {
        if trail.filtered.is_some() {
            return self.worst(self.hits(trail));
        }
        let by_disposition = trail.disposition(self).rejects();
        match (by_disposition, decision.cause) {
            (true, Cause::Default) => RuleClass::Domain,
            (true, Cause::Rule(rule)) => self.worst([rule]),
            // `html_only` refuses by what the answer is.
            (false, Cause::Rule(_) | Cause::Default) => RuleClass::Other,
        }
    }

    fn hits(&self, trail: &Trail) -> impl Iterator<Item = RuleIndex> {
        let is_filter = |rule: &RuleIndex| {
            let rule = self.rules.get(rule.0 as usize);
            matches!(rule.map(|rule| &rule.body), Some(RuleBody::Filter(_)))
        };
        trail.matched().iter().copied().filter(is_filter)
    }

    fn worst(&self, rules: impl IntoIterator<Item = RuleIndex>) -> RuleClass {
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
    fn refused_by_address(&self, trail: &Trail, facts: &Facts<'_>) -> bool {
        if facts.address == Fact::Unknown || !self.stages.contains(PolicyStage::Destination) {
            return false;
        }
        let connected = Facts {
            response: Fact::Unknown,
            document: Fact::Unknown,
            ..*facts
        };
        let mut tested = trail.clone();
        Walk::new(self, &connected, PolicyStage::Destination, &mut tested).run();
        if self.worst(self.hits(&tested)) == RuleClass::Other {
            return true;
        }
        let cause = self.cause_of(&tested, schema::DISPOSITION);
        let disposed = cause != self.cause_of(trail, schema::DISPOSITION)
            && tested.disposition(self).rejects();
        let Cause::Rule(rule) = cause else {
            return false;
        };
        disposed && self.worst([rule]) == RuleClass::Other
    }

    /// Of the global space the first rule that applies decides, and no rule means no.
    fn by_global_space(&self, range: RuleRange, facts: &Facts<'_>) -> (Exclusion, Option<Trail>) {
        let mut trail = Trail::new(self, facts.crawler);
        Walk::new(self, facts, PolicyStage::Request, &mut trail).choose(range);
        let global = trail.matched().first().copied();
        let set_by = self.cause_of(&trail, schema::DISPOSITION);
        let allows =
            matches!(set_by, Cause::Rule(_)) && trail.disposition(self) == Disposition::Allow;
        let keeps = allows && trail.filtered.is_none();
        let code = if keeps {
            ExclusionCode::Keep
        } else {
            ExclusionCode::Remove
        };
        (Exclusion { code, global }, Some(trail))
    }

    /// Whether the document's domain rules and those of some other space allow the URL.
    fn another_space_allows(&self, trail: &Trail, facts: &Facts<'_>) -> bool {
        let count = u16::try_from(self.spaces.all().len()).unwrap_or(u16::MAX);
        let mut others = (0..count)
            .map(SpaceIndex)
            .filter(|space| Some(*space) != trail.space());
        others.any(|space| {
            let mut trail = Trail::in_space(self, Some(space));
            Walk::new(self, facts, PolicyStage::Request, &mut trail)
                .with(Part::Domain)
                .run();
            trail.filtered.is_none() && !trail.disposition(self).rejects()
        })
    }
}

//! Rejection of URLs that lax servers read as URLs that the policy rejects.
//!
//! Only a URL that is admitted in its canonical form gets here, so that a rejection of that form
//! keeps its own rule and intent. Nearly no URL has other readings, so nothing is kept between
//! stages: a reading is evaluated from the first stage each time.

use crate::model::reason::Reason;
use crate::policy::Policy;
use crate::policy::fact::{EvaluationTarget, Facts};
use crate::policy::rule::{PolicyStage, RuleIndex};
use crate::policy::trail::Trail;
use crate::urls::target::UrlTarget;

use super::{Decision, Verdict, facts_at};

impl Policy {
    /// Rejects an admitted URL if a reading of it is rejected at a stage.
    pub(super) fn rejection_by_reading(
        &self,
        shadow: Option<RuleIndex>,
        stage: PolicyStage,
        facts: &Facts<'_>,
    ) -> Option<Decision> {
        let target = url_with_readings(facts)?;
        target.readings().into_iter().find_map(|(reading, url)| {
            let facts = reading_facts(facts, target, &url);
            let (_, decision) = self.decide_reading(shadow, stage, &facts);
            decision.rejects().then_some(Decision {
                verdict: Verdict::Reject(Reason::AmbiguousUrl),
                stage: stage.to_stage(),
                reading: Some(reading),
                ..decision
            })
        })
    }

    /// Returns `true` if a rule may reject a reading of the URL by the response's document.
    pub(super) fn any_reading_needs_document(&self, facts: &Facts<'_>) -> bool {
        let Some(target) = url_with_readings(facts) else {
            return false;
        };
        target.readings().iter().any(|(_, url)| {
            let facts = reading_facts(facts, target, url);
            let (trail, decision) = self.decide_reading(None, PolicyStage::Response, &facts);
            !decision.rejects() && self.trail_needs_document(&trail, &facts)
        })
    }

    /// Evaluates the stages up to `last`, of which the facts must be known.
    fn decide_reading(
        &self,
        shadow: Option<RuleIndex>,
        last: PolicyStage,
        facts: &Facts<'_>,
    ) -> (Trail, Decision) {
        let mut trail = Trail::new(self, facts.crawler);
        let mut decision = self.decide_stage_with_shadow(
            shadow,
            &mut trail,
            PolicyStage::Request,
            &facts_at(PolicyStage::Request, facts),
        );
        for stage in PolicyStage::ALL {
            if stage > PolicyStage::Request && stage <= last && !decision.rejects() {
                let facts = facts_at(stage, facts);
                decision = self.decide_stage_with_shadow(shadow, &mut trail, stage, &facts);
            }
        }
        (trail, decision)
    }
}

fn url_with_readings<'a>(facts: &Facts<'a>) -> Option<&'a UrlTarget> {
    match facts.target {
        EvaluationTarget::Url(target) => Some(target).filter(|target| target.has_readings()),
        EvaluationTarget::Tunnel(_) => None,
    }
}

fn reading_facts<'a>(
    facts: &Facts<'a>,
    target: &'a UrlTarget,
    reading: &'a UrlTarget,
) -> Facts<'a> {
    Facts {
        target: EvaluationTarget::Url(reading),
        read_from: Some(target),
        ..*facts
    }
}

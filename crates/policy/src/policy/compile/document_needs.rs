//! What a policy asks of documents: one that asks for nothing spares each answer the question.

use crate::policy::Policy;
use crate::policy::decide::DocumentNeeds;
use crate::policy::field::Field;
use crate::policy::options::schema;
use crate::policy::rule::{EnforcementMode, PolicyStage};

/// What rules, those in shadow too, and options of a policy ask of documents.
pub(super) fn collect(policy: &Policy) -> DocumentNeeds {
    let taking_part = || {
        policy
            .rules
            .iter()
            .filter(|rule| rule.mode != EnforcementMode::Disabled)
    };
    DocumentNeeds {
        rules: taking_part().any(|rule| rule.active_stages.contains(PolicyStage::Document)),
        checks: policy.ever_checks(schema::NOINDEX) || policy.ever_checks(schema::NONCANONICAL),
        body_prefix: taking_part()
            .filter_map(|rule| rule.condition())
            .any(|condition| {
                let mut names = false;
                condition.for_each_field(&mut |field| names |= *field == Field::BodyPrefix);
                names
            }),
    }
}

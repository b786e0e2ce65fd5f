//! What a policy asks of documents: one that asks for nothing spares each answer the question.

use crate::policy::Policy;
use crate::policy::decide::OfDocuments;
use crate::policy::field::Field;
use crate::policy::options::schema;
use crate::policy::rule::{Mode, PolicyStage};

/// What rules, those in shadow too, and options of a policy ask of documents.
pub(super) fn asked_of(policy: &Policy) -> OfDocuments {
    let taking_part = || {
        policy
            .rules
            .iter()
            .filter(|rule| rule.mode != Mode::Disabled)
    };
    OfDocuments {
        rules: taking_part().any(|rule| rule.active.contains(PolicyStage::Document)),
        checks: policy.ever_checks(schema::NOINDEX) || policy.ever_checks(schema::NONCANONICAL),
        body_prefix: taking_part()
            .filter_map(|rule| rule.condition())
            .any(|condition| {
                let mut names = false;
                condition.each_field(&mut |field| names |= *field == Field::BodyPrefix);
                names
            }),
    }
}

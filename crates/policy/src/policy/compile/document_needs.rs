//! The parts of a document that a policy needs. Responses skip whatever no rule and no option
//! needs.

use crate::policy::Policy;
use crate::policy::decide::DocumentNeeds;
use crate::policy::field::Field;
use crate::policy::options::schema;
use crate::policy::rule::{EnforcementMode, PolicyStage};

/// Collects the needs of rules, including those in shadow mode, and of options.
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

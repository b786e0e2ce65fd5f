//! Detects if a policy needs the ledger. Without the need, requests are neither looked up nor
//! recorded.

use crate::policy::Policy;
use crate::policy::field::Field;
use crate::policy::options::recrawl::{AFTER_ERROR, MIN_INTERVAL};
use crate::policy::options::schema::{self, DUPLICATE, MAX_DEPTH, UNMODIFIED};
use crate::policy::options::{OptionSlot, OptionValue};

/// Returns `true` if a rule, including those in shadow mode, an option or a condition uses the
/// ledger.
pub(super) fn needs_ledger(policy: &Policy) -> bool {
    let any = |slot: OptionSlot| {
        policy
            .possible_values(slot)
            .any(|(_, value)| *value != OptionValue::None)
    };
    !policy.spaces.all().is_empty()
        || [
            MIN_INTERVAL,
            AFTER_ERROR,
            MAX_DEPTH,
            schema::BUDGET_NEW_URLS,
        ]
        .into_iter()
        .any(any)
        || compares_content(policy)
        || tests_depth(policy)
}

/// Returns `true` if documents are compared with earlier ones.
pub(super) fn compares_content(policy: &Policy) -> bool {
    policy.ever_checks(UNMODIFIED) || policy.ever_checks(DUPLICATE)
}

fn tests_depth(policy: &Policy) -> bool {
    let mut asked = false;
    for condition in policy
        .rules
        .iter()
        .filter_map(crate::policy::rule::Rule::condition)
    {
        condition.for_each_field(&mut |field| asked |= *field == Field::Depth);
    }
    asked
}

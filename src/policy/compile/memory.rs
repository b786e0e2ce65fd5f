//! Whether a policy needs the ledger: one that does not spares each request the look-up and the note.

use crate::policy::Policy;
use crate::policy::field::Field;
use crate::policy::options::recrawl::{AFTER_ERROR, MIN_INTERVAL};
use crate::policy::options::schema::{self, DUPLICATE, MAX_DEPTH, UNMODIFIED};
use crate::policy::options::{Slot, Value};

/// What no rule and no option sets, and no condition asks for, nobody needs to remember. Rules in shadow count too.
pub(super) fn needed(policy: &Policy) -> bool {
    let any = |slot: Slot| {
        policy
            .values_of(slot)
            .any(|(_, value)| *value != Value::None)
    };
    !policy.spaces.all().is_empty()
        || [MIN_INTERVAL, AFTER_ERROR, MAX_DEPTH, schema::NEW_URLS]
            .into_iter()
            .any(any)
        || compared(policy)
        || asks_depth(policy)
}

/// Whether documents are told from those before.
pub(super) fn compared(policy: &Policy) -> bool {
    policy.ever_checks(UNMODIFIED) || policy.ever_checks(DUPLICATE)
}

fn asks_depth(policy: &Policy) -> bool {
    let mut asked = false;
    for condition in policy
        .rules
        .iter()
        .filter_map(crate::policy::rule::Rule::condition)
    {
        condition.each_field(&mut |field| asked |= *field == Field::Depth);
    }
    asked
}

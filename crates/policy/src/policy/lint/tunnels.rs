//! Analysis of decisions on tunnels.

use crate::policy::Policy;
use crate::policy::field::Field;
use crate::policy::rule::{EnforcementMode, Rule};

impl Policy {
    /// Returns `true` if every tunnel that is not intercepted gets the same verdict: no enforced
    /// rule names a field that differs between tunnels, such as the host.
    pub fn treats_tunnels_alike(&self) -> bool {
        let mut is_uniform = true;
        let rules = self
            .rules
            .iter()
            .filter(|rule| rule.mode == EnforcementMode::Enforce);
        rules.filter_map(Rule::condition).for_each(|condition| {
            condition.for_each_field(&mut |field| is_uniform &= !distinguishes_tunnels(field));
        });
        is_uniform
    }
}

/// Returns `true` if a field, or the result of a test of it, may differ between two tunnels.
fn distinguishes_tunnels(field: &Field) -> bool {
    field.is_visible_in_tunnels() || matches!(field, Field::Url | Field::AuthorityPathQuery)
}

//! Tunnels: whether a policy can tell one from another.

use crate::policy::Policy;
use crate::policy::field::Field;
use crate::policy::rule::{EnforcementMode, Rule};

impl Policy {
    /// Whether every blind tunnel gets the same verdict: no rule that takes part names anything that a tunnel shows,
    /// such as its host.
    pub fn treats_tunnels_alike(&self) -> bool {
        let mut alike = true;
        let rules = self
            .rules
            .iter()
            .filter(|rule| rule.mode == EnforcementMode::Enforce);
        rules.filter_map(Rule::condition).for_each(|condition| {
            condition.for_each_field(&mut |field| alike &= !distinguishes_tunnels(field));
        });
        alike
    }
}

/// Whether a field could have different values for two tunnels, or a test of it different outcomes.
fn distinguishes_tunnels(field: &Field) -> bool {
    field.is_visible_in_tunnels() || matches!(field, Field::Url | Field::AuthorityPathQuery)
}

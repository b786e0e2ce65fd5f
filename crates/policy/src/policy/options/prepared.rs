//! Values that are derived from an option when a policy is loaded, so that a request only looks
//! them up.

use std::collections::BTreeMap;

use crate::policy::Policy;
use crate::policy::trail::Trail;

use super::{OptionSetter, OptionSlot, OptionValue};

/// The values derived from an option, by the origin of the option's value.
#[derive(Debug)]
pub struct PreparedOption<T> {
    slot: OptionSlot,
    by_setter: BTreeMap<OptionSetter, T>,
}

impl<T> PreparedOption<T> {
    /// Derives the values; `None` if no value of the option yields one.
    pub fn prepare(
        policy: &Policy,
        slot: OptionSlot,
        make: impl Fn(&OptionValue) -> Option<T>,
    ) -> Option<Self> {
        let made = policy
            .possible_values(slot)
            .filter_map(|(by, value)| Some((by, make(value)?)));
        let by: BTreeMap<OptionSetter, T> = made.collect();
        (!by.is_empty()).then_some(Self {
            slot,
            by_setter: by,
        })
    }

    /// Returns the value that applies to a request.
    pub fn current(&self, policy: &Policy, trail: &Trail) -> Option<&T> {
        self.by_setter.get(&trail.set_by(policy, self.slot))
    }

    /// Returns every value that can apply.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.by_setter.values()
    }
}

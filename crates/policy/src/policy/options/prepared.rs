//! What is made of an option's values when a policy is loaded, so that a request only looks up which one holds for it.

use std::collections::BTreeMap;

use crate::policy::Policy;
use crate::policy::trail::Trail;

use super::{OptionSetter, OptionSlot, OptionValue};

/// What becomes of an option, by who set it last.
#[derive(Debug)]
pub struct PreparedOption<T> {
    slot: OptionSlot,
    by_setter: BTreeMap<OptionSetter, T>,
}

impl<T> PreparedOption<T> {
    /// `None` if nobody chooses anything.
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

    /// What whoever set it last chooses.
    pub fn current(&self, policy: &Policy, trail: &Trail) -> Option<&T> {
        self.by_setter.get(&trail.set_by(policy, self.slot))
    }

    /// Everything that could be chosen.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.by_setter.values()
    }
}

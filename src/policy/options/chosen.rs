//! What is made of an option's values when a policy is loaded, so that a request only looks up which one holds for it.

use std::collections::BTreeMap;

use crate::policy::Policy;
use crate::policy::trail::Trail;

use super::{SetBy, Slot, Value};

/// What becomes of an option, by who set it last.
#[derive(Debug)]
pub struct Chosen<T> {
    slot: Slot,
    by: BTreeMap<SetBy, T>,
}

impl<T> Chosen<T> {
    /// `None` if nobody chooses anything.
    pub fn of(policy: &Policy, slot: Slot, make: impl Fn(&Value) -> Option<T>) -> Option<Self> {
        let made = policy
            .values_of(slot)
            .filter_map(|(by, value)| Some((by, make(value)?)));
        let by: BTreeMap<SetBy, T> = made.collect();
        (!by.is_empty()).then_some(Self { slot, by })
    }

    /// What whoever set it last chooses.
    pub fn now(&self, policy: &Policy, trail: &Trail) -> Option<&T> {
        self.by.get(&trail.set_by(policy, self.slot))
    }

    /// Everything that could be chosen.
    pub fn all(&self) -> impl Iterator<Item = &T> {
        self.by.values()
    }
}

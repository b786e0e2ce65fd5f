//! Values that are derived from an option when a policy is loaded, so that a request only looks
//! them up.

use std::collections::BTreeMap;

use crate::policy::Policy;
use crate::policy::trail::Trail;

use super::{OptionSetter, OptionSlot, OptionSources, OptionValue};

/// The values derived from an option, by the origin of the option's value.
#[derive(Debug)]
pub struct PreparedOption<T> {
    slot: OptionSlot,
    by_setter: BTreeMap<OptionSetter, T>,
}

impl<T> PreparedOption<T> {
    /// Derives the values with `make`; `None` if no value of the option yields one.
    pub fn prepare(
        policy: &Policy,
        slot: OptionSlot,
        make: impl Fn(&OptionValue) -> Option<T>,
    ) -> Option<Self> {
        Self::from_sources(policy.option_sources(), slot, make)
    }

    pub(crate) fn from_sources(
        sources: OptionSources<'_>,
        slot: OptionSlot,
        make: impl Fn(&OptionValue) -> Option<T>,
    ) -> Option<Self> {
        let by_setter: BTreeMap<OptionSetter, T> = sources
            .possible_values(slot)
            .filter_map(|(setter, value)| Some((setter, make(value)?)))
            .collect();
        (!by_setter.is_empty()).then_some(Self { slot, by_setter })
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

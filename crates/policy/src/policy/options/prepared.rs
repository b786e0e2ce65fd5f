//! Values that are derived from an option when a policy is loaded, so that a request only looks
//! them up.

use std::collections::BTreeMap;

use crate::policy::Policy;
use crate::policy::trail::Trail;

use super::{OptionIndex, OptionSetter, OptionSources, OptionValue};

/// The values derived from an option, by the origin of the option's value.
#[derive(Debug)]
pub struct PreparedOption<T> {
    index: OptionIndex,
    by_setter: BTreeMap<OptionSetter, T>,
}

impl<T> PreparedOption<T> {
    /// Derives the values with `make`; `None` if no value of the option yields one.
    pub fn prepare(
        policy: &Policy,
        index: OptionIndex,
        make: impl Fn(&OptionValue) -> Option<T>,
    ) -> Option<Self> {
        Self::from_sources(policy.option_sources(), index, make)
    }

    pub(crate) fn from_sources(
        sources: OptionSources<'_>,
        index: OptionIndex,
        make: impl Fn(&OptionValue) -> Option<T>,
    ) -> Option<Self> {
        let by_setter: BTreeMap<OptionSetter, T> = sources
            .possible_values(index)
            .filter_map(|(setter, value)| Some((setter, make(value)?)))
            .collect();
        (!by_setter.is_empty()).then_some(Self { index, by_setter })
    }

    /// Returns the value that applies to a request.
    pub fn current(&self, policy: &Policy, trail: &Trail) -> Option<&T> {
        self.by_setter.get(&trail.set_by(policy, self.index))
    }

    /// Returns every value that can apply.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.by_setter.values()
    }
}

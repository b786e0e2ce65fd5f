//! The policy in force: one immutable value, swapped whole, under which each request is judged from end to end.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::policy::Policy;

/// A policy and what was resolved for it when it was loaded.
#[derive(Debug)]
pub struct Snapshot<C> {
    /// The policy.
    pub policy: Policy,
    /// What others keep per policy: the counters of its rules.
    pub counters: C,
}

/// The place where the snapshot in force stands.
#[derive(Debug)]
pub struct InForce<C>(ArcSwap<Snapshot<C>>);

impl<C> InForce<C> {
    /// Puts the first snapshot in force.
    pub fn new(snapshot: Snapshot<C>) -> Self {
        Self(ArcSwap::from_pointee(snapshot))
    }

    /// The snapshot in force; the old one dies with its last request.
    pub fn load(&self) -> Arc<Snapshot<C>> {
        self.0.load_full()
    }

    /// Puts another snapshot in force, for requests that begin from now on.
    pub fn replace(&self, snapshot: Snapshot<C>) {
        self.0.store(Arc::new(snapshot));
    }
}

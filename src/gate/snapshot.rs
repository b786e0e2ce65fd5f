//! The policy in force: one immutable value, swapped whole, under which each request is judged from end to end.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::watch;

use crate::policy::Policy;

use super::effects::Effects;
use super::shadow::ShadowPolicy;

/// A policy and what was resolved for it when it was loaded.
#[derive(Debug)]
pub struct Snapshot<C> {
    /// The policy.
    pub policy: Arc<Policy>,
    /// What others keep per policy: the counters of its rules.
    pub counters: C,
    /// The fields that its options can make.
    pub effects: Effects,
    /// Another policy, judged beside it and without any effect.
    pub shadow: Option<Arc<ShadowPolicy<C>>>,
}

impl<C> Snapshot<C> {
    /// A policy as it takes force.
    pub fn new(policy: impl Into<Arc<Policy>>, counters: C) -> Self {
        let policy = policy.into();
        Self { effects: Effects::of(&policy), policy, counters, shadow: None }
    }

    /// The same with another policy in its shadow.
    #[must_use]
    pub fn beside(self, shadow: Option<Arc<ShadowPolicy<C>>>) -> Self {
        Self { shadow, ..self }
    }
}

/// The place where the snapshot in force stands.
#[derive(Debug)]
pub struct InForce<C> {
    snapshot: ArcSwap<Snapshot<C>>,
    changed: watch::Sender<()>,
}

impl<C> InForce<C> {
    /// Puts the first snapshot in force.
    pub fn new(snapshot: Snapshot<C>) -> Self {
        Self { snapshot: ArcSwap::from_pointee(snapshot), changed: watch::Sender::new(()) }
    }

    /// The snapshot in force; the old one dies with its last request.
    pub fn load(&self) -> Arc<Snapshot<C>> {
        self.snapshot.load_full()
    }

    /// The snapshot in force, if it is another one than something was judged under.
    pub fn newer(&self, judged_under: &Arc<Snapshot<C>>) -> Option<Arc<Snapshot<C>>> {
        let now = self.snapshot.load();
        (!Arc::ptr_eq(&now, judged_under)).then(|| Arc::clone(&now))
    }

    /// Puts another snapshot in force, for requests that begin from now on; what watches is told.
    pub fn replace(&self, snapshot: Snapshot<C>) {
        self.snapshot.store(Arc::new(snapshot));
        self.changed.send_replace(());
    }

    /// Sees each snapshot that is put in force from now on: for what stays open longer than a request.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}

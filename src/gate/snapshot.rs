//! The policy in force: one immutable value, swapped whole, under which each request is judged from end to end.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::Notify;

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
pub struct InForce<C> {
    now: ArcSwap<Snapshot<C>>,
    replaced: Notify,
}

impl<C> InForce<C> {
    /// Puts the first snapshot in force.
    pub fn new(snapshot: Snapshot<C>) -> Self {
        Self { now: ArcSwap::from_pointee(snapshot), replaced: Notify::new() }
    }

    /// The snapshot in force; the old one dies with its last request.
    pub fn load(&self) -> Arc<Snapshot<C>> {
        self.now.load_full()
    }

    /// Puts another snapshot in force, for requests that begin from now on, and wakes who waits for one.
    pub fn replace(&self, snapshot: Snapshot<C>) {
        self.now.store(Arc::new(snapshot));
        self.replaced.notify_waiters();
    }

    /// The snapshot in force as soon as it is another one than `judged_under`: at once if it is already. For what
    /// outlives its decision, a tunnel or a held request, and must be judged again. May be dropped at any time.
    pub async fn changed(&self, judged_under: &Arc<Snapshot<C>>) -> Arc<Snapshot<C>> {
        loop {
            // Made before the look: a snapshot that is put in force in between is told, too.
            let replaced = self.replaced.notified();
            let now = self.load();
            if !Arc::ptr_eq(&now, judged_under) {
                return now;
            }
            replaced.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::compile;

    fn snapshot(counters: u8) -> Snapshot<u8> {
        Snapshot { policy: compile::builtin().unwrap().policy, counters }
    }

    #[tokio::test]
    async fn who_waits_for_another_snapshot_is_told_of_it_whenever_it_comes() {
        let in_force = Arc::new(InForce::new(snapshot(1)));
        let first = in_force.load();
        let waiting = tokio::spawn({
            let (in_force, first) = (Arc::clone(&in_force), Arc::clone(&first));
            async move { in_force.changed(&first).await.counters }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        in_force.replace(snapshot(2));
        assert_eq!(waiting.await.unwrap(), 2);
        assert_eq!(in_force.changed(&first).await.counters, 2);
        assert_eq!(first.counters, 1);
    }
}

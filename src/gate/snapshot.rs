//! The policy in force: one immutable value, swapped whole, under which each request is judged from end to end.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::watch;

use crate::policy::Policy;
use crate::policy::field::Field;
use crate::policy::options::Value;
use crate::policy::options::schema::MAX_DEPTH;
use crate::policy::rule::Rule;

use super::changes::MayChange;
use super::effects::Effects;
use super::schedules::Schedules;
use super::shadow::ShadowPolicy;
use super::written::Written;

/// A policy and what was resolved for it when it was loaded.
#[derive(Debug)]
pub struct Snapshot<C> {
    /// The policy.
    pub policy: Arc<Policy>,
    /// What others keep per policy: the counters of its rules.
    pub counters: C,
    /// The fields that its options can make.
    pub effects: Effects,
    /// Whether its options ever change a document.
    pub changes: MayChange,
    /// The limits that its options set by the hour.
    pub schedules: Schedules,
    /// Another policy, judged beside it and without any effect.
    pub shadow: Option<Arc<ShadowPolicy<C>>>,
    /// How the policy is written.
    pub written: Arc<Written>,
    /// Whether the policy needs the ledger: one that does not spares each request a look.
    pub remembers: bool,
    /// Whether it asks how deep URLs are.
    pub depth_rules: DepthRules,
    /// The policy, for what is noted when another one may be in force.
    pub(in crate::gate) reign: Arc<Reign>,
}

/// A policy, and which one is in force by now.
#[derive(Debug)]
pub(in crate::gate) struct Reign {
    pub(in crate::gate) policy: Arc<Policy>,
    in_force: Arc<ArcSwap<Policy>>,
}

impl Reign {
    /// The policy in force, if it is another one.
    pub(in crate::gate) fn successor(&self) -> Option<Arc<Policy>> {
        let now = self.in_force.load();
        let same = Arc::ptr_eq(&now, &self.policy) || now.revision() == self.policy.revision();
        (!same).then(|| Arc::clone(&now))
    }
}

/// Whether anything that a policy decides depends on depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DepthRules {
    /// A condition names it, or `max_depth` is set.
    Some,
    /// Nothing does.
    None,
}

impl DepthRules {
    fn of(policy: &Policy) -> Self {
        let mut found = policy
            .values_of(MAX_DEPTH)
            .any(|(_, value)| *value != Value::None);
        for condition in policy.rules().iter().filter_map(Rule::condition) {
            condition.each_field(&mut |field| found |= *field == Field::Depth);
        }
        if found { Self::Some } else { Self::None }
    }
}

impl<C> Snapshot<C> {
    /// A policy as it takes force.
    pub fn new(policy: impl Into<Arc<Policy>>, counters: C) -> Self {
        let policy = policy.into();
        let (effects, schedules) = (Effects::of(&policy), Schedules::of(&policy));
        let changes = MayChange::of(&policy);
        let (remembers, depth_rules) = (policy.remembers(), DepthRules::of(&policy));
        let (shadow, written) = (None, Arc::default());
        let in_force = Arc::new(ArcSwap::new(Arc::clone(&policy)));
        let reign = Arc::new(Reign {
            policy: Arc::clone(&policy),
            in_force,
        });
        Self {
            policy,
            counters,
            effects,
            changes,
            schedules,
            shadow,
            written,
            remembers,
            depth_rules,
            reign,
        }
    }

    /// The same, remembering although its policy does not need that.
    #[must_use]
    pub fn remembering(self) -> Self {
        Self {
            remembers: true,
            ..self
        }
    }

    /// The same, of which is known how it is written.
    #[must_use]
    pub fn written(self, written: Arc<Written>) -> Self {
        Self { written, ..self }
    }

    /// The same, which learns from here which policy is in force.
    fn under(self, in_force: &Arc<ArcSwap<Policy>>) -> Self {
        let (policy, in_force) = (Arc::clone(&self.policy), Arc::clone(in_force));
        Self {
            reign: Arc::new(Reign { policy, in_force }),
            ..self
        }
    }

    /// The uses of which a verdict, live or in shadow, may depend on what a site says.
    pub fn uses(&self) -> impl Iterator<Item = &str> + Clone {
        self.policy
            .uses()
            .chain(self.shadow.iter().flat_map(|shadow| shadow.policy.uses()))
    }

    /// Whether a decision, live or in shadow, may depend on the year.
    pub(in crate::gate) fn asks_year(&self) -> bool {
        self.policies().any(Policy::asks_year)
    }

    /// Whether anything, live or in shadow, may want to know what a document says.
    pub fn ever_reads_documents(&self) -> bool {
        self.policies()
            .any(|policy| policy.documents().rules || policy.documents().checks)
    }

    /// Whether anything, live or in shadow, names the text of documents.
    pub fn ever_reads_text(&self) -> bool {
        self.policies().any(|policy| policy.documents().body_prefix)
    }

    fn policies(&self) -> impl Iterator<Item = &Policy> {
        [&*self.policy]
            .into_iter()
            .chain(self.shadow.iter().map(|shadow| &*shadow.policy))
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
    /// Its policy, for all that was judged under another one.
    policy: Arc<ArcSwap<Policy>>,
    changed: watch::Sender<()>,
}

impl<C> InForce<C> {
    /// Puts the first snapshot in force.
    pub fn new(snapshot: Snapshot<C>) -> Self {
        let policy = Arc::new(ArcSwap::new(Arc::clone(&snapshot.policy)));
        let snapshot = ArcSwap::from_pointee(snapshot.under(&policy));
        Self {
            snapshot,
            policy,
            changed: watch::Sender::new(()),
        }
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
        self.policy.store(Arc::clone(&snapshot.policy));
        self.snapshot.store(Arc::new(snapshot.under(&self.policy)));
        self.changed.send_replace(());
    }

    /// Sees each snapshot that is put in force from now on: for what stays open longer than a request.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}

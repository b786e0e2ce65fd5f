//! The active policy: one immutable value that is replaced as a whole, so that each request is evaluated under one
//! policy from end to end.

use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::watch;

use crate::metrics::policy::PolicyMetrics;
use crate::policy::Policy;
use crate::policy::decide::Decision;
use crate::policy::trail::Trail;

use super::document_rewrite::RewriteNeed;
use super::facts::TunnelFacts;
use super::header_effects::HeaderEffects;
use super::policy_source::PolicySource;
use super::schedules::PolicySchedules;
use super::shadow::ShadowPolicy;
use super::tunnel_decisions::TunnelDecisions;

/// A policy and what was resolved for it when it was loaded.
#[derive(Debug)]
pub struct PolicySnapshot {
    /// The compiled policy.
    pub policy: Arc<Policy>,
    /// The counters of its rules.
    pub counters: Arc<PolicyMetrics>,
    /// The fields that its options can make.
    pub effects: HeaderEffects,
    /// The need of its options to change documents.
    pub rewrite_need: RewriteNeed,
    /// The limits that its options set by the hour.
    pub schedules: PolicySchedules,
    /// Another policy that is evaluated on the same requests, without any effect.
    pub shadow: Option<Arc<ShadowPolicy>>,
    /// The files of the policy.
    pub source: Arc<PolicySource>,
    /// `true` if the policy needs the ledger. Otherwise only the outcomes of URLs that an index lacks are recorded, if there
    /// is a ledger.
    pub uses_ledger: bool,
    /// The policy's decisions on tunnels.
    tunnels: TunnelDecisions,
    /// The policy, for records that are written after another policy may have become active.
    pub(crate) version: Arc<PolicyVersion>,
}

/// A policy, and a reference to the one that is active.
#[derive(Debug)]
pub(crate) struct PolicyVersion {
    pub(crate) policy: Arc<Policy>,
    active: Arc<ArcSwap<Policy>>,
}

impl PolicyVersion {
    /// Returns the active policy if it is another one.
    pub(crate) fn successor(&self) -> Option<Arc<Policy>> {
        let now = self.active.load();
        let same = Arc::ptr_eq(&now, &self.policy) || now.revision() == self.policy.revision();
        (!same).then(|| Arc::clone(&now))
    }
}

impl PolicySnapshot {
    /// Prepares a policy for evaluation.
    pub fn new(policy: impl Into<Arc<Policy>>, counters: Arc<PolicyMetrics>) -> Self {
        let policy = policy.into();
        counters
            .shadow_stats()
            .set_spaces(policy.spaces().all().len());
        let version = PolicyVersion {
            policy: Arc::clone(&policy),
            active: Arc::new(ArcSwap::new(Arc::clone(&policy))),
        };
        Self {
            counters,
            effects: HeaderEffects::from_policy(&policy),
            rewrite_need: RewriteNeed::from_policy(&policy),
            schedules: PolicySchedules::from_policy(&policy),
            shadow: None,
            source: Arc::default(),
            uses_ledger: policy.needs_ledger(),
            tunnels: TunnelDecisions::default(),
            version: Arc::new(version),
            policy,
        }
    }

    /// Uses the ledger even if the policy does not need it.
    #[must_use]
    pub fn with_ledger(self) -> Self {
        Self {
            uses_ledger: true,
            ..self
        }
    }

    /// Adds the files of the policy.
    #[must_use]
    pub fn with_source(self, written: Arc<PolicySource>) -> Self {
        Self {
            source: written,
            ..self
        }
    }

    /// Adds the reference to the active policy.
    fn with_active(self, active: &Arc<ArcSwap<Policy>>) -> Self {
        let version = PolicyVersion {
            policy: Arc::clone(&self.policy),
            active: Arc::clone(active),
        };
        Self {
            version: Arc::new(version),
            ..self
        }
    }

    /// Evaluates the policy on a tunnel, or recalls its decision. `address` is `None` before the name is resolved.
    pub(crate) fn decide_tunnel(
        &self,
        tunnel: &TunnelFacts,
        address: Option<IpAddr>,
    ) -> (Trail, Decision) {
        self.tunnels.decide(&self.policy, tunnel, address)
    }

    /// Returns the uses of content that a decision, live or in shadow, may depend on.
    pub fn uses(&self) -> impl Iterator<Item = &str> + Clone {
        self.policy.usage_purposes().chain(
            self.shadow
                .iter()
                .flat_map(|shadow| shadow.policy.usage_purposes()),
        )
    }

    /// Returns `true` if a decision, live or in shadow, may depend on the year.
    pub(crate) fn depends_on_year(&self) -> bool {
        self.policies().any(Policy::depends_on_year)
    }

    /// Returns `true` if a decision, live or in shadow, may depend on a document.
    pub fn reads_documents(&self) -> bool {
        self.policies()
            .any(|policy| policy.document_needs().rules || policy.document_needs().checks)
    }

    /// Returns `true` if a condition, live or in shadow, names the text of documents.
    pub fn reads_text(&self) -> bool {
        self.policies()
            .any(|policy| policy.document_needs().body_prefix)
    }

    fn policies(&self) -> impl Iterator<Item = &Policy> {
        [&*self.policy]
            .into_iter()
            .chain(self.shadow.iter().map(|shadow| &*shadow.policy))
    }

    /// Adds a shadow policy.
    #[must_use]
    pub fn with_shadow(self, shadow: Option<Arc<ShadowPolicy>>) -> Self {
        Self { shadow, ..self }
    }
}

/// The active snapshot, which a reload replaces.
#[derive(Debug)]
pub struct ActivePolicy {
    snapshot: ArcSwap<PolicySnapshot>,
    /// Its policy, to which older snapshots refer, too.
    policy: Arc<ArcSwap<Policy>>,
    changed: watch::Sender<()>,
}

impl ActivePolicy {
    /// Activates the first snapshot.
    pub fn new(snapshot: PolicySnapshot) -> Self {
        let policy = Arc::new(ArcSwap::new(Arc::clone(&snapshot.policy)));
        let snapshot = ArcSwap::from_pointee(snapshot.with_active(&policy));
        Self {
            snapshot,
            policy,
            changed: watch::Sender::new(()),
        }
    }

    /// Returns the active snapshot. A replaced one is dropped with its last request.
    pub fn load(&self) -> Arc<PolicySnapshot> {
        self.snapshot.load_full()
    }

    /// Returns the active snapshot if it is another one than `snapshot`.
    pub fn newer_than(&self, snapshot: &Arc<PolicySnapshot>) -> Option<Arc<PolicySnapshot>> {
        let now = self.snapshot.load();
        (!Arc::ptr_eq(&now, snapshot)).then(|| Arc::clone(&now))
    }

    /// Activates another snapshot for requests that begin from now on, and notifies subscribers.
    pub fn replace(&self, snapshot: PolicySnapshot) {
        self.policy.store(Arc::clone(&snapshot.policy));
        self.snapshot
            .store(Arc::new(snapshot.with_active(&self.policy)));
        self.changed.send_replace(());
    }

    /// Subscribes to replacements of the snapshot, for tunnels and other work that outlives a request.
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}

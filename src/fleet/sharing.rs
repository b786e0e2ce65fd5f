//! The task that shares stops, daily budgets and rests of hosts with other nodes through the store, over a connection of its
//! own: a lease must not wait for it.
//!
//! It asks for the version of the stops a few times a second, and reads them only if that has changed. It takes parts of
//! budgets when requests wait for them. It writes the rests of this node's hosts that have begun, ended or changed since;
//! the next owner of a host reads them (`handover`).

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use crawlgate_fleet::node::BootTime;
use crawlgate_fleet::view::Owner;

use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::metrics::labels::StoreOperation;
use crate::pipeline::admission::AdmissionQueue;
use crate::pipeline::admission::handover::ChangedRestRecords;
use crate::pipeline::budget::BudgetTracker;
use crate::pipeline::stop_registry::{SharedStop, StopRegistry};

use super::membership::result;
use super::owners::HostOwners;
use super::store::{FleetRecord, PostgresConfig, StopsVersion, StoreError, StoreSession};

/// The time between two looks at the version: a stop must be in force everywhere within a second.
const POLL_INTERVAL: Duration = Duration::from_millis(400);
/// The days for which the accounts of budgets are kept, since the clocks of nodes differ.
const BUDGET_DAYS_KEPT: u64 = 3;
/// The largest number of rests in one statement.
const RESTS_BATCH: usize = 1_000;
/// The time between two removals of rests that ended long ago.
const FORGET_RESTS_INTERVAL: Duration = Duration::from_secs(600);
/// The pause before the store is tried again.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// The stops of all nodes when this one starts, and the means to share them.
#[derive(Debug)]
pub struct StoreSharing {
    config: PostgresConfig,
    record: FleetRecord,
    clock: Clock,
    version: StopsVersion,
    stops: Vec<SharedStop>,
}

/// The state of sharing, for `/readyz`.
#[derive(Clone, Debug, Default)]
pub struct SharingHandle(Arc<ArcSwapOption<String>>);

impl SharingHandle {
    /// Returns why stops and budgets cannot be shared at the moment.
    pub fn error(&self) -> Option<Arc<String>> {
        self.0.load_full()
    }
}

impl StoreSharing {
    /// Reads the stops. A node must know them before it owns a host.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn read(
        session: &StoreSession,
        config: &PostgresConfig,
        record: &FleetRecord,
        clock: &Clock,
    ) -> Result<Self, StoreError> {
        // In this order: a change in between is read again.
        let version = session.stops_version().await?;
        Ok(Self {
            config: config.clone(),
            record: record.clone(),
            clock: clock.clone(),
            version,
            stops: session.stops().await?,
        })
    }

    /// Takes the stops over, and returns the task that goes on sharing them, and its state.
    pub fn start(
        &self,
        admission: Arc<AdmissionQueue>,
        owners: HostOwners,
        metrics: Metrics,
    ) -> (impl Future<Output = ()> + Send + use<>, SharingHandle) {
        let stops = Arc::clone(admission.stops());
        let budgets = Arc::clone(admission.budgets());
        stops.enable_sharing();
        stops.apply_shared(self.version.generation.0, self.stops.clone());
        budgets.enable_sharing();
        let handle = SharingHandle::default();
        let task = SharingTask {
            config: self.config.clone(),
            record: self.record.clone(),
            clock: self.clock.clone(),
            version: Some(self.version),
            stops,
            budgets,
            admission,
            owners,
            budget_day: 0,
            next_forget: BootTime::default(),
            metrics,
            session: None,
            handle: handle.clone(),
        };
        (task.run(), handle)
    }
}

struct SharingTask {
    config: PostgresConfig,
    record: FleetRecord,
    clock: Clock,
    metrics: Metrics,
    stops: Arc<StopRegistry>,
    budgets: Arc<BudgetTracker>,
    admission: Arc<AdmissionQueue>,
    owners: HostOwners,
    /// The time at which rests that ended long ago are removed next.
    next_forget: BootTime,
    /// The last day of which a budget was used.
    budget_day: u64,
    /// The version of the stops that this node has.
    version: Option<StopsVersion>,
    session: Option<StoreSession>,
    handle: SharingHandle,
}

impl SharingTask {
    async fn run(mut self) {
        loop {
            let pause = match self.exchange().await {
                Ok(()) => {
                    if self.handle.0.swap(None).is_some() {
                        tracing::info!("fleet: stops and budgets are shared again");
                    }
                    POLL_INTERVAL
                }
                Err(error) => {
                    // Nobody knows what became of the statement.
                    self.session = None;
                    let error = error.to_string();
                    if self.handle.0.load().is_none() {
                        tracing::warn!("fleet: stops and budgets cannot be shared: {error}");
                    }
                    self.handle.0.store(Some(Arc::new(error)));
                    RETRY_INTERVAL
                }
            };
            self.wait(pause).await;
        }
    }

    /// Waits until stops are to be exchanged, and takes parts of budgets meanwhile.
    async fn wait(&mut self, pause: Duration) {
        let stops = Arc::clone(&self.stops);
        let budgets = Arc::clone(&self.budgets);
        let mut pause = std::pin::pin!(tokio::time::sleep(pause));
        loop {
            tokio::select! {
                () = stops.unshared_change() => return,
                () = &mut pause => return,
                () = budgets.grant_wanted(), if self.session.is_some() => {}
            }
            let Some(session) = self.session.take() else {
                return;
            };
            // An error ends the connection; the next one is told what requests still wait for.
            if self.take_budgets(&session).await.is_err() {
                return;
            }
            self.session = Some(session);
        }
    }

    async fn exchange(&mut self) -> Result<(), StoreError> {
        let session = match self.session.take() {
            Some(session) => session,
            None => self.connect().await?,
        };
        let began = self.clock.boot_time();
        let shared = self.share_stops(&session).await;
        let elapsed = self.clock.boot_time().since(began);
        self.metrics
            .record_store_request(StoreOperation::Stops, result(&shared), elapsed);
        shared?;
        self.take_budgets(&session).await?;
        self.share_rests(&session).await?;
        self.session = Some(session);
        Ok(())
    }

    /// Writes the rests that have changed.
    async fn share_rests(&mut self, session: &StoreSession) -> Result<(), StoreError> {
        let changed = self.take_own_changed_rests();
        let now = self.clock.boot_time();
        let is_due = self.next_forget <= now;
        if changed.is_empty() && !is_due {
            return Ok(());
        }
        let written = self.write_rests(session, changed, is_due).await;
        let elapsed = self.clock.boot_time().since(now);
        self.metrics
            .record_store_request(StoreOperation::Rests, result(&written), elapsed);
        if is_due && written.is_ok() {
            self.next_forget = now.after(FORGET_RESTS_INTERVAL);
        }
        written
    }

    /// Returns the rests of this node's hosts that have changed. Those of hosts without a known owner are kept, since this
    /// node may own them again.
    fn take_own_changed_rests(&self) -> ChangedRestRecords {
        let mut changed = self.admission.take_changed_rests();
        let unowned = changed.split_off(|host| match self.owners.owner(host) {
            Owner::Unknown => true,
            Owner::Here { .. } | Owner::Member { .. } => false,
        });
        self.admission.put_back_changed_rests(unowned);
        drop(changed.split_off(|host| match self.owners.owner(host) {
            Owner::Member { .. } => true,
            Owner::Here { .. } | Owner::Unknown => false,
        }));
        changed
    }

    async fn write_rests(
        &self,
        session: &StoreSession,
        changed: ChangedRestRecords,
        forgets: bool,
    ) -> Result<(), StoreError> {
        let written = async {
            let begun: Vec<_> = changed
                .begun
                .iter()
                .map(|(host, rest)| (Arc::clone(host), self.owners.partition(host), *rest))
                .collect();
            for rests in begun.chunks(RESTS_BATCH) {
                session.write_rests(rests).await?;
            }
            for hosts in changed.ended.chunks(RESTS_BATCH) {
                session.remove_rests(hosts).await?;
            }
            if forgets {
                session.forget_rests().await?;
            }
            Ok::<(), StoreError>(())
        };
        let written = written.await;
        if written.is_err() {
            self.admission.put_back_changed_rests(changed);
        }
        written
    }

    /// Takes what requests wait for.
    async fn take_budgets(&mut self, session: &StoreSession) -> Result<(), StoreError> {
        for request in self.budgets.wanted_grants() {
            let began = self.clock.boot_time();
            let granted = session.take_budget(&request).await;
            let elapsed = self.clock.boot_time().since(began);
            self.metrics
                .record_store_request(StoreOperation::Budget, result(&granted), elapsed);
            self.budgets.grant(&request, granted?);
            if self.budget_day < request.day {
                session
                    .forget_budgets(request.day.saturating_sub(BUDGET_DAYS_KEPT))
                    .await?;
                self.budget_day = request.day;
            }
        }
        Ok(())
    }

    async fn connect(&mut self) -> Result<StoreSession, StoreError> {
        let began = self.clock.boot_time();
        let opened = StoreSession::open(&self.config).await;
        let elapsed = self.clock.boot_time().since(began);
        self.metrics
            .record_store_request(StoreOperation::Connect, result(&opened), elapsed);
        let (session, record) = opened?;
        if record.partitioner != self.record.partitioner {
            return Err(StoreError::Refounded);
        }
        Ok(session)
    }

    /// Writes what the store does not have, and then reads what this node does not have.
    async fn share_stops(&mut self, session: &StoreSession) -> Result<(), StoreError> {
        let mut current = session.stops_version().await?;
        let generation = current.generation.0;
        let went_back = self.version.is_some_and(|known| {
            known.generation == current.generation && current.version < known.version
        });
        if went_back {
            self.stops.forget_shared();
        }
        let unshared = self.stops.unshared(generation);
        let has_changes = !unshared.added.is_empty() || !unshared.lifted.is_empty();
        for stop in &unshared.added {
            session.add_stop(stop).await?;
            self.stops.mark_shared(stop.id, generation);
        }
        for id in &unshared.lifted {
            session.lift_stop(*id).await?;
            self.stops.mark_lifted(*id);
        }
        if has_changes {
            current = session.stops_version().await?;
        }
        if self.version != Some(current) {
            self.version = None;
            // A change after the version was read is read again at the next look.
            let stops = session.stops().await?;
            self.stops.apply_shared(current.generation.0, stops);
            self.version = Some(current);
        }
        Ok(())
    }
}

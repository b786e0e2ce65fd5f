//! The task that shares stops and daily budgets with other nodes through the store, over a connection of its own: a lease
//! must not wait for it.
//!
//! It asks for the version of the stops a few times a second, and reads them only if that has changed. It takes parts of
//! budgets when requests wait for them.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;

use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::metrics::labels::StoreOperation;
use crate::pipeline::budget::BudgetTracker;
use crate::pipeline::stop_registry::{SharedStop, StopRegistry};

use super::membership::result;
use super::store::{FleetRecord, PostgresConfig, StopsVersion, StoreError, StoreSession};

/// The time between two looks at the version: a stop must be in force everywhere within a second.
const POLL_INTERVAL: Duration = Duration::from_millis(400);
/// The days for which the accounts of budgets are kept, since the clocks of nodes differ.
const BUDGET_DAYS_KEPT: u64 = 3;
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
        stops: Arc<StopRegistry>,
        budgets: Arc<BudgetTracker>,
        metrics: Metrics,
    ) -> (impl Future<Output = ()> + Send + use<>, SharingHandle) {
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
            budget_day: 0,
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
        self.session = Some(session);
        Ok(())
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

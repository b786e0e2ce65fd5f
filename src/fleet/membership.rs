//! The task that runs this node's [`Ownership`] against the store, and publishes the owners of hosts.

mod status;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use crawlgate_fleet::node::{BootTime, Epoch, Incarnation, Member, NodeName};
use crawlgate_fleet::ownership::table::{Generation, StoreAnswer, StoreCommand};
use crawlgate_fleet::ownership::{
    BATCH, Event, LeaseTimes, Output, Ownership, OwnershipSettings, Rules, Takeovers,
};
use crawlgate_fleet::partition::Partition;
use crawlgate_fleet::view::OwnershipView;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::metrics::labels::{StoreOperation, StoreResult, TakeoverReason};
use crate::pipeline::admission::AdmissionQueue;

use super::handover::{HostHandover, RobotsHandover, Takeover, read_takeover};
use super::node_directory::{NodeDirectory, NodeDirectoryError};
use super::owners::HostOwners;
use super::sharing::StoreSharing;
use super::store::{
    FleetRecord, MemberFacts, NodeFacts, PostgresConfig, StoreError, StoreSession, random_number,
};

pub use status::{FleetStatus, MemberStatus};

/// The longest time between two updates of the metrics.
const UPDATE_INTERVAL: Duration = Duration::from_secs(1);
/// The first pause before the store is tried again; it doubles up to a tenth of the lease.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// Returns the revision of the active policy.
pub type RevisionSource = Box<dyn Fn() -> String + Send + Sync>;

/// The state of hosts of this process.
pub struct NodeHosts {
    pub admission: Arc<AdmissionQueue>,
    pub robots: Arc<dyn RobotsHandover>,
}

/// The reason why a node cannot start.
#[derive(Debug, thiserror::Error)]
pub enum NodeStartError {
    #[error(transparent)]
    Directory(#[from] NodeDirectoryError),
    #[error("fleet: {0}")]
    Store(#[from] StoreError),
}

/// A node whose settings agree with the store, before it joins.
pub struct PreparedNode {
    name: NodeName,
    lease: Duration,
    config: PostgresConfig,
    record: FleetRecord,
    session: StoreSession,
    directory: NodeDirectory,
    clock: Clock,
    /// The owners of hosts: unknown until the node has joined.
    pub owners: HostOwners,
    /// The stops of all nodes, which it shares with them.
    pub sharing: StoreSharing,
}

impl PreparedNode {
    /// Locks the state directory, connects to the store, and compares the settings.
    ///
    /// # Errors
    /// If another process uses the directory or the node's name, or the store cannot be used.
    pub async fn new(
        fleet_name: &str,
        name: &NodeName,
        lease: Duration,
        config: &PostgresConfig,
        directory: &Path,
        clock: Clock,
    ) -> Result<Self, NodeStartError> {
        let directory = NodeDirectory::lock(directory)?;
        let (session, record) = StoreSession::open(config).await?;
        record.check(fleet_name, lease, name)?;
        session.check_pooling(config).await?;
        session.check_joining(name, &directory.identity).await?;
        let sharing = StoreSharing::read(&session, config, &record, &clock).await?;
        let view = OwnershipView::empty(record.partitioner);
        Ok(Self {
            name: name.clone(),
            lease,
            config: config.clone(),
            session,
            directory,
            owners: HostOwners::new(view, clock.clone()),
            record,
            clock,
            sharing,
        })
    }

    /// Spawns the task; it ends when the node has left. `address` is where the other nodes reach this one, and `admin` the
    /// URL of its admin listener.
    pub fn spawn(
        self,
        address: std::net::SocketAddr,
        admin: Option<String>,
        hosts: NodeHosts,
        metrics: Metrics,
        revision: RevisionSource,
        tasks: &mut JoinSet<()>,
    ) -> MembershipHandle {
        let ownership = Ownership::new(OwnershipSettings {
            this: Member {
                node: self.name,
                // Each connection brings a random one.
                incarnation: Incarnation(0),
                address,
            },
            partitioner: self.record.partitioner,
            lease: self.lease,
            batch: BATCH,
            rules: Rules::default(),
        });
        let status = Arc::new(ArcSwap::from_pointee(FleetStatus::default()));
        let (drain, drain_requests) = mpsc::channel(1);
        let (left, has_left) = watch::channel(false);
        let task = MembershipTask {
            ownership,
            handover: HostHandover::new(hosts.admission, hosts.robots, self.record.partitioner),
            config: self.config,
            record: self.record,
            home: self.directory.identity.clone(),
            admin,
            directory: self.directory,
            owners: self.owners,
            clock: self.clock,
            metrics,
            revision,
            session: None,
            jobs: JoinSet::new(),
            failures: 0,
            error: None,
            takeovers: Takeovers::default(),
            facts: BTreeMap::new(),
            status: Arc::clone(&status),
            left,
        };
        tasks.spawn(task.run(self.session, drain_requests));
        MembershipHandle {
            status,
            drain,
            has_left,
        }
    }
}

/// The running membership.
#[derive(Clone, Debug)]
pub struct MembershipHandle {
    status: Arc<ArcSwap<FleetStatus>>,
    drain: mpsc::Sender<()>,
    has_left: watch::Receiver<bool>,
}

impl MembershipHandle {
    /// Returns the state of the fleet as this node sees it.
    pub fn status(&self) -> Arc<FleetStatus> {
        self.status.load_full()
    }

    /// Gives all partitions away and leaves the fleet, so that other nodes need not wait. After the time limit, they wait
    /// for the end of the lease.
    pub async fn leave(&mut self, limit: Duration) {
        let _ = self.drain.try_send(());
        let left = self.has_left.wait_for(|left| *left);
        let _ = tokio::time::timeout(limit, left).await;
    }
}

/// The end of something that runs beside the loop.
enum FinishedJob {
    Connected(Result<(StoreSession, FleetRecord), StoreError>),
    Answered(StoreSession, Result<(StoreAnswer, Takeover), StoreError>),
    Quiesced(Vec<Partition>, Vec<(Partition, Epoch, String)>),
    /// The time to break off what is under way for these partitions.
    BreakOff(Vec<Partition>),
}

struct MembershipTask {
    ownership: Ownership,
    handover: HostHandover,
    config: PostgresConfig,
    record: FleetRecord,
    home: String,
    admin: Option<String>,
    #[expect(dead_code, reason = "locked while the task runs")]
    directory: NodeDirectory,
    owners: HostOwners,
    clock: Clock,
    metrics: Metrics,
    revision: RevisionSource,
    /// The connection, unless a statement uses it.
    session: Option<StoreSession>,
    jobs: JoinSet<FinishedJob>,
    /// The attempts to connect that have failed since the last one that succeeded.
    failures: u32,
    error: Option<String>,
    /// The takeovers that the metrics have.
    takeovers: Takeovers,
    /// The facts that the members record about themselves, as the last renewal has read them.
    facts: BTreeMap<Incarnation, MemberFacts>,
    status: Arc<ArcSwap<FleetStatus>>,
    left: watch::Sender<bool>,
}

impl MembershipTask {
    async fn run(mut self, session: StoreSession, mut drain: mpsc::Receiver<()>) {
        self.connected(session, self.record.generation);
        while !*self.left.borrow() {
            let owners = self.owners.clone();
            let pause = self.pause();
            tokio::select! {
                Some(job) = self.jobs.join_next() => match job {
                    Ok(job) => self.finish(job),
                    Err(error) => {
                        // Its connection is gone.
                        tracing::error!(%error, "fleet: a statement for the store panicked");
                        self.disconnected("a statement panicked".to_owned());
                    }
                },
                Some(()) = drain.recv() => self.feed(Event::Drain),
                () = owners.refresh_requested() => self.feed(Event::Refresh),
                () = tokio::time::sleep(pause) => self.feed(Event::Tick),
            }
        }
    }

    fn pause(&self) -> Duration {
        let now = self.clock.boot_time();
        self.ownership
            .deadline(now)
            .map_or(UPDATE_INTERVAL, |deadline| deadline.since(now))
            .min(UPDATE_INTERVAL)
    }

    fn finish(&mut self, job: FinishedJob) {
        match job {
            FinishedJob::Connected(Ok((session, record))) => {
                if record.partitioner == self.record.partitioner {
                    self.connected(session, record.generation);
                } else {
                    self.disconnected(StoreError::Refounded.to_string());
                }
            }
            FinishedJob::Connected(Err(error)) => self.disconnected(error.to_string()),
            FinishedJob::Answered(mut session, Ok((answer, takeover))) => {
                if let Some(facts) = session.take_member_facts() {
                    self.facts = facts;
                }
                self.session = Some(session);
                self.error = None;
                // Before the view names this node as the owner.
                self.handover.take_over(takeover);
                self.feed(Event::Answered(answer));
            }
            // The session is dropped: nobody knows what became of the statement.
            FinishedJob::Answered(_, Err(error)) => self.disconnected(error.to_string()),
            FinishedJob::Quiesced(partitions, given) => {
                self.handover.keep_outgoing(given);
                self.feed(Event::Quiesced(partitions));
            }
            FinishedJob::BreakOff(partitions) => self.owners.break_off(&partitions),
        }
    }

    fn connected(&mut self, session: StoreSession, generation: Generation) {
        let spare = match random_number() {
            Ok(number) => Incarnation(number.unsigned_abs()),
            Err(error) => return self.disconnected(error.to_string()),
        };
        if self.failures > 0 {
            tracing::info!("fleet: connected to the store again");
        }
        self.failures = 0;
        self.session = Some(session);
        self.feed(Event::Connected { generation, spare });
    }

    fn disconnected(&mut self, error: String) {
        if self.failures == 0 {
            tracing::warn!("fleet: {error}");
        }
        self.error = Some(error);
        self.session = None;
        self.feed(Event::Disconnected);
        self.reconnect();
    }

    fn reconnect(&mut self) {
        let longest = self.record.lease / 10;
        let pause = FIRST_PAUSE
            .saturating_mul(1 << self.failures.min(10))
            .min(longest);
        self.failures = self.failures.saturating_add(1);
        let config = self.config.clone();
        let metrics = self.metrics.clone();
        let clock = self.clock.clone();
        self.jobs.spawn(async move {
            tokio::time::sleep(pause).await;
            let began = clock.boot_time();
            let opened = StoreSession::open(&config).await;
            let elapsed = clock.boot_time().since(began);
            metrics.record_store_request(StoreOperation::Connect, result(&opened), elapsed);
            FinishedJob::Connected(opened)
        });
    }

    fn feed(&mut self, event: Event) {
        let now = self.clock.boot_time();
        let outputs = self.ownership.handle(event, now);
        if let Some(view) = self.ownership.take_view() {
            self.owners.publish(view);
        }
        for output in outputs {
            self.carry_out(output);
        }
        self.report(now);
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Send(command) => self.send(command),
            // The view names no owner for these partitions: nothing starts, and waiting requests look for the next owner.
            Output::Quiesce(partitions) => {
                let pause = self.record.lease / 5;
                let with_epoch =
                    |partition: &Partition| Some((*partition, self.ownership.epoch(*partition)?));
                let owned = partitions.iter().filter_map(with_epoch).collect();
                let collect = self.handover.collect(owned);
                self.jobs.spawn(async move {
                    tokio::time::sleep(pause).await;
                    let given = tokio::task::spawn_blocking(collect).await;
                    let given = given.unwrap_or_else(|error| {
                        tracing::error!(%error, "fleet: the state of hosts cannot be collected");
                        vec![]
                    });
                    FinishedJob::Quiesced(partitions, given)
                });
            }
            Output::Reconnect => {
                self.session = None;
                self.reconnect();
            }
            Output::Lapsed { end, partitions } => {
                tracing::warn!("fleet: the lease has ended: hosts of this node wait for an owner");
                self.handover.drop_outgoing();
                let break_off = end.after(LeaseTimes::new(self.record.lease).break_off);
                let pause = break_off.since(self.clock.boot_time());
                self.jobs.spawn(async move {
                    tokio::time::sleep(pause).await;
                    FinishedJob::BreakOff(partitions)
                });
            }
            Output::Replaced => {
                let name = &self.ownership.this().node;
                tracing::error!(
                    "fleet: another process runs as {name} (fleet.node): this one owns nothing any more; end one of them"
                );
                self.error = Some(format!("another process runs as {name}"));
            }
            Output::Left => {
                self.left.send_replace(true);
            }
        }
    }

    fn send(&mut self, command: StoreCommand) {
        let Some(mut session) = self.session.take() else {
            return;
        };
        let this = self.ownership.this().clone();
        let generation = self.ownership.generation();
        let facts = NodeFacts {
            home: self.home.clone(),
            policy: (self.revision)(),
            admin: self.admin.clone(),
        };
        let sources = match &command {
            StoreCommand::Take(claims) => self.handover.sources(claims, this.incarnation),
            StoreCommand::Join
            | StoreCommand::Renew { .. }
            | StoreCommand::Release(_)
            | StoreCommand::Leave => BTreeMap::new(),
        };
        let given = match &command {
            StoreCommand::Release(rows) => self.handover.take_outgoing(rows),
            StoreCommand::Join
            | StoreCommand::Renew { .. }
            | StoreCommand::Take(_)
            | StoreCommand::Leave => vec![],
        };
        let metrics = self.metrics.clone();
        let clock = self.clock.clone();
        self.jobs.spawn(async move {
            let began = clock.boot_time();
            let answer = async {
                if !given.is_empty() {
                    session.write_states(&given).await?;
                }
                let answer = session
                    .carry_out(&this, generation, &facts, &command)
                    .await?;
                let mut takeover = Takeover::default();
                if let StoreAnswer::Taken(taken) = &answer {
                    takeover = read_takeover(&session, &sources, taken).await?;
                }
                Ok::<_, StoreError>((answer, takeover))
            };
            let answer = answer.await;
            let elapsed = clock.boot_time().since(began);
            metrics.record_store_request(operation(&command), result(&answer), elapsed);
            FinishedJob::Answered(session, answer)
        });
    }

    /// Updates metrics and status.
    fn report(&mut self, now: BootTime) {
        let status = FleetStatus::new(&self.ownership, &self.facts, self.error.clone(), now);
        self.metrics.set_fleet(&status.counts());
        let total = self.ownership.takeovers();
        for (why, total, counted) in [
            (TakeoverReason::Free, total.free, self.takeovers.free),
            (TakeoverReason::Lapsed, total.lapsed, self.takeovers.lapsed),
            (TakeoverReason::Silent, total.silent, self.takeovers.silent),
        ] {
            self.metrics
                .add_takeovers(why, total.saturating_sub(counted));
        }
        self.takeovers = total;
        self.status.store(Arc::new(status));
    }
}

fn operation(command: &StoreCommand) -> StoreOperation {
    match command {
        StoreCommand::Join => StoreOperation::Join,
        StoreCommand::Renew { .. } => StoreOperation::Renew,
        StoreCommand::Take(_) => StoreOperation::Take,
        StoreCommand::Release(_) => StoreOperation::Release,
        StoreCommand::Leave => StoreOperation::Leave,
    }
}

pub(super) fn result<T>(outcome: &Result<T, StoreError>) -> StoreResult {
    match outcome {
        Ok(_) => StoreResult::Ok,
        Err(StoreError::Timeout(_)) => StoreResult::Timeout,
        Err(_) => StoreResult::Error,
    }
}

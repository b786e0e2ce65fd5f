//! The state of hosts whose owner changes, for the new owner.
//!
//! A node that gives partitions away writes the state of their hosts to the store, right before it releases them, with the
//! epoch of its ownership. The node that takes one of them reads it if that was the last epoch. Of any other
//! partition it reads only the rests; each host counts as asked at the moment of the takeover. The robots.txt
//! files that a node knows are handed over, too.

mod encoding;

use std::collections::BTreeMap;
use std::sync::Arc;

use crawlgate_fleet::node::{Epoch, Incarnation};
use crawlgate_fleet::ownership::table::Claim;
use crawlgate_fleet::partition::{Partition, Partitioner};

use crate::pacing::backoff::BackoffRecord;
use crate::pipeline::admission::AdmissionQueue;
use crate::pipeline::admission::handover::PartitionRecord;
use crate::robots::state::RobotsRecord;

use super::store::{StoreError, StoreSession};

/// The longest robots.txt files of a partition that are handed over, in bytes.
const MAX_ROBOTS_BYTES: usize = 32 << 10;

/// The robots.txt of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RobotsFileRecord {
    /// The beginning of the host's URLs: `https://example.com/`.
    pub base: Box<str>,
    pub record: RobotsRecord,
}

/// The robots.txt files that a node knows.
pub trait RobotsHandover: Send + Sync {
    /// Returns the files that `select` accepts by the beginning of their host's URLs and their size. It takes a while if
    /// there are many.
    fn records(&self, select: &mut dyn FnMut(&str, usize) -> bool) -> Vec<RobotsFileRecord>;

    /// Adds a file, unless a newer one is known.
    fn restore(&self, file: &RobotsFileRecord);
}

/// The state of hosts of one node, and of partitions that it takes and gives away.
pub(super) struct HostHandover {
    admission: Arc<AdmissionQueue>,
    robots: Arc<dyn RobotsHandover>,
    partitioner: Partitioner,
    /// The partitions whose state this node has, with the epoch up to which nobody else sends requests to their hosts.
    known: BTreeMap<Partition, Epoch>,
    /// The state of partitions that are given away, with the epoch of this node's ownership, until they are released.
    outgoing: BTreeMap<Partition, (Epoch, String)>,
}

/// The place where the state of a partition is, when a node takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StateSource {
    /// This node: nobody else has owned the partition since.
    Memory,
    /// No node has ever owned the partition.
    NoOwner,
    /// The store, if the last owner, which had this epoch, has written it.
    Store(Epoch),
    /// Nowhere: its owner is silent.
    Lost,
}

/// The state of the partitions that a take has brought.
#[derive(Debug, Default)]
pub(super) struct Takeover {
    partitions: Vec<(Partition, Epoch, PartitionState)>,
    rests: BTreeMap<Arc<str>, BackoffRecord>,
}

#[derive(Debug, PartialEq)]
enum PartitionState {
    /// This node has it.
    Known,
    Received(PartitionRecord, Vec<RobotsFileRecord>),
    Unknown,
}

impl HostHandover {
    pub(super) fn new(
        admission: Arc<AdmissionQueue>,
        robots: Arc<dyn RobotsHandover>,
        partitioner: Partitioner,
    ) -> Self {
        admission.enable_handover(Box::new(move |host| partitioner.partition(host).0));
        Self {
            admission,
            robots,
            partitioner,
            known: BTreeMap::new(),
            outgoing: BTreeMap::new(),
        }
    }

    /// Returns the places where the states of claimed partitions are.
    pub(super) fn sources(
        &self,
        claims: &[Claim],
        this: Incarnation,
    ) -> BTreeMap<Partition, StateSource> {
        let source = |claim: &Claim| match claim.from {
            Some((owner, _))
                if owner == this && self.known.get(&claim.partition) == Some(&claim.epoch) =>
            {
                StateSource::Memory
            }
            Some(_) => StateSource::Lost,
            None => match claim.epoch.0.checked_sub(1) {
                // The release has raised the epoch by one.
                Some(epoch) => StateSource::Store(Epoch(epoch)),
                None => StateSource::NoOwner,
            },
        };
        claims
            .iter()
            .map(|claim| (claim.partition, source(claim)))
            .collect()
    }

    /// Applies the state of partitions that this node has taken. To be called before it owns them.
    pub(super) fn take_over(&mut self, takeover: Takeover) {
        for (partition, epoch, state) in takeover.partitions {
            self.known.insert(partition, epoch);
            match state {
                PartitionState::Known => {}
                PartitionState::Received(record, files) => {
                    self.admission.take_over(partition.0, &record);
                    files.iter().for_each(|file| self.robots.restore(file));
                }
                PartitionState::Unknown => self.admission.take_over_unknown(partition.0),
            }
        }
        self.admission.restore_rests(&takeover.rests);
    }

    /// Returns a task that collects the state of partitions that this node gives away: nothing of them starts any more.
    pub(super) fn collect(
        &self,
        partitions: Vec<(Partition, Epoch)>,
    ) -> impl FnOnce() -> Vec<(Partition, Epoch, String)> + Send + use<> {
        let admission = Arc::clone(&self.admission);
        let robots = Arc::clone(&self.robots);
        let partitioner = self.partitioner;
        move || {
            let numbers = || partitions.iter().map(|(partition, _)| partition.0);
            let records =
                admission.partition_records(numbers(), |host| partitioner.partition(host).0);
            let mut files = collect_robots(&*robots, &partitioner, numbers());
            let encode = |(partition, epoch): &(Partition, Epoch)| {
                let files = files.remove(&partition.0).unwrap_or_default();
                let state = encoding::encode(records.get(&partition.0)?, files)
                    .inspect_err(|error| tracing::error!(%error, "fleet: the state of hosts cannot be handed over"))
                    .ok()?;
                Some((*partition, *epoch, state))
            };
            partitions.iter().filter_map(encode).collect()
        }
    }

    /// Forgets the state of partitions that were to be given away: this node owns nothing any more.
    pub(super) fn drop_outgoing(&mut self) {
        self.outgoing.clear();
    }

    /// Keeps the state of partitions until they are released.
    pub(super) fn keep_outgoing(&mut self, given: Vec<(Partition, Epoch, String)>) {
        let given = given.into_iter();
        self.outgoing
            .extend(given.map(|(partition, epoch, state)| (partition, (epoch, state))));
    }

    /// Returns the state of partitions that are released. If it cannot be written, the next owners do without.
    pub(super) fn take_outgoing(
        &mut self,
        released: &[(Partition, Epoch)],
    ) -> Vec<(Partition, Epoch, String)> {
        let mut given = vec![];
        for (partition, epoch) in released {
            if let Some((collected_in, state)) = self.outgoing.remove(partition)
                && collected_in == *epoch
            {
                given.push((*partition, *epoch, state));
            }
        }
        given
    }
}

/// Returns the robots.txt files of some partitions, as far as there is room.
fn collect_robots(
    robots: &dyn RobotsHandover,
    partitioner: &Partitioner,
    partitions: impl Iterator<Item = u16>,
) -> BTreeMap<u16, Vec<RobotsFileRecord>> {
    let partition_of = |base: &str| Some(partitioner.partition(host_of(base)?).0);
    let mut room: BTreeMap<u16, usize> = partitions
        .map(|partition| (partition, MAX_ROBOTS_BYTES))
        .collect();
    let files = robots.records(&mut |base, size| {
        let Some(partition) = partition_of(base) else {
            return false;
        };
        let left = room.get(&partition).and_then(|room| room.checked_sub(size));
        if let Some(left) = left {
            room.insert(partition, left);
        }
        left.is_some()
    });
    let mut found: BTreeMap<u16, Vec<RobotsFileRecord>> = BTreeMap::new();
    for file in files {
        if let Some(partition) = partition_of(&file.base) {
            found.entry(partition).or_default().push(file);
        }
    }
    found
}

/// Returns the host of a URL without a path: `scheme://host[:port]/`.
fn host_of(base: &str) -> Option<&str> {
    let (_, authority) = base.split_once("://")?;
    let authority = authority.strip_suffix('/').unwrap_or(authority);
    match authority.strip_prefix('[') {
        Some(address) => address.split_once(']').map(|(address, _)| address),
        None => authority.split(':').next(),
    }
}

/// Reads the state of partitions that were taken.
///
/// # Errors
/// If the store fails: the partitions must be taken again.
pub(super) async fn read_takeover(
    session: &StoreSession,
    sources: &BTreeMap<Partition, StateSource>,
    taken: &[(Partition, Epoch)],
) -> Result<Takeover, StoreError> {
    let source = |partition: &Partition| {
        let source = sources.get(partition);
        source.copied().unwrap_or(StateSource::Lost)
    };
    let mut in_store = vec![];
    let mut resting = vec![];
    for (partition, _) in taken {
        match source(partition) {
            StateSource::Memory | StateSource::NoOwner => {}
            StateSource::Store(epoch) => {
                in_store.push((*partition, epoch));
                resting.push(*partition);
            }
            StateSource::Lost => resting.push(*partition),
        }
    }
    let mut given = BTreeMap::new();
    if !in_store.is_empty() {
        for state in session.read_states(&in_store).await? {
            match encoding::decode(&state.state, state.age) {
                Ok(decoded) => drop(given.insert(state.partition, decoded)),
                Err(error) => {
                    let number = state.partition.0;
                    tracing::warn!(%error, "fleet: the state of partition {number} cannot be used");
                }
            }
        }
    }
    let rests = match resting.is_empty() {
        true => BTreeMap::new(),
        false => session.rests(&resting).await?,
    };
    let mut state = |partition: &Partition| match source(partition) {
        StateSource::Memory => PartitionState::Known,
        StateSource::NoOwner => PartitionState::Received(PartitionRecord::default(), vec![]),
        StateSource::Store(_) => match given.remove(partition) {
            Some((record, files)) => PartitionState::Received(record, files),
            None => PartitionState::Unknown,
        },
        StateSource::Lost => PartitionState::Unknown,
    };
    Ok(Takeover {
        partitions: taken
            .iter()
            .map(|(partition, epoch)| (*partition, *epoch, state(partition)))
            .collect(),
        rests,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crawlgate_fleet::ownership::table::ClaimReason;
    use crawlgate_fleet::partition::{FleetKey, PARTITIONS};
    use parking_lot::Mutex;

    use super::*;
    use crate::clock::{Clock, ManualClock};
    use crate::metrics::Metrics;
    use crate::pacing::pace::{HostPace, RequestKind};
    use crate::pipeline::admission::AdmissionLimits;
    use crate::robots::fetch_outcome::RobotsFetchOutcome;
    use crate::store::{HostStore, LimiterKey};

    const SECOND: Duration = Duration::from_secs(1);
    const POLITE: HostPace = HostPace {
        delay: Duration::from_secs(30),
        concurrency: 1,
        ..HostPace::UNLIMITED
    };
    const THIS: Incarnation = Incarnation(1);

    struct HandoverNode {
        handover: HostHandover,
        robots: Arc<NodeRobots>,
        hand: ManualClock,
    }

    /// Files of a test.
    #[derive(Default)]
    struct NodeRobots(Mutex<Vec<RobotsFileRecord>>);

    impl RobotsHandover for NodeRobots {
        fn records(&self, select: &mut dyn FnMut(&str, usize) -> bool) -> Vec<RobotsFileRecord> {
            let mut files = self.0.lock().clone();
            files.retain(|file| {
                let text = file.record.text.as_deref();
                select(&file.base, text.unwrap_or_default().len())
            });
            files
        }

        fn restore(&self, file: &RobotsFileRecord) {
            self.0.lock().push(file.clone());
        }
    }

    impl HandoverNode {
        fn new() -> Self {
            let (clock, hand) = Clock::manual();
            let limits = AdmissionLimits {
                per_host: 10,
                total: 10,
                max_wait: SECOND,
            };
            let metrics = Metrics::new(&[], &[]).unwrap();
            let admission = AdmissionQueue::new(HostStore::new(), limits, clock, metrics);
            let partitioner = Partitioner::new(FleetKey::new([7; 16]), PARTITIONS);
            let robots = Arc::<NodeRobots>::default();
            Self {
                handover: HostHandover::new(
                    Arc::new(admission),
                    Arc::clone(&robots) as Arc<dyn RobotsHandover>,
                    partitioner,
                ),
                robots,
                hand,
            }
        }

        fn partition(&self, host: &str) -> Partition {
            self.handover.partitioner.partition(host)
        }

        /// Sends a request if the host's turn has come.
        fn goes(&self, host: &str) -> bool {
            let key = LimiterKey {
                name: host,
                kind: RequestKind::Navigation,
            };
            let Some(mut slot) = self.handover.admission.try_acquire(key, &POLITE) else {
                return false;
            };
            slot.begin();
            slot.record_sent();
            true
        }

        /// The seconds until a request may go.
        fn wait(&self, host: &str) -> u32 {
            let mut waited = 0;
            while !self.goes(host) {
                self.hand.advance(SECOND);
                waited += 1;
                assert!(waited < 1_000);
            }
            waited
        }

        fn take(&mut self, host: &str, epoch: u64, state: PartitionState) {
            let partition = self.partition(host);
            self.handover.take_over(Takeover {
                partitions: vec![(partition, Epoch(epoch), state)],
                rests: BTreeMap::new(),
            });
        }

        /// The state of a host's partition as the next owner reads it.
        fn give(&mut self, host: &str, epoch: u64) -> PartitionState {
            let owned = vec![(self.partition(host), Epoch(epoch))];
            let collected = self.handover.collect(owned.clone())();
            self.handover.keep_outgoing(collected);
            let given = self.handover.take_outgoing(&owned);
            let [(_, _, text)] = given.as_slice() else {
                panic!("{given:?}");
            };
            let (record, files) = encoding::decode(text, Duration::ZERO).unwrap();
            PartitionState::Received(record, files)
        }
    }

    #[test]
    fn a_host_that_is_handed_over_keeps_its_delay() {
        let [mut a, mut b] = [(), ()].map(|()| HandoverNode::new());
        a.take(
            "a.test",
            1,
            PartitionState::Received(PartitionRecord::default(), vec![]),
        );
        assert!(a.goes("a.test"));
        a.hand.advance(10 * SECOND);
        let given = a.give("a.test", 1);
        b.take("a.test", 3, given);
        assert_eq!(b.wait("a.test"), 20);
        // A host that had none is not delayed, and neither is one of another partition.
        let same = (0..).map(|number| format!("{number}.test"));
        let mut same = same.filter(|host| b.partition(host) == b.partition("a.test"));
        assert!(b.goes(&same.next().unwrap()));
        assert!(b.goes("b.test"));
    }

    #[test]
    fn a_host_of_a_dead_owner_counts_as_asked_at_the_takeover_and_so_it_does_for_the_next_owner() {
        let [mut a, mut b, mut c] = [(), (), ()].map(|()| HandoverNode::new());
        // From an earlier ownership.
        assert!(a.goes("a.test"));
        a.hand.advance(100 * SECOND);
        a.take("a.test", 5, PartitionState::Unknown);
        assert!(!a.goes("a.test"));
        a.hand.advance(10 * SECOND);
        let given = a.give("a.test", 5);
        b.take("a.test", 7, given);
        assert_eq!(b.wait("a.test"), 20);
        b.hand.advance(SECOND);
        assert_eq!(b.wait("a.test"), 29);
        // The takeover is long ago: the request counts.
        let given = b.give("a.test", 7);
        c.take("a.test", 9, given);
        assert_eq!(c.wait("a.test"), 30);
    }

    #[test]
    fn files_of_a_partition_are_handed_over_as_far_as_there_is_room() {
        let [mut a, mut b] = [(), ()].map(|()| HandoverNode::new());
        let file = |base: &str, size: usize| RobotsFileRecord {
            base: base.into(),
            record: RobotsRecord {
                outcome: RobotsFetchOutcome::File,
                status: Some(200),
                text: Some("#".repeat(size).into()),
                etag: None,
                last_modified: None,
                age: SECOND,
                fresh_for: 60 * SECOND,
                stale_for: SECOND,
            },
        };
        for (base, size) in [
            ("http://a.test/", 1_000),
            ("https://a.test:8443/", MAX_ROBOTS_BYTES),
            ("https://a.test/", MAX_ROBOTS_BYTES - 1_000),
            ("http://b.test/", 10),
        ] {
            a.robots.restore(&file(base, size));
        }
        let given = a.give("a.test", 1);
        b.take("a.test", 3, given);
        let files = b.robots.0.lock();
        let bases: Vec<&str> = files.iter().map(|file| &*file.base).collect();
        assert_eq!(bases, ["http://a.test/", "https://a.test/"]);
        for (base, host) in [
            ("https://a.test/", Some("a.test")),
            ("http://a.test:81/", Some("a.test")),
            ("http://[::1]:81/", Some("::1")),
            ("http://192.0.2.1/", Some("192.0.2.1")),
            ("a.test", None),
        ] {
            assert_eq!(host_of(base), host, "{base}");
        }
    }

    #[test]
    fn a_state_is_in_memory_in_the_store_or_lost() {
        let mut node = HandoverNode::new();
        let partition = node.partition("a.test");
        node.take("a.test", 5, PartitionState::Unknown);
        let claim = |epoch, from: Option<Incarnation>| Claim {
            partition,
            epoch: Epoch(epoch),
            from: from.map(|owner| (owner, 9)),
            reason: ClaimReason::Free,
        };
        for (epoch, from, source) in [
            (0, None, StateSource::NoOwner),
            (1, None, StateSource::Store(Epoch(0))),
            (7, None, StateSource::Store(Epoch(6))),
            (5, Some(THIS), StateSource::Memory),
            // The answer to a take of this node was lost, and its state with it.
            (6, Some(THIS), StateSource::Lost),
            (5, Some(Incarnation(2)), StateSource::Lost),
        ] {
            let sources = node.handover.sources(&[claim(epoch, from)], THIS);
            assert_eq!(sources[&partition], source, "{epoch}, {from:?}");
        }
    }

    #[test]
    fn a_state_that_was_collected_in_an_earlier_ownership_is_not_given() {
        let mut node = HandoverNode::new();
        let partition = node.partition("a.test");
        let collected = node.handover.collect(vec![(partition, Epoch(5))])();
        assert_eq!(collected.len(), 1);
        node.handover.keep_outgoing(collected);
        assert!(
            node.handover
                .take_outgoing(&[(partition, Epoch(6))])
                .is_empty()
        );
        assert!(
            node.handover
                .take_outgoing(&[(partition, Epoch(5))])
                .is_empty()
        );
    }
}

//! Stops that several nodes share through a store, which may be away, lose an answer, or be restored from a copy.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crawlgate::clock::{Clock, ManualClock};
use crawlgate::metrics::Metrics;
use crawlgate::pipeline::stop_registry::{
    SharedStop, StopId, StopReason, StopRegistry, StopTarget,
};
use crawlgate::store::stops::StopsFile;

use super::press;
use crate::support::temp_dir::TempDir;

/// A store with a clock of its own.
#[derive(Clone, Default)]
struct ModelStore {
    generation: u64,
    /// Each with the second at which it ends.
    stops: BTreeMap<StopId, (SharedStop, Option<u64>)>,
}

impl ModelStore {
    fn add(&mut self, stop: &SharedStop, now: u64) {
        let end = stop
            .remaining
            .map(|remaining| now + remaining.as_secs_f64().round() as u64);
        let row = (stop.clone(), end);
        self.stops.entry(stop.id).or_insert(row);
    }

    /// The row of a lifted stop is kept.
    fn lift(&mut self, id: StopId, now: u64) {
        let stop = SharedStop {
            id,
            target: StopTarget::parse("lifted.test").unwrap(),
            reason: StopReason::new("lifted").unwrap(),
            since: Duration::ZERO,
            remaining: None,
        };
        self.stops.entry(id).or_insert((stop, None)).1 = Some(now);
    }

    fn active(&self, now: u64) -> Vec<SharedStop> {
        let active = self
            .stops
            .values()
            .filter(|(_, end)| end.is_none_or(|end| now < end));
        active
            .map(|(stop, end)| SharedStop {
                remaining: end.map(|end| Duration::from_secs(end - now)),
                ..stop.clone()
            })
            .collect()
    }
}

struct StopNode {
    directory: TempDir,
    clock: Clock,
    manual: ManualClock,
    stops: StopRegistry,
}

impl StopNode {
    /// A node whose wall clock is ahead.
    fn new(ahead: Duration) -> Self {
        let directory = TempDir::new();
        let (clock, manual) = Clock::manual();
        manual.advance(ahead);
        let stops = Self::open(&directory, &clock);
        Self {
            directory,
            clock,
            manual,
            stops,
        }
    }

    fn open(directory: &TempDir, clock: &Clock) -> StopRegistry {
        let stops = StopRegistry::new(10, clock.clone(), Metrics::new(&[], &[]).unwrap());
        stops
            .restore(StopsFile::in_directory(directory.path()))
            .unwrap();
        stops.enable_sharing();
        stops
    }

    fn restart(&mut self) {
        let _ = self.stops.persist();
        self.stops = Self::open(&self.directory, &self.clock);
    }

    /// Exchanges stops with the store, of which at most `steps` are carried out; the answer to the last one is lost.
    fn exchange(&self, store: &mut ModelStore, now: u64, mut steps: usize) {
        let generation = store.generation;
        let unshared = self.stops.unshared(generation);
        for stop in &unshared.added {
            store.add(stop, now);
            steps -= 1;
            if steps == 0 {
                return;
            }
            self.stops.mark_shared(stop.id, generation);
        }
        for id in &unshared.lifted {
            store.lift(*id, now);
            steps -= 1;
            if steps == 0 {
                return;
            }
            self.stops.mark_lifted(*id);
        }
        self.stops.apply_shared(generation, store.active(now));
    }

    fn ids(&self) -> BTreeSet<StopId> {
        self.stops.list().iter().map(|stop| stop.id).collect()
    }
}

/// The stops that operators want, each with the second at which it ends.
type Expected = BTreeMap<StopId, Option<u64>>;

fn active(expected: &Expected, now: u64) -> BTreeSet<StopId> {
    let active = expected
        .iter()
        .filter(|(_, end)| end.is_none_or(|end| now < end));
    active.map(|(id, _)| *id).collect()
}

#[test]
fn all_nodes_have_the_same_stops_once_the_store_has_answered() {
    const ALL: usize = usize::MAX;
    let (mut lost_answers, mut restored) = (0, 0);
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut store = ModelStore {
            generation: 1,
            ..ModelStore::default()
        };
        let mut copy = store.clone();
        let mut nodes =
            [100, 200, 3_600_000_300].map(|ahead| StopNode::new(Duration::from_micros(ahead)));
        let mut expected = Expected::new();
        let mut own: [BTreeSet<StopId>; 3] = Default::default();
        let mut has_restored = false;
        let mut now = 0;
        for _ in 0..60 {
            let at = random.usize(0..3);
            match random.u32(0..12) {
                0..3 => {
                    let seconds = random.bool().then(|| random.u64(1..30));
                    let stop = press(
                        &nodes[at].stops,
                        &format!("h{}.test", random.u8(..)),
                        seconds,
                    );
                    expected.insert(stop.stop.id, seconds.map(|seconds| now + seconds));
                    own[at].insert(stop.stop.id);
                }
                3..5 => {
                    let ids: Vec<StopId> = nodes[at].ids().into_iter().collect();
                    if let Some(id) = random.choice(&ids) {
                        assert!(nodes[at].stops.lift(*id).is_some());
                        expected.remove(id);
                    }
                }
                5 => nodes[at].restart(),
                6 => {
                    lost_answers += 1;
                    nodes[at].exchange(&mut store, now, random.usize(1..3));
                }
                7 if random.u8(..) < 16 => {
                    restored += 1;
                    has_restored = true;
                    store = ModelStore {
                        generation: store.generation + 1,
                        ..copy.clone()
                    };
                }
                7 => copy = store.clone(),
                8 | 9 => {
                    now += 1;
                    for node in &nodes {
                        node.manual.advance(Duration::from_secs(1));
                        node.stops.sweep();
                    }
                }
                _ => nodes[at].exchange(&mut store, now, ALL),
            }
            for (node, own) in nodes.iter().zip(&own) {
                let wanted: BTreeSet<StopId> =
                    active(&expected, now).intersection(own).copied().collect();
                assert!(
                    node.ids().is_superset(&wanted),
                    "seed {seed}: a node has lost its own stop"
                );
            }
        }
        for node in nodes.iter().chain(&nodes) {
            node.exchange(&mut store, now, ALL);
        }
        let wanted = active(&expected, now);
        for node in &nodes {
            assert_eq!(node.ids(), nodes[0].ids(), "seed {seed}");
            match has_restored {
                // A stop that was lifted since the copy was made may be back.
                true => assert!(node.ids().is_superset(&wanted), "seed {seed}"),
                false => assert_eq!(node.ids(), wanted, "seed {seed}"),
            }
        }
    }
    assert!(
        lost_answers > 100 && restored > 20,
        "{lost_answers} {restored}"
    );
}

#[test]
fn a_stop_from_before_the_fleet_becomes_one_of_the_fleet() {
    let mut store = ModelStore::default();
    let directory = TempDir::new();
    let (clock, manual) = Clock::manual();
    let single = StopRegistry::new(10, clock.clone(), Metrics::new(&[], &[]).unwrap());
    single
        .restore(StopsFile::in_directory(directory.path()))
        .unwrap();
    let id = press(&single, "a.test", None).stop.id;
    assert_eq!(id, StopId(1));
    let stops = StopNode::open(&directory, &clock);
    let node = StopNode {
        directory,
        clock,
        manual,
        stops,
    };
    node.exchange(&mut store, 0, usize::MAX);
    let other = StopNode::new(Duration::ZERO);
    other.exchange(&mut store, 0, usize::MAX);
    assert_eq!(other.ids(), BTreeSet::from([id]));
}

#[test]
fn a_store_that_has_lost_stops_gets_them_again() {
    let mut store = ModelStore::default();
    let node = StopNode::new(Duration::ZERO);
    press(&node.stops, "a.test", None);
    node.exchange(&mut store, 0, usize::MAX);
    let mut old = ModelStore::default();
    node.stops.forget_shared();
    node.exchange(&mut old, 0, usize::MAX);
    assert_eq!((old.stops.len(), node.ids().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_change_can_be_waited_for() {
    let node = StopNode::new(Duration::ZERO);
    let limit = Duration::from_secs(1);
    let id = press(&node.stops, "a.test", None).stop.id;
    assert!(!node.stops.wait_until_shared(id, limit).await);
    let share = async {
        node.stops.unshared_change().await;
        node.stops.mark_shared(id, 1);
    };
    assert!(tokio::join!(node.stops.wait_until_shared(id, limit), share).0);
    node.stops.lift(id);
    assert!(!node.stops.wait_until_shared(id, limit).await);
    let share = async {
        node.stops.unshared_change().await;
        node.stops.mark_lifted(id);
    };
    assert!(tokio::join!(node.stops.wait_until_shared(id, limit), share).0);
}

//! The operations of the store, on every kind of store, with a clock that the test advances.

use std::time::{Duration, Instant};

use crawlgate::clock::{Clock, ManualClock};
use crawlgate::pacing::host_limiter::LEASE_TIMEOUT;
use crawlgate::pacing::pace::{
    HostPace, Jitter, PaceDecision, PaceWait, RateLimit, RequestKind, WaitCause,
};
use crawlgate::pacing::response_class::{Challenge, ResponseClass};
use crawlgate::store::{HostRecord, HostStore, Lease, LeaseOutcome, LimiterKey, StoreStats};
use fastrand::Rng;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const POLITE: HostPace = HostPace {
    delay: SECOND,
    concurrency: 2,
    ..HostPace::UNLIMITED
};

fn page(name: &str) -> LimiterKey<'_> {
    LimiterKey {
        name,
        kind: RequestKind::Navigation,
    }
}

fn go(store: &HostStore, key: LimiterKey<'_>, pace: &HostPace, now: Instant) -> Lease {
    match store.try_acquire(key, pace, now) {
        PaceDecision::Granted(lease) => lease,
        PaceDecision::Wait(wait) => panic!("{key:?}: {wait:?}"),
    }
}

fn wait(store: &HostStore, key: LimiterKey<'_>, pace: &HostPace, now: Instant) -> PaceWait {
    match store.try_acquire(key, pace, now) {
        PaceDecision::Granted(_) => panic!("{key:?} went"),
        PaceDecision::Wait(wait) => wait,
    }
}

#[test]
fn keys_are_apart_and_classes_of_one_host_too() {
    let store = HostStore::new();
    let (clock, _hand) = Clock::manual();
    let embed = LimiterKey {
        kind: RequestKind::Embed,
        ..page("a.test")
    };
    let leases =
        [page("a.test"), page("b.test"), embed].map(|key| go(&store, key, &POLITE, clock.now()));
    for key in [page("a.test"), page("b.test"), embed] {
        assert_eq!(
            wait(&store, key, &POLITE, clock.now()).cause,
            WaitCause::Slots
        );
    }
    assert_eq!(
        store.sweep(clock.now()),
        StoreStats {
            hosts: 2,
            backing_off: 0,
            leases: 3
        }
    );
    drop(leases);
}

#[test]
fn rest_is_for_every_class_and_ends_one_request_at_a_time() {
    let store = HostStore::new();
    let (clock, manual_clock) = Clock::manual();
    let free = HostPace {
        delay: Duration::ZERO,
        ..POLITE
    };
    let embed = LimiterKey {
        kind: RequestKind::Embed,
        ..page("a.test")
    };
    let lease = go(&store, page("a.test"), &free, clock.now());
    let _ = lease.record_response(
        ResponseClass::Overloaded(Some(30 * SECOND)),
        Challenge::None,
        clock.now(),
    );
    lease.release(LeaseOutcome::Abandoned, clock.now());
    for key in [page("a.test"), embed] {
        let reported = wait(&store, key, &free, clock.now());
        assert_eq!(
            reported,
            PaceWait {
                duration: 30 * SECOND,
                cause: WaitCause::Backoff
            }
        );
    }
    assert_eq!(store.sweep(clock.now()).backing_off, 1);
    manual_clock.advance(30 * SECOND);
    let probe = go(&store, page("a.test"), &free, clock.now());
    assert_eq!(
        wait(&store, page("a.test"), &free, clock.now()).cause,
        WaitCause::Probe
    );
    probe.release(LeaseOutcome::Answered, clock.now());
    let _both = [(); 2].map(|()| go(&store, page("a.test"), &free, clock.now()));
    assert_eq!(store.sweep(clock.now()).backing_off, 0);
}

#[test]
fn only_idle_hosts_are_dropped() {
    let store = HostStore::new();
    let (clock, manual_clock) = Clock::manual();
    let held = go(&store, page("held.test"), &POLITE, clock.now());
    for host in 0..1_000 {
        let lease = go(&store, page(&format!("{host}.test")), &POLITE, clock.now());
        lease.renew(clock.now());
        lease.release(LeaseOutcome::Answered, clock.now());
    }
    assert_eq!(store.sweep(clock.now()).hosts, 1_001);
    manual_clock.advance(59 * SECOND);
    assert_eq!(store.sweep(clock.now()).hosts, 1_001);
    manual_clock.advance(2 * SECOND);
    // Its lease has expired, but still exists and may report an outcome.
    assert_eq!(
        store.sweep(clock.now()),
        StoreStats {
            hosts: 1,
            backing_off: 0,
            leases: 0
        }
    );
    held.release(LeaseOutcome::Answered, clock.now());
    manual_clock.advance(120 * SECOND);
    assert_eq!(store.sweep(clock.now()), StoreStats::default());
}

/// Requests for one key: some wait, some are sent late, some never end.
struct Traffic {
    store: HostStore,
    clock: Clock,
    manual_clock: ManualClock,
    rng: Rng,
    pace: HostPace,
    waiting: Vec<Instant>,
    flying: Vec<(Lease, Instant, Flight)>,
    sent: Vec<Instant>,
    granted: Vec<Instant>,
    ended: usize,
    /// The host moves from one node of a fleet to another now and then.
    moves: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Flight {
    Dialling,
    Reading,
}

impl Traffic {
    fn new(store: HostStore, seed: u64) -> Self {
        let (clock, manual_clock) = Clock::manual();
        let mut rng = Rng::with_seed(seed);
        let jitter = if rng.bool() {
            Jitter::NONE
        } else {
            Jitter::new(1.0, 1.5)
        };
        let rate = rng
            .bool()
            .then(|| RateLimit::new(rng.u32(1..5), SECOND, rng.u32(1..4)));
        let delay = rng.u32(0..4) * 100 * MS;
        let concurrency = rng.u32(1..5);
        let pace = HostPace {
            delay,
            jitter,
            rate,
            concurrency,
            ..HostPace::UNLIMITED
        };
        let waiting = vec![];
        let flying = vec![];
        let sent = vec![];
        let granted = vec![];
        Self {
            store,
            clock,
            manual_clock,
            rng,
            pace,
            waiting,
            flying,
            sent,
            granted,
            ended: 0,
            moves: false,
        }
    }

    /// Another node becomes the owner of the host: this one has handed it over, or was killed.
    fn move_host(&mut self) {
        let store = HostStore::new();
        store.enable_sharing(Box::new(|_| 0));
        if self.rng.bool() {
            // Requests that have not been sent are refused. Some of the others never end.
            let now = self.clock.now();
            let (dialling, reading): (Vec<_>, Vec<_>) = std::mem::take(&mut self.flying)
                .into_iter()
                .partition(|(_, _, flight)| *flight == Flight::Dialling);
            self.flying = reading;
            self.ended += dialling.len();
            let mut hanging = vec![];
            for (lease, _, _) in dialling {
                match self.rng.bool() {
                    true => lease.release(LeaseOutcome::Abandoned, now),
                    false => hanging.push(lease),
                }
            }
            let until = self.store.takeover(0);
            let mut found = vec![];
            self.store.for_each_host_record(
                now,
                |_| true,
                |name, record| found.push((name.clone(), record)),
            );
            self.manual_clock.advance(self.rng.u32(0..200) * MS);
            store.set_takeover(0, until);
            for (name, record) in found {
                store.restore_host(&name, &record, self.clock.now());
            }
        } else {
            self.ended += self.flying.len();
            self.flying.clear();
            store.set_takeover(0, Some(self.clock.now()));
        }
        self.store = store;
    }

    /// The head of the queue asks; returns the time until it has to ask again.
    fn pump(&mut self) -> Option<Duration> {
        while !self.waiting.is_empty() {
            let now = self.clock.now();
            match self.store.try_acquire(page("host.test"), &self.pace, now) {
                PaceDecision::Wait(wait) => {
                    assert!(!wait.duration.is_zero(), "{wait:?}");
                    assert!(wait.duration <= LEASE_TIMEOUT, "{wait:?}");
                    return Some(wait.duration);
                }
                PaceDecision::Granted(lease) if self.rng.u8(..) < 20 => {
                    // The client has left at the same moment.
                    lease.release(LeaseOutcome::Unused, now);
                    self.waiting.remove(0);
                    self.ended += 1;
                }
                PaceDecision::Granted(lease) => self.fly(lease, now),
            }
        }
        None
    }

    fn fly(&mut self, lease: Lease, now: Instant) {
        self.waiting.remove(0);
        self.granted.push(now);
        let live = self
            .flying
            .iter()
            .filter(|(_, since, _)| now < *since + LEASE_TIMEOUT)
            .count();
        assert!(
            live < self.pace.concurrency as usize,
            "{live} under way, {:?}",
            self.pace
        );
        self.flying.push((lease, now, Flight::Dialling));
    }

    /// An event of one of the requests in progress.
    fn move_one(&mut self) {
        if self.flying.is_empty() {
            return;
        }
        let place = self.rng.usize(..self.flying.len());
        let now = self.clock.now();
        let (lease, _, flight) = &self.flying[place];
        if *flight == Flight::Dialling && self.rng.u8(..) < 200 {
            lease.renew(now);
            self.sent.push(now);
            self.flying[place].1 = now;
            self.flying[place].2 = Flight::Reading;
            return;
        }
        let (lease, _, flight) = self.flying.swap_remove(place);
        self.ended += 1;
        match (flight, self.rng.u8(..)) {
            // Lost: its slot is free again when it expires.
            (Flight::Reading, 0..10) => drop(lease),
            (Flight::Reading, _) => lease.release(LeaseOutcome::Answered, now),
            (Flight::Dialling, _) => lease.release(LeaseOutcome::Abandoned, now),
        }
    }

    fn run(mut self) {
        let all = 300;
        let mut came = 0;
        let mut steps = 0;
        while self.ended < all {
            steps += 1;
            assert!(steps < 100_000, "a request waits for ever: {:?}", self.pace);
            if came < all && self.rng.u8(..) < 100 {
                self.waiting.push(self.clock.now());
                came += 1;
            }
            if self.moves && self.rng.u8(..) < 3 {
                self.move_host();
            }
            let asks_again = self.pump();
            self.move_one();
            let step = self.rng.u32(1..60) * MS;
            self.manual_clock.advance(
                asks_again
                    .filter(|_| self.flying.is_empty())
                    .unwrap_or(step),
            );
        }
        self.check();
    }

    fn check(&self) {
        // Without a delay, sending is not recorded, and grants count.
        let delay = self.pace.delay;
        fn gaps(times: &[Instant]) -> std::time::Duration {
            times
                .windows(2)
                .map(|w| w[1] - w[0])
                .min()
                .unwrap_or(SECOND)
        }
        assert!(gaps(&self.granted) >= delay, "{:?}", self.pace);
        assert!(gaps(&self.sent) >= delay, "{:?}", self.pace);
        let Some(rate) = self.pace.rate else { return };
        let burst = rate.burst().get() as usize;
        for window in self.granted.windows(burst + 1) {
            let first = window[0];
            let last = window[burst];
            assert!(
                last - first >= rate.interval(),
                "{:?}: {:?}",
                self.pace,
                last - first
            );
        }
    }
}

#[test]
fn limits_hold_and_every_request_ends_in_random_schedules() {
    for seed in 0..300 {
        Traffic::new(HostStore::new(), seed).run();
    }
}

#[test]
fn limits_hold_and_every_request_ends_though_the_host_moves_between_nodes() {
    for seed in 0..300 {
        let traffic = Traffic::new(HostStore::new(), seed);
        Traffic {
            moves: true,
            ..traffic
        }
        .run();
    }
}

#[test]
fn a_rest_is_noted_once_for_other_nodes_and_continues_there() {
    let (clock, manual_clock) = Clock::manual();
    let stores = [(); 2].map(|()| HostStore::new());
    let [store, other] = &stores;
    let complain = || {
        let lease = go(store, page("a.test"), &POLITE, clock.now());
        let class = ResponseClass::Overloaded(Some(30 * SECOND));
        let _ = lease.record_response(class, Challenge::None, clock.now());
        lease.release(LeaseOutcome::Abandoned, clock.now());
    };
    // Without a fleet, nothing is collected.
    complain();
    assert!(store.take_changed_rests().is_empty());
    manual_clock.advance(30 * SECOND);
    store.enable_sharing(Box::new(|_| 0));
    complain();
    let changed = store.take_changed_rests();
    assert_eq!(
        changed.iter().map(|name| &**name).collect::<Vec<_>>(),
        ["a.test"]
    );
    assert!(store.take_changed_rests().is_empty());
    store.put_back_changed_rests(changed);
    assert_eq!(store.take_changed_rests().len(), 1);

    let backoff = store.backoff_record("a.test", clock.now());
    let record = HostRecord {
        backoff,
        ..HostRecord::default()
    };
    other.restore_host("a.test", &record, clock.now());
    let left = wait(other, page("a.test"), &POLITE, clock.now());
    assert_eq!(left.cause, WaitCause::Backoff);
    assert!(left.duration >= 30 * SECOND && left.duration < 31 * SECOND);
    let snapshot = other.host_snapshot("a.test", clock.now()).unwrap();
    assert_eq!((snapshot.backoff_count, snapshot.last_sent), (2, None));
    assert_eq!(store.backoff_record("b.test", clock.now()), None);

    // A good response to the probe changes it, too; further ones do not.
    manual_clock.advance(30 * SECOND);
    for changes in [1, 1, 0] {
        manual_clock.advance(SECOND);
        let lease = go(store, page("a.test"), &POLITE, clock.now());
        lease.renew(clock.now());
        lease.release(LeaseOutcome::Answered, clock.now());
        assert_eq!(store.take_changed_rests().len(), changes);
    }
}

#[test]
fn hosts_that_were_taken_over_wait_for_their_delay_once() {
    let (clock, manual_clock) = Clock::manual();
    manual_clock.advance(100 * SECOND);
    let store = HostStore::new();
    let partition = |name: &str| u16::from(name.starts_with('b'));
    store.enable_sharing(Box::new(partition));
    let slow = HostPace {
        delay: 5 * SECOND,
        rate: Some(RateLimit::new(1, 8 * SECOND, 3)),
        ..HostPace::UNLIMITED
    };
    store.set_takeover(0, Some(clock.now()));
    manual_clock.advance(SECOND);
    // One that is not known, and one that is.
    let _b = go(&store, page("b.test"), &slow, clock.now());
    assert_eq!(
        wait(&store, page("a.test"), &slow, clock.now()),
        PaceWait {
            duration: 4 * SECOND,
            cause: WaitCause::Time
        }
    );
    assert_eq!(
        store
            .host_snapshot("a.test", clock.now())
            .unwrap()
            .until_next,
        7 * SECOND
    );
    manual_clock.advance(4 * SECOND);
    // The other node may have used the burst.
    assert_eq!(
        wait(&store, page("a.test"), &slow, clock.now()).duration,
        3 * SECOND
    );
    let addresses = LimiterKey {
        name: "@192.0.2.1",
        kind: RequestKind::Navigation,
    };
    let _address = go(&store, addresses, &slow, clock.now());
    manual_clock.advance(3 * SECOND);
    let lease = go(&store, page("a.test"), &slow, clock.now());
    lease.renew(clock.now());
    lease.release(LeaseOutcome::Answered, clock.now());
    // It is forgotten when this node knows all requests.
    let slow = HostPace { rate: None, ..slow };
    store.set_takeover(0, Some(clock.now()));
    assert_eq!(
        wait(&store, page("a2.test"), &slow, clock.now()).duration,
        5 * SECOND
    );
    store.set_takeover(0, None);
    assert_eq!(store.takeover(0), None);
    let _a2 = go(&store, page("a2.test"), &slow, clock.now());
}

#[test]
fn many_threads_at_one_host_never_have_more_than_its_slots() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let store = HostStore::new();
    let clock = Clock::system();
    let under_way = AtomicUsize::new(0);
    let pace = HostPace {
        delay: Duration::ZERO,
        concurrency: 3,
        ..POLITE
    };
    std::thread::scope(|scope| {
        (0..4).for_each(|_| {
            scope.spawn(|| {
                let mut went = 0;
                while went < 2_000 {
                    let PaceDecision::Granted(lease) =
                        store.try_acquire(page("host.test"), &pace, clock.now())
                    else {
                        std::thread::yield_now();
                        continue;
                    };
                    assert!(under_way.fetch_add(1, Ordering::SeqCst) < 3);
                    went += 1;
                    under_way.fetch_sub(1, Ordering::SeqCst);
                    lease.release(LeaseOutcome::Answered, clock.now());
                }
            });
        });
    });
    assert_eq!(store.sweep(clock.now()).leases, 0);
}

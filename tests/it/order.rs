//! The rules of the admission queue, without its callers: shares, turns, and no starvation.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crawlgate::clock::Clock;
use crawlgate::model::crawler::Crawler;
use crawlgate::model::rule_id::Slug;
use crawlgate::pacing::queue::{
    PROMOTION_INTERVAL, PriorityClass, QueueRank, QueueTicket, WaitOrder, WaitQueue,
};
use fastrand::Rng;

const SECOND: Duration = Duration::from_secs(1);
/// The number of grants after which the weights repeat.
const ROUND: u32 = 13_111;

/// A line in which every waiter is known by its number.
struct Queue {
    line: WaitQueue<()>,
    order: WaitOrder,
    now: Instant,
    next: u64,
    waiting: HashMap<u64, (PriorityClass, &'static str, Instant)>,
}

impl Queue {
    fn new(order: WaitOrder) -> Self {
        let now = Clock::manual().0.now();
        Self {
            line: WaitQueue::default(),
            order,
            now,
            next: 0,
            waiting: HashMap::new(),
        }
    }

    fn join(&mut self, class: PriorityClass, crawler: &'static str) -> QueueTicket {
        let ticket = QueueTicket {
            number: self.next,
            drawn_at: self.now,
        };
        self.next += 1;
        self.join_again(ticket, class, crawler);
        ticket
    }

    fn join_many(&mut self, count: usize, class: PriorityClass, crawler: &'static str) {
        for _ in 0..count {
            self.join(class, crawler);
        }
    }

    fn join_again(&mut self, ticket: QueueTicket, class: PriorityClass, crawler: &'static str) {
        let named = Crawler::new(&Slug::new(crawler).unwrap());
        self.line.enqueue(
            ticket,
            &named,
            QueueRank {
                class,
                order: self.order,
            },
            (),
        );
        self.waiting
            .insert(ticket.number, (class, crawler, ticket.drawn_at));
    }

    fn leave(&mut self, number: u64) {
        self.line.remove(number);
        self.waiting.remove(&number).unwrap();
    }

    fn best(&mut self) -> u64 {
        self.line.next_waiter(self.now).unwrap()
    }

    /// The best goes: its number, its class, and for how long it has waited.
    fn grant(&mut self) -> (u64, PriorityClass, Duration) {
        let best = self.best();
        assert_eq!(self.best(), best, "looking changes nothing");
        self.line.record_grant(best);
        let (class, _, since) = self.waiting.remove(&best).unwrap();
        assert_eq!(self.line.len(), self.waiting.len());
        (best, class, self.now - since)
    }

    fn of(&self, class: PriorityClass) -> Vec<u64> {
        let mut numbers: Vec<u64> = self
            .waiting
            .iter()
            .filter(|(_, (own, ..))| *own == class)
            .map(|(number, _)| *number)
            .collect();
        numbers.sort_unstable();
        numbers
    }
}

const CRAWLERS: [&str; 5] = ["ant", "bee", "cat", "dog", "eel"];

fn any_crawler(rng: &mut Rng) -> &'static str {
    CRAWLERS[rng.usize(..CRAWLERS.len())]
}

/// Somebody waits in every class all the time; who that is changes.
#[test]
fn after_each_round_every_class_has_its_exact_share() {
    let mut rng = Rng::with_seed(11);
    let mut queue = Queue::new(WaitOrder::Weighted);
    for class in PriorityClass::ALL {
        queue.join(class, "ant");
    }
    let mut granted: HashMap<PriorityClass, u32> = HashMap::new();
    for grant in 1..=4 * ROUND {
        let class = PriorityClass::ALL[rng.usize(..6)];
        match rng.u8(..) {
            0..100 if queue.of(class).len() < 8 => queue.join_many(1, class, any_crawler(&mut rng)),
            100..160 if queue.of(class).len() > 1 => {
                let those = queue.of(class);
                queue.leave(those[rng.usize(..those.len())]);
            }
            _ => {}
        }
        let (_, class, _) = queue.grant();
        if queue.of(class).is_empty() {
            queue.join(class, any_crawler(&mut rng));
        }
        *granted.entry(class).or_default() += 1;
        if grant % ROUND == 0 {
            for class in PriorityClass::ALL {
                assert_eq!(
                    granted[&class],
                    grant / ROUND * class.weight(),
                    "{class:?} after {grant}"
                );
            }
        }
    }
}

/// Wherever a stretch of grants begins, each class has had its share of it, give or take a few.
#[test]
fn shares_are_spread_over_the_round() {
    let mut queue = Queue::new(WaitOrder::Weighted);
    for class in PriorityClass::ALL {
        queue.join(class, "ant");
    }
    let mut granted = [0_u32; 6];
    for grant in 1..=ROUND {
        let (_, class, _) = queue.grant();
        queue.join(class, "ant");
        granted[class as usize] += 1;
        for class in PriorityClass::ALL {
            let share = f64::from(grant) * f64::from(class.weight()) / f64::from(ROUND);
            let off = f64::from(granted[class as usize]) - share;
            assert!(off.abs() < 2.0, "{class:?} is {off} off after {grant}");
        }
    }
}

/// The best grants to a line in which others come and go between the grants are those of a line in which they do not.
#[test]
fn a_departure_keeps_the_shares() {
    for order in [WaitOrder::Weighted, WaitOrder::Strict] {
        let mut rng = Rng::with_seed(5);
        let mut calm = Queue::new(order);
        let mut busy = Queue::new(order);
        let mut passers_by = 1_000_000;
        for number in 0..400 {
            let class = PriorityClass::ALL[rng.usize(..6)];
            let crawler = any_crawler(&mut rng);
            let ticket = QueueTicket {
                number,
                drawn_at: calm.now,
            };
            calm.join_again(ticket, class, crawler);
            busy.join_again(ticket, class, crawler);
        }
        while !calm.waiting.is_empty() {
            let passing: Vec<u64> = (0..rng.u64(0..4)).map(|some| passers_by + some).collect();
            passers_by += 4;
            for number in &passing {
                let ticket = QueueTicket {
                    number: *number,
                    drawn_at: busy.now,
                };
                busy.join_again(
                    ticket,
                    PriorityClass::ALL[rng.usize(..6)],
                    any_crawler(&mut rng),
                );
                busy.best();
            }
            passing.into_iter().for_each(|number| busy.leave(number));
            assert_eq!(calm.grant().0, busy.grant().0, "{order:?}");
        }
    }
}

#[test]
fn a_crawler_with_one_request_goes_next_or_second_however_many_others_have() {
    for order in [WaitOrder::Weighted, WaitOrder::Strict] {
        let mut queue = Queue::new(order);
        queue.join_many(1_000, PriorityClass::IndexFollow, "ant");
        for _ in 0..50 {
            let one = queue.join(PriorityClass::IndexFollow, "bee").number;
            let served = [queue.grant().0, queue.grant().0];
            assert!(served.contains(&one), "{order:?}: {served:?}");
        }
    }
}

#[test]
fn a_crawler_is_served_by_arrival_and_keeps_its_place_on_return() {
    for order in [WaitOrder::Weighted, WaitOrder::Strict] {
        let mut queue = Queue::new(order);
        let tickets: Vec<QueueTicket> = (0..10)
            .map(|_| queue.join(PriorityClass::Index, "ant"))
            .collect();
        queue.leave(3);
        queue.leave(0);
        queue.join_again(tickets[3], PriorityClass::Index, "ant");
        let served: Vec<u64> = (0..9).map(|_| queue.grant().0).collect();
        assert_eq!(served, [1, 2, 3, 4, 5, 6, 7, 8, 9], "{order:?}");
    }
}

/// Strict order with one grant a second, and always a request in the highest class: forty wait at any time.
fn crowded(rng: &mut Rng, ages: bool, seconds: u32) -> Vec<(PriorityClass, Duration)> {
    let mut queue = Queue::new(WaitOrder::Strict);
    let mut went = vec![];
    for class in PriorityClass::ALL {
        queue.join(class, any_crawler(rng));
    }
    for _ in 0..seconds {
        while queue.waiting.len() < 40 {
            let class = if queue.of(PriorityClass::User).len() < 20 {
                PriorityClass::User
            } else {
                PriorityClass::ALL[rng.usize(..6)]
            };
            queue.join(class, any_crawler(rng));
        }
        let (_, class, waited) = queue.grant();
        went.push((class, waited));
        if ages {
            queue.now += SECOND;
        }
    }
    went
}

#[test]
fn strict_order_with_ageing_starves_no_request() {
    // Who has come to the highest class has at most all others before it, each crawler's in turn.
    let most = 5 * PROMOTION_INTERVAL + 40 * SECOND;
    for seed in 0..8 {
        let went = crowded(&mut Rng::with_seed(seed), true, 3_000);
        for class in PriorityClass::ALL {
            let waits = went
                .iter()
                .filter(|(own, _)| *own == class)
                .map(|(_, waited)| *waited);
            let longest = waits
                .max()
                .unwrap_or_else(|| panic!("no {class:?} in seed {seed}"));
            assert!(
                longest <= most,
                "seed {seed}: a {class:?} has waited for {longest:?}"
            );
        }
    }
}

#[test]
fn without_time_strict_order_is_strict() {
    let went = crowded(&mut Rng::with_seed(1), false, 3_000);
    assert!(went.iter().all(|(class, _)| *class == PriorityClass::User));
}

#[test]
fn a_waiter_rises_by_one_class_each_half_minute() {
    let mut queue = Queue::new(WaitOrder::Strict);
    let low = queue.join(PriorityClass::Refresh, "ant").number;
    for class in [
        PriorityClass::Follow,
        PriorityClass::IndexFollow,
        PriorityClass::Index,
        PriorityClass::Redir,
        PriorityClass::User,
    ] {
        let above = queue.join(class, "bee").number;
        queue.now += PROMOTION_INTERVAL - SECOND;
        assert_eq!(queue.best(), above);
        queue.leave(above);
        queue.now += SECOND;
        queue.best();
        let level = queue.join(class, "bee").number;
        assert_eq!(queue.best(), low, "it is in {class:?} and was there first");
        queue.leave(level);
    }
    // One that was away in between has risen in the meantime.
    let ticket = QueueTicket {
        number: low,
        drawn_at: queue.now - 5 * PROMOTION_INTERVAL,
    };
    queue.leave(low);
    queue.join(PriorityClass::Redir, "bee");
    queue.join_again(ticket, PriorityClass::Refresh, "ant");
    assert_eq!(queue.best(), low);
}

#[test]
fn a_queue_takes_the_order_of_its_longest_waiter() {
    let mut queue = Queue::new(WaitOrder::Strict);
    let strict = queue.join(PriorityClass::Refresh, "ant").number;
    queue.order = WaitOrder::Weighted;
    queue.now += 2 * PROMOTION_INTERVAL;
    let low: Vec<u64> = (0..3)
        .map(|_| queue.join(PriorityClass::Follow, "bee").number)
        .collect();
    assert_eq!(queue.best(), strict, "it has risen highest");
    queue.leave(strict);
    queue.order = WaitOrder::Strict;
    queue.join_many(40, PriorityClass::IndexFollow, "bee");
    let served: Vec<u64> = (0..11).map(|_| queue.grant().0).collect();
    assert_eq!(
        served.iter().filter(|number| low.contains(number)).count(),
        1,
        "a tenth of what the others get"
    );
}

/// The number of requests ahead is right if no other request arrives.
#[test]
fn those_ahead_are_those_that_go_before() {
    let mut rng = Rng::with_seed(2);
    let mut queue = Queue::new(WaitOrder::Strict);
    for _ in 0..200 {
        queue.join(PriorityClass::ALL[rng.usize(..6)], any_crawler(&mut rng));
    }
    let reported: HashMap<u64, usize> = (0..200)
        .map(|number| (number, queue.line.count_ahead(number)))
        .collect();
    for place in 0..200 {
        let number = queue.grant().0;
        assert_eq!(reported[&number], place, "{number}");
    }
}

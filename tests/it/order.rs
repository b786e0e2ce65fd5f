//! The laws of the hold queue, by the line alone: shares, turns, and that nobody waits for ever.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crawlgate::clock::Clock;
use crawlgate::politeness::order::{Class, Line, Order, RISES_EVERY, Rank, Ticket};
use crawlgate::vocab::crawler::Crawler;
use crawlgate::vocab::rule_id::Slug;
use fastrand::Rng;

const SECOND: Duration = Duration::from_secs(1);
/// After so many grants the weights have come round.
const ROUND: u32 = 13_111;

/// A line in which every waiter is known by its number.
struct Queue {
    line: Line<()>,
    order: Order,
    now: Instant,
    next: u64,
    waiting: HashMap<u64, (Class, &'static str, Instant)>,
}

impl Queue {
    fn new(order: Order) -> Self {
        let now = Clock::manual().0.now();
        Self {
            line: Line::default(),
            order,
            now,
            next: 0,
            waiting: HashMap::new(),
        }
    }

    fn join(&mut self, class: Class, crawler: &'static str) -> Ticket {
        let ticket = Ticket {
            number: self.next,
            drawn: self.now,
        };
        self.next += 1;
        self.join_again(ticket, class, crawler);
        ticket
    }

    fn join_many(&mut self, count: usize, class: Class, crawler: &'static str) {
        for _ in 0..count {
            self.join(class, crawler);
        }
    }

    fn join_again(&mut self, ticket: Ticket, class: Class, crawler: &'static str) {
        let named = Crawler::new(&Slug::new(crawler).unwrap());
        self.line.join(
            ticket,
            &named,
            Rank {
                class,
                order: self.order,
            },
            (),
        );
        self.waiting
            .insert(ticket.number, (class, crawler, ticket.drawn));
    }

    fn leave(&mut self, number: u64) {
        self.line.leave(number);
        self.waiting.remove(&number).unwrap();
    }

    fn best(&mut self) -> u64 {
        self.line.best(self.now).unwrap()
    }

    /// The best goes: its number, its class, and for how long it has waited.
    fn grant(&mut self) -> (u64, Class, Duration) {
        let best = self.best();
        assert_eq!(self.best(), best, "looking changes nothing");
        self.line.taken(best);
        let (class, _, since) = self.waiting.remove(&best).unwrap();
        assert_eq!(self.line.len(), self.waiting.len());
        (best, class, self.now - since)
    }

    fn of(&self, class: Class) -> Vec<u64> {
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
    let mut queue = Queue::new(Order::Weighted);
    for class in Class::ALL {
        queue.join(class, "ant");
    }
    let mut granted: HashMap<Class, u32> = HashMap::new();
    for grant in 1..=4 * ROUND {
        let class = Class::ALL[rng.usize(..6)];
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
            for class in Class::ALL {
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
    let mut queue = Queue::new(Order::Weighted);
    for class in Class::ALL {
        queue.join(class, "ant");
    }
    let mut granted = [0_u32; 6];
    for grant in 1..=ROUND {
        let (_, class, _) = queue.grant();
        queue.join(class, "ant");
        granted[class as usize] += 1;
        for class in Class::ALL {
            let share = f64::from(grant) * f64::from(class.weight()) / f64::from(ROUND);
            let off = f64::from(granted[class as usize]) - share;
            assert!(off.abs() < 2.0, "{class:?} is {off} off after {grant}");
        }
    }
}

/// The best grants to a line in which others come and go between the grants are those of a line in which they do not.
#[test]
fn who_leaves_distorts_nothing() {
    for order in [Order::Weighted, Order::Strict] {
        let mut rng = Rng::with_seed(5);
        let (mut calm, mut busy) = (Queue::new(order), Queue::new(order));
        let mut passers_by = 1_000_000;
        for number in 0..400 {
            let (class, crawler) = (Class::ALL[rng.usize(..6)], any_crawler(&mut rng));
            let ticket = Ticket {
                number,
                drawn: calm.now,
            };
            calm.join_again(ticket, class, crawler);
            busy.join_again(ticket, class, crawler);
        }
        while !calm.waiting.is_empty() {
            let passing: Vec<u64> = (0..rng.u64(0..4)).map(|some| passers_by + some).collect();
            passers_by += 4;
            for number in &passing {
                let ticket = Ticket {
                    number: *number,
                    drawn: busy.now,
                };
                busy.join_again(ticket, Class::ALL[rng.usize(..6)], any_crawler(&mut rng));
                busy.best();
            }
            passing.into_iter().for_each(|number| busy.leave(number));
            assert_eq!(calm.grant().0, busy.grant().0, "{order:?}");
        }
    }
}

#[test]
fn a_crawler_with_one_request_goes_next_or_second_however_many_others_have() {
    for order in [Order::Weighted, Order::Strict] {
        let mut queue = Queue::new(order);
        queue.join_many(1_000, Class::IndexFollow, "ant");
        for _ in 0..50 {
            let one = queue.join(Class::IndexFollow, "bee").number;
            let served = [queue.grant().0, queue.grant().0];
            assert!(served.contains(&one), "{order:?}: {served:?}");
        }
    }
}

#[test]
fn within_a_crawler_arrival_decides_and_who_returns_stands_where_it_stood() {
    for order in [Order::Weighted, Order::Strict] {
        let mut queue = Queue::new(order);
        let tickets: Vec<Ticket> = (0..10).map(|_| queue.join(Class::Index, "ant")).collect();
        queue.leave(3);
        queue.leave(0);
        queue.join_again(tickets[3], Class::Index, "ant");
        let served: Vec<u64> = (0..9).map(|_| queue.grant().0).collect();
        assert_eq!(served, [1, 2, 3, 4, 5, 6, 7, 8, 9], "{order:?}");
    }
}

/// By strict order, one grant a second, and always somebody in the highest class: forty wait at any time.
fn crowded(rng: &mut Rng, ages: bool, seconds: u32) -> Vec<(Class, Duration)> {
    let mut queue = Queue::new(Order::Strict);
    let mut went = vec![];
    for class in Class::ALL {
        queue.join(class, any_crawler(rng));
    }
    for _ in 0..seconds {
        while queue.waiting.len() < 40 {
            let class = if queue.of(Class::User).len() < 20 {
                Class::User
            } else {
                Class::ALL[rng.usize(..6)]
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
fn in_strict_order_with_ageing_nobody_starves() {
    // Who has come to the highest class has at most all others before it, each crawler's in turn.
    let most = 5 * RISES_EVERY + 40 * SECOND;
    for seed in 0..8 {
        let went = crowded(&mut Rng::with_seed(seed), true, 3_000);
        for class in Class::ALL {
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
    assert!(went.iter().all(|(class, _)| *class == Class::User));
}

#[test]
fn a_waiter_rises_by_one_class_each_half_minute() {
    let mut queue = Queue::new(Order::Strict);
    let low = queue.join(Class::Refresh, "ant").number;
    for class in [
        Class::Follow,
        Class::IndexFollow,
        Class::Index,
        Class::Redir,
        Class::User,
    ] {
        let above = queue.join(class, "bee").number;
        queue.now += RISES_EVERY - SECOND;
        assert_eq!(queue.best(), above);
        queue.leave(above);
        queue.now += SECOND;
        queue.best();
        let level = queue.join(class, "bee").number;
        assert_eq!(queue.best(), low, "it is in {class:?} and was there first");
        queue.leave(level);
    }
    // One that was away in between has risen in the meantime.
    let ticket = Ticket {
        number: low,
        drawn: queue.now - 5 * RISES_EVERY,
    };
    queue.leave(low);
    queue.join(Class::Redir, "bee");
    queue.join_again(ticket, Class::Refresh, "ant");
    assert_eq!(queue.best(), low);
}

#[test]
fn a_line_takes_the_order_of_whoever_has_waited_longest() {
    let mut queue = Queue::new(Order::Strict);
    let strict = queue.join(Class::Refresh, "ant").number;
    queue.order = Order::Weighted;
    queue.now += 2 * RISES_EVERY;
    let low: Vec<u64> = (0..3)
        .map(|_| queue.join(Class::Follow, "bee").number)
        .collect();
    assert_eq!(queue.best(), strict, "it has risen highest");
    queue.leave(strict);
    queue.order = Order::Strict;
    queue.join_many(40, Class::IndexFollow, "bee");
    let served: Vec<u64> = (0..11).map(|_| queue.grant().0).collect();
    assert_eq!(
        served.iter().filter(|number| low.contains(number)).count(),
        1,
        "a tenth of what the others get"
    );
}

/// What one is told of those before it is what comes, where nobody else comes: its own class, with its crawlers' turns.
#[test]
fn those_ahead_are_those_that_go_before() {
    let mut rng = Rng::with_seed(2);
    let mut queue = Queue::new(Order::Strict);
    for _ in 0..200 {
        queue.join(Class::ALL[rng.usize(..6)], any_crawler(&mut rng));
    }
    let told: HashMap<u64, usize> = (0..200)
        .map(|number| (number, queue.line.ahead(number)))
        .collect();
    for place in 0..200 {
        let number = queue.grant().0;
        assert_eq!(told[&number], place, "{number}");
    }
}

//! The turns of the crawlers that wait in one class. The requests of each crawler go in the order
//! of arrival.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use crate::model::crawler::Crawler;

/// The waiting requests of one class.
#[derive(Debug, Default)]
pub(super) struct CrawlerTurns {
    /// The numbers of each crawler's requests, keyed by turn: the least recently served crawler
    /// first.
    queues: BTreeMap<TurnKey, BTreeSet<u64>>,
    /// The turns of the crawlers with waiting requests.
    turns: BTreeMap<CrawlerByName, TurnKey>,
    /// The last turns of all served crawlers, including those without waiting requests.
    last_served: BTreeMap<CrawlerByName, TurnKey>,
    /// The greatest number so far.
    latest_number: u64,
    /// The number of grants so far.
    granted_count: u64,
    len: usize,
}

/// A crawler's turn: after all requests that had arrived when it was last served or, if that is
/// later, at its arrival.
type TurnKey = (u64, u64);

/// A turn after all others.
const LAST_TURN: TurnKey = (u64::MAX, u64::MAX);

impl CrawlerTurns {
    /// Adds a waiting request. A crawler without waiting requests gets its turn after those that
    /// have some, unless the request has waited before and was refused: then its place is where it
    /// would be if it had stayed.
    pub(super) fn insert(&mut self, crawler: &Crawler, number: u64) {
        self.latest_number = self.latest_number.max(number);
        let turn = self
            .turns
            .get(crawler.as_str())
            .copied()
            .unwrap_or_else(|| self.begin_turn(crawler, number));
        if self.queues.entry(turn).or_default().insert(number) {
            self.len += 1;
        }
    }

    /// Removes a request without a grant. Its crawler keeps its turn.
    pub(super) fn remove(&mut self, crawler: &Crawler, number: u64) {
        let Some(turn) = self.turns.get(crawler.as_str()) else {
            return;
        };
        let Some(queue) = self.queues.get_mut(turn) else {
            return;
        };
        if queue.remove(&number) {
            self.len -= 1;
        }
        if queue.is_empty() {
            self.queues.remove(turn);
            self.turns.remove(crawler.as_str());
        }
    }

    /// Removes a request with a grant. Its crawler has had its turn.
    pub(super) fn record_grant(&mut self, crawler: &Crawler, number: u64) {
        self.remove(crawler, number);
        self.granted_count += 1;
        let turn = (self.latest_number, self.granted_count);
        self.last_served
            .insert(CrawlerByName(crawler.clone()), turn);
        let Some(before) = self.turns.get_mut(crawler.as_str()) else {
            return;
        };
        if let Some(queue) = self.queues.remove(&std::mem::replace(before, turn)) {
            self.queues.insert(turn, queue);
        }
    }

    /// The number of the request that goes first.
    pub(super) fn first(&self) -> Option<u64> {
        self.queues.first_key_value()?.1.first().copied()
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns how many requests go before one of them if none comes or leaves: the crawler's own
    /// earlier requests and, with each of these and perhaps once more, one of every other crawler.
    pub(super) fn count_before(&self, crawler: &Crawler, number: u64) -> usize {
        let Some(turn) = self.turns.get(crawler.as_str()) else {
            return 0;
        };
        let rounds = self
            .queues
            .get(turn)
            .map_or(0, |queue| queue.range(..number).count());
        self.count_served_in(rounds, *turn)
    }

    /// Returns how many requests would go before a new one.
    pub(super) fn count_before_new(&self, crawler: &Crawler) -> usize {
        let turn = self.turns.get(crawler.as_str());
        let rounds = turn
            .and_then(|own| self.queues.get(own))
            .map_or(0, BTreeSet::len);
        self.count_served_in(rounds, turn.copied().unwrap_or(LAST_TURN))
    }

    /// Returns how many requests go in this many rounds, and before `own` in the next one.
    fn count_served_in(&self, rounds: usize, own: TurnKey) -> usize {
        let others = self.queues.iter().filter(|(turn, _)| **turn != own);
        let served_others =
            others.map(|(turn, queue)| queue.len().min(rounds + usize::from(*turn < own)));
        rounds + served_others.sum::<usize>()
    }

    fn begin_turn(&mut self, crawler: &Crawler, number: u64) -> TurnKey {
        let served = self
            .last_served
            .get(crawler.as_str())
            .copied()
            .unwrap_or_default();
        let turn = served.max((number, 0));
        self.turns.insert(CrawlerByName(crawler.clone()), turn);
        turn
    }
}

/// A crawler compared by its name only, since its settings change with the configuration.
#[derive(Debug)]
struct CrawlerByName(Crawler);

impl Borrow<str> for CrawlerByName {
    fn borrow(&self) -> &str {
        self.0.as_str()
    }
}

impl PartialEq for CrawlerByName {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl Eq for CrawlerByName {}

impl PartialOrd for CrawlerByName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for CrawlerByName {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.as_str().cmp(other.0.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::rule_id::Slug;

    fn crawler(name: &str) -> Crawler {
        Crawler::new(&Slug::new(name).unwrap())
    }

    /// Takes the first request until none waits, and checks `count_before` for each of them.
    fn served(mut turns: CrawlerTurns, of: impl Fn(u64) -> &'static str) -> Vec<u64> {
        let mut order = vec![];
        let counts: BTreeMap<u64, usize> = turns
            .queues
            .values()
            .flatten()
            .map(|n| (*n, turns.count_before(&crawler(of(*n)), *n)))
            .collect();
        while let Some(first) = turns.first() {
            assert_eq!(counts[&first], order.len(), "{first}: requests before it");
            turns.record_grant(&crawler(of(first)), first);
            order.push(first);
        }
        assert_eq!((turns.len(), turns.turns.len()), (0, 0));
        order
    }

    fn of(number: u64) -> &'static str {
        ["a", "b", "c"][number as usize / 10 % 3]
    }

    fn waiting(numbers: &[u64]) -> CrawlerTurns {
        let mut turns = CrawlerTurns::default();
        numbers
            .iter()
            .for_each(|number| turns.insert(&crawler(of(*number)), *number));
        turns
    }

    #[test]
    fn crawlers_take_turns_and_each_goes_by_arrival() {
        assert_eq!(
            served(waiting(&[1, 2, 3, 4, 10, 20, 21]), of),
            [1, 10, 20, 2, 21, 3, 4]
        );
        // A request that was here before keeps its old number, and thus its turn.
        assert_eq!(served(waiting(&[12, 1, 11]), of), [1, 11, 12]);
        let mut turns = waiting(&[12, 22]);
        turns.record_grant(&crawler("b"), 12);
        turns.insert(&crawler("b"), 11);
        turns.insert(&crawler("a"), 1);
        assert_eq!(served(turns, of), [1, 22, 11], "b has been served since");
    }

    #[test]
    fn the_requests_ahead_of_a_new_one_are_counted() {
        for (waits, comes, before) in [
            (&[][..], 1, 0),
            (&[1, 2, 3], 4, 3),
            (&[1, 2, 3], 10, 1),
            (&[1, 2, 3, 20], 40, 2),
            (&[1, 2, 10], 11, 3),
            (&[10, 30, 31], 40, 2),
        ] {
            let mut turns = waiting(waits);
            assert_eq!(
                turns.count_before_new(&crawler(of(comes))),
                before,
                "{waits:?} {comes}"
            );
            turns.insert(&crawler(of(comes)), comes);
            assert_eq!(
                turns.count_before(&crawler(of(comes)), comes),
                before,
                "{waits:?} {comes}"
            );
        }
    }

    #[test]
    fn a_cancelled_request_does_not_use_a_turn() {
        let mut turns = waiting(&[1, 2, 10, 11]);
        turns.remove(&crawler("a"), 1);
        assert_eq!(served(turns, of), [2, 10, 11]);
        let mut turns = waiting(&[1, 10, 11]);
        turns.remove(&crawler("a"), 1);
        turns.insert(&crawler("a"), 31);
        assert_eq!(served(turns, of), [10, 31, 11], "it is new again");
    }
}

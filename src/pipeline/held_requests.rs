//! Requests that are held outside of their host's queue: until the end of a stop, or until their host's robots.txt is
//! known. They are counted, by host and by crawler, and limited in number.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::metrics::Metrics;
use crate::model::crawler::Crawler;

/// The number of waiting requests of each crawler.
pub(crate) type WaitingByCrawler = BTreeMap<Box<str>, usize>;

/// Requests that wait for the same kind of event.
#[derive(Debug)]
pub(crate) struct HeldRequests {
    waiters: Mutex<Waiters>,
    /// The maximum number of them.
    limit: usize,
    metrics: Metrics,
}

/// The waiting requests in the order of their arrival, in which they are woken.
#[derive(Debug, Default)]
struct Waiters {
    entries: BTreeMap<u64, Waiter>,
    next: u64,
}

#[derive(Debug)]
struct Waiter {
    notify: Arc<Notify>,
    host: Box<str>,
    crawler: Box<str>,
}

/// A request that is held. If it is dropped before its wait has ended, the client has left.
pub(crate) struct HeldRequest<'h> {
    requests: &'h HeldRequests,
    crawler: &'h Crawler,
    number: u64,
    notify: Arc<Notify>,
    end: HoldEnd,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum HoldEnd {
    Abandoned,
    Finished,
}

impl HeldRequests {
    /// Creates an empty set for at most `limit` requests.
    pub(crate) fn new(limit: usize, metrics: Metrics) -> Self {
        Self {
            waiters: Mutex::default(),
            limit,
            metrics,
        }
    }

    /// Adds a request; `None` if there are too many.
    pub(crate) fn join<'h>(&'h self, host: &str, crawler: &'h Crawler) -> Option<HeldRequest<'h>> {
        let mut waiters = self.waiters.lock();
        if waiters.entries.len() >= self.limit {
            return None;
        }
        let number = waiters.next;
        let notify = Arc::new(Notify::new());
        waiters.next += 1;
        let waiter = Waiter {
            notify: Arc::clone(&notify),
            host: host.into(),
            crawler: crawler.as_str().into(),
        };
        waiters.entries.insert(number, waiter);
        self.metrics.inc_held();
        Some(HeldRequest {
            requests: self,
            crawler,
            number,
            notify,
            end: HoldEnd::Abandoned,
        })
    }

    /// Wakes all of them.
    pub(crate) fn notify_all(&self) {
        self.waiters
            .lock()
            .entries
            .values()
            .for_each(|waiter| waiter.notify.notify_one());
    }

    /// Adds their numbers, by host.
    pub(crate) fn count_by_host(&self, hosts: &mut BTreeMap<Box<str>, WaitingByCrawler>) {
        for Waiter { host, crawler, .. } in self.waiters.lock().entries.values() {
            *hosts
                .entry(host.clone())
                .or_default()
                .entry(crawler.clone())
                .or_default() += 1;
        }
    }
}

impl HeldRequest<'_> {
    /// Waits until it is woken. An earlier notification is not lost.
    pub(crate) async fn notified(&self) {
        self.notify.notified().await;
    }

    /// Ends the wait with a result.
    pub(crate) fn finish<T>(mut self, result: T) -> T {
        self.end = HoldEnd::Finished;
        result
    }
}

impl Drop for HeldRequest<'_> {
    fn drop(&mut self) {
        self.requests.metrics.dec_held();
        self.requests.waiters.lock().entries.remove(&self.number);
        if self.end == HoldEnd::Abandoned {
            self.requests.metrics.record_held_disconnect(self.crawler);
        }
    }
}

//! How many connections there is room for: in all, and of one client.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::AcceptLimits;

/// Clients that are told at the same time that there is no room; more are not told.
const MAX_OVERLOAD_REPLIES: usize = 256;

/// Counts connections.
#[derive(Debug)]
pub struct ConnectionLimiter {
    max_connections: usize,
    max_per_client: usize,
    counts: Mutex<ConnectionCounts>,
}

#[derive(Debug, Default)]
struct ConnectionCounts {
    total: usize,
    overload_replies: usize,
    by_client: HashMap<IpAddr, usize>,
}

/// A connection's place; given back when dropped.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    limiter: Arc<ConnectionLimiter>,
    /// None for a farewell.
    client: Option<IpAddr>,
}

impl ConnectionLimiter {
    /// Room for as many as the limits say.
    pub fn new(limits: &AcceptLimits) -> Arc<Self> {
        Arc::new(Self {
            max_connections: limits.connections,
            max_per_client: limits.per_client,
            counts: Mutex::default(),
        })
    }

    /// How many connections are open.
    pub fn open_connections(&self) -> usize {
        self.lock().total
    }

    /// A place for a connection of this client, if there is one.
    pub(super) fn acquire(limiter: &Arc<Self>, client: IpAddr) -> Option<ConnectionSlot> {
        // A client of a socket for both families is the same by either.
        let client = client.to_canonical();
        let mut taken = limiter.lock();
        let of_client = taken.by_client.get(&client).copied().unwrap_or(0);
        if taken.total >= limiter.max_connections || of_client >= limiter.max_per_client {
            return None;
        }
        taken.total += 1;
        taken.by_client.insert(client, of_client + 1);
        Some(ConnectionSlot {
            limiter: Arc::clone(limiter),
            client: Some(client),
        })
    }

    /// A place for being told that there is none.
    pub(super) fn acquire_overload_reply(limiter: &Arc<Self>) -> Option<ConnectionSlot> {
        let mut taken = limiter.lock();
        if taken.overload_replies >= MAX_OVERLOAD_REPLIES {
            return None;
        }
        taken.overload_replies += 1;
        Some(ConnectionSlot {
            limiter: Arc::clone(limiter),
            client: None,
        })
    }

    fn lock(&self) -> MutexGuard<'_, ConnectionCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut taken = self.limiter.lock();
        let Some(client) = self.client else {
            taken.overload_replies -= 1;
            return;
        };
        taken.total -= 1;
        if let Some(count) = taken.by_client.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                taken.by_client.remove(&client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::proxy::head::{HeadLimits, HeadReaderSettings};

    fn room(connections: usize, per_client: usize) -> Arc<ConnectionLimiter> {
        let limits = HeadLimits {
            bytes: 1,
            fields: 1,
            target: 1,
        };
        let time = Duration::from_secs(1);
        let reader = HeadReaderSettings {
            limits,
            head: time,
            idle: time,
            write_stall: time,
        };
        ConnectionLimiter::new(&AcceptLimits {
            connections,
            per_client,
            reader,
        })
    }

    #[test]
    fn places_are_counted_by_client_and_given_back() {
        let room = room(3, 2);
        let (a, b): (IpAddr, IpAddr) = (
            "10.0.0.1".parse().unwrap(),
            "::ffff:10.0.0.1".parse().unwrap(),
        );
        let other = "2001:db8::1".parse().unwrap();
        let first = ConnectionLimiter::acquire(&room, a).unwrap();
        let second = ConnectionLimiter::acquire(&room, b).unwrap();
        assert!(ConnectionLimiter::acquire(&room, a).is_none());
        let third = ConnectionLimiter::acquire(&room, other).unwrap();
        assert!(ConnectionLimiter::acquire(&room, other).is_none());
        drop(first);
        assert!(ConnectionLimiter::acquire(&room, b).is_some());
        drop((second, third));
        assert!(room.lock().by_client.is_empty() && room.lock().total == 0);
    }

    #[test]
    fn not_everybody_is_told() {
        let room = room(0, 0);
        let told: Vec<_> = (0..MAX_OVERLOAD_REPLIES)
            .map(|_| ConnectionLimiter::acquire_overload_reply(&room).unwrap())
            .collect();
        assert!(ConnectionLimiter::acquire_overload_reply(&room).is_none());
        drop(told);
        assert!(ConnectionLimiter::acquire_overload_reply(&room).is_some());
    }
}

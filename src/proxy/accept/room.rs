//! How many connections there is room for: in all, and of one client.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::AcceptLimits;

/// Clients that are told at the same time that there is no room; more are not told.
const FAREWELLS: usize = 256;

/// Counts connections.
#[derive(Debug)]
pub struct Room {
    connections: usize,
    per_client: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    farewells: usize,
    by_client: HashMap<IpAddr, usize>,
}

/// A connection's place; given back when dropped.
#[derive(Debug)]
pub(super) struct Place {
    room: Arc<Room>,
    /// None for a farewell.
    client: Option<IpAddr>,
}

impl Room {
    /// Room for as many as the limits say.
    pub fn new(limits: &AcceptLimits) -> Arc<Self> {
        Arc::new(Self {
            connections: limits.connections,
            per_client: limits.per_client,
            taken: Mutex::default(),
        })
    }

    /// How many connections are open.
    pub fn open(&self) -> usize {
        self.lock().all
    }

    /// A place for a connection of this client, if there is one.
    pub(super) fn take(room: &Arc<Self>, client: IpAddr) -> Option<Place> {
        // A client of a socket for both families is the same by either.
        let client = client.to_canonical();
        let mut taken = room.lock();
        let of_client = taken.by_client.get(&client).copied().unwrap_or(0);
        if taken.all >= room.connections || of_client >= room.per_client {
            return None;
        }
        taken.all += 1;
        taken.by_client.insert(client, of_client + 1);
        Some(Place {
            room: Arc::clone(room),
            client: Some(client),
        })
    }

    /// A place for being told that there is none.
    pub(super) fn take_farewell(room: &Arc<Self>) -> Option<Place> {
        let mut taken = room.lock();
        if taken.farewells >= FAREWELLS {
            return None;
        }
        taken.farewells += 1;
        Some(Place {
            room: Arc::clone(room),
            client: None,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.room.lock();
        let Some(client) = self.client else {
            taken.farewells -= 1;
            return;
        };
        taken.all -= 1;
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
    use crate::proxy::head::{HeadLimits, ReaderSettings};

    fn room(connections: usize, per_client: usize) -> Arc<Room> {
        let limits = HeadLimits {
            bytes: 1,
            fields: 1,
            target: 1,
        };
        let time = Duration::from_secs(1);
        let reader = ReaderSettings {
            limits,
            head: time,
            idle: time,
            write_stall: time,
        };
        Room::new(&AcceptLimits {
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
        let first = Room::take(&room, a).unwrap();
        let second = Room::take(&room, b).unwrap();
        assert!(Room::take(&room, a).is_none());
        let third = Room::take(&room, other).unwrap();
        assert!(Room::take(&room, other).is_none());
        drop(first);
        assert!(Room::take(&room, b).is_some());
        drop((second, third));
        assert!(room.lock().by_client.is_empty() && room.lock().all == 0);
    }

    #[test]
    fn not_everybody_is_told() {
        let room = room(0, 0);
        let told: Vec<_> = (0..FAREWELLS)
            .map(|_| Room::take_farewell(&room).unwrap())
            .collect();
        assert!(Room::take_farewell(&room).is_none());
        drop(told);
        assert!(Room::take_farewell(&room).is_some());
    }
}

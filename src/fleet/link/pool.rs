//! Idle links, kept for later requests to the same node.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use parking_lot::Mutex;

use crate::clock::Clock;

use super::LinkPeer;
use super::connection::LinkConnection;

/// The longest idle time of a link. The other node closes it later, so that a request rarely meets a closed link.
const MAX_IDLE: Duration = Duration::from_secs(30);
/// The most idle links to one node.
const MAX_IDLE_LINKS: usize = 256;

/// Idle links by node.
#[derive(Debug)]
pub(super) struct LinkPool {
    clock: Clock,
    idle: Mutex<HashMap<LinkPeer, Vec<IdleLink>, RandomState>>,
}

#[derive(Debug)]
struct IdleLink {
    connection: Box<LinkConnection>,
    since: Instant,
}

impl LinkPool {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            clock,
            idle: Mutex::default(),
        }
    }

    /// Takes the link that was used last. A link that the other node has closed gives its request back.
    pub(super) fn take(&self, peer: &LinkPeer) -> Option<Box<LinkConnection>> {
        let now = self.clock.now();
        let last = self.idle.lock().get_mut(peer)?.pop();
        last.filter(|link| link.is_fresh(now))
            .map(|link| link.connection)
    }

    /// Stores a link after its last answer was read completely.
    pub(super) fn put(&self, connection: Box<LinkConnection>) {
        let since = self.clock.now();
        let mut idle = self.idle.lock();
        let links = match idle.get_mut(&connection.peer) {
            Some(links) => links,
            None => idle.entry(connection.peer.clone()).or_default(),
        };
        if links.len() < MAX_IDLE_LINKS {
            links.push(IdleLink { connection, since });
        }
    }

    /// Closes the links to a node.
    pub(super) fn remove(&self, peer: &LinkPeer) {
        self.idle.lock().remove(peer);
    }

    /// Closes links that have been idle too long, or that the other node has closed.
    pub(super) fn sweep(&self) {
        let now = self.clock.now();
        self.idle.lock().retain(|_, links| {
            links.retain_mut(|link| link.is_fresh(now) && link.connection.is_usable());
            !links.is_empty()
        });
    }
}

impl IdleLink {
    fn is_fresh(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) < MAX_IDLE
    }
}

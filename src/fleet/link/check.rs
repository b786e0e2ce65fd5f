//! Checks of links on which requests wait for an answer.
//!
//! A link that is cut between the nodes stays open at both ends, and if something in between acknowledges
//! what is sent, not even the system notices. A new connection needs an answer of the other node, unless
//! there is no TLS.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;

use super::{LinkClient, LinkError, LinkPeer};

/// The number of attempts in a row without an answer after which a node is not reached.
const ATTEMPTS: u32 = 2;

/// The latest checks of all nodes. Requests that wait for one node share them.
#[derive(Debug, Default)]
pub(super) struct LinkChecks {
    latest: Mutex<HashMap<LinkPeer, Arc<AsyncMutex<LatestCheck>>>>,
}

/// The latest check of a node; locked while the next one is under way.
#[derive(Debug, Default)]
struct LatestCheck {
    ended: Option<Instant>,
    is_reached: bool,
}

impl LatestCheck {
    /// Returns `true` if a request that wants a check at this time needs none of its own.
    fn is_recent(&self, wanted_at: Instant, interval: Duration) -> bool {
        self.ended.is_some_and(|ended| {
            ended >= wanted_at || (self.is_reached && wanted_at.duration_since(ended) < interval)
        })
    }
}

impl LinkChecks {
    fn latest(&self, peer: &LinkPeer) -> Arc<AsyncMutex<LatestCheck>> {
        Arc::clone(self.latest.lock().entry(peer.clone()).or_default())
    }

    /// Forgets nodes for which no request waits.
    pub(super) fn sweep(&self) {
        self.latest
            .lock()
            .retain(|_, latest| Arc::strong_count(latest) > 1);
    }
}

impl LinkClient {
    /// Waits until a node cannot be reached: connects to it, and again each `interval`, as long as it is polled.
    pub async fn wait_unreachable(&self, peer: &LinkPeer, interval: Duration) {
        loop {
            let wanted_at = self.clock.now();
            let latest = self.checks.latest(peer);
            let mut latest = latest.lock().await;
            if !latest.is_recent(wanted_at, interval) {
                // Few requests get here: the others need no room for it.
                latest.is_reached = Box::pin(self.check(peer)).await;
                latest.ended = Some(self.clock.now());
            }
            if !latest.is_reached {
                return;
            }
            drop(latest);
            tokio::time::sleep(interval).await;
        }
    }

    /// Connects to a node. Returns `false` if there is no answer in time. One that refuses the connection says nothing
    /// about the links that are open: it completes what is under way before it ends, or has too many of them. Nor
    /// does an error of this node.
    async fn check(&self, peer: &LinkPeer) -> bool {
        for _ in 0..ATTEMPTS {
            match self.connect(peer).await {
                Ok(connection) => {
                    self.record_connected(peer);
                    self.pool.put(connection);
                    return true;
                }
                Err(error @ LinkError::Timeout(_)) => self.record_failure(peer, error),
                Err(LinkError::Connect(..) | LinkError::Tls(..)) => return true,
            }
        }
        false
    }
}

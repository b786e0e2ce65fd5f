//! Limits the number of connections, in total and per client address, and the streams of each
//! client's HTTP/2 connections.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use super::AcceptLimits;

/// Counts connections.
#[derive(Debug)]
pub struct ConnectionLimiter {
    max_connections: usize,
    max_per_client: usize,
    max_overload_replies: usize,
    counts: Mutex<ConnectionCounts>,
}

#[derive(Debug, Default)]
struct ConnectionCounts {
    total: usize,
    /// The number of streams.
    streams: usize,
    /// The largest number of connections and streams since it was last taken.
    peak: usize,
    overload_replies: usize,
    by_client: HashMap<IpAddr, usize>,
    streams_by_client: HashMap<IpAddr, usize>,
}

impl ConnectionCounts {
    /// Returns the number of connections and streams.
    fn load(&self) -> usize {
        self.total + self.streams
    }

    fn raise_peak(&mut self) {
        self.peak = self.peak.max(self.load());
    }
}

/// The number of connections and streams together, which memory use follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLoad {
    pub open: usize,
    /// The largest number since the previous one was taken.
    pub peak: usize,
}

/// A connection's share of the limit, released on drop.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    limiter: Arc<ConnectionLimiter>,
    holder: SlotHolder,
}

/// The holder of a slot.
#[derive(Clone, Copy, Debug)]
enum SlotHolder {
    Client(IpAddr),
    /// A connection through a load balancer that has not named its client yet.
    Unnamed,
    OverloadReply,
}

/// A stream's share of its client's limit, released on drop.
#[derive(Debug)]
pub(crate) struct StreamSlot {
    limiter: Arc<ConnectionLimiter>,
    client: IpAddr,
}

impl ConnectionLimiter {
    /// Creates a limiter with these limits.
    pub fn new(limits: &AcceptLimits) -> Arc<Self> {
        Arc::new(Self {
            max_connections: limits.connections,
            max_per_client: limits.per_client,
            max_overload_replies: limits.overload_replies,
            counts: Mutex::default(),
        })
    }

    /// Returns the number of open connections and streams, and starts another peak.
    pub fn take_load(&self) -> ConnectionLoad {
        let mut counts = self.counts.lock();
        let open = counts.load();
        let peak = std::mem::replace(&mut counts.peak, open);
        ConnectionLoad { open, peak }
    }

    /// Returns a slot for a connection of this client, unless a limit is reached.
    pub(super) fn acquire(limiter: &Arc<Self>, client: IpAddr) -> Option<ConnectionSlot> {
        Self::acquire_unnamed(limiter)?.with_client(client)
    }

    /// Returns a slot for a connection whose client is not known yet, unless the limit is reached.
    pub(super) fn acquire_unnamed(limiter: &Arc<Self>) -> Option<ConnectionSlot> {
        let mut counts = limiter.counts.lock();
        if counts.total >= limiter.max_connections {
            return None;
        }
        counts.total += 1;
        counts.raise_peak();
        Some(ConnectionSlot {
            limiter: Arc::clone(limiter),
            holder: SlotHolder::Unnamed,
        })
    }

    /// Returns a slot for a stream of this client, unless it has as many streams as it may have
    /// connections.
    pub(crate) fn acquire_stream(limiter: &Arc<Self>, client: IpAddr) -> Option<StreamSlot> {
        let client = client.to_canonical();
        let mut counts = limiter.counts.lock();
        let streams = counts.streams_by_client.entry(client).or_default();
        if *streams >= limiter.max_per_client {
            return None;
        }
        *streams += 1;
        counts.streams += 1;
        counts.raise_peak();
        Some(StreamSlot {
            limiter: Arc::clone(limiter),
            client,
        })
    }

    /// Returns a slot for an overload response, unless too many are being sent.
    pub(super) fn acquire_overload_reply(limiter: &Arc<Self>) -> Option<ConnectionSlot> {
        let mut counts = limiter.counts.lock();
        if counts.overload_replies >= limiter.max_overload_replies {
            return None;
        }
        counts.overload_replies += 1;
        Some(ConnectionSlot {
            limiter: Arc::clone(limiter),
            holder: SlotHolder::OverloadReply,
        })
    }
}

impl ConnectionSlot {
    /// Assigns an unnamed slot to a client; returns `None` if the client's limit is reached.
    pub(super) fn with_client(mut self, client: IpAddr) -> Option<Self> {
        // A dual-stack socket reports an IPv4 client as an IPv4-mapped address.
        let client = client.to_canonical();
        {
            let mut counts = self.limiter.counts.lock();
            let count = counts.by_client.get(&client).copied().unwrap_or(0);
            if count < self.limiter.max_per_client {
                counts.by_client.insert(client, count + 1);
                self.holder = SlotHolder::Client(client);
            }
        }
        matches!(self.holder, SlotHolder::Client(_)).then_some(self)
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut counts = self.limiter.counts.lock();
        match self.holder {
            SlotHolder::Client(client) => {
                counts.total -= 1;
                decrement(&mut counts.by_client, client);
            }
            SlotHolder::Unnamed => counts.total -= 1,
            SlotHolder::OverloadReply => counts.overload_replies -= 1,
        }
    }
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        let mut counts = self.limiter.counts.lock();
        counts.streams -= 1;
        decrement(&mut counts.streams_by_client, self.client);
    }
}

fn decrement(counts: &mut HashMap<IpAddr, usize>, client: IpAddr) {
    if let Some(count) = counts.get_mut(&client) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&client);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::proxy::head::{HeadLimits, HeadReaderSettings};
    use crate::proxy::http2::Http2Settings;

    fn limiter(connections: usize, per_client: usize) -> Arc<ConnectionLimiter> {
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
        let http2 = Http2Settings {
            clients: true,
            prior_knowledge: false,
            streams: 1,
            resets: 1,
        };
        ConnectionLimiter::new(&AcceptLimits {
            connections,
            per_client,
            overload_replies: 4,
            reader,
            http2,
        })
    }

    #[test]
    fn slots_are_counted_per_client_and_released() {
        let limiter = limiter(3, 2);
        let client: IpAddr = "10.0.0.1".parse().unwrap();
        let mapped: IpAddr = "::ffff:10.0.0.1".parse().unwrap();
        let other = "2001:db8::1".parse().unwrap();
        let first = ConnectionLimiter::acquire(&limiter, client).unwrap();
        let second = ConnectionLimiter::acquire(&limiter, mapped).unwrap();
        assert!(ConnectionLimiter::acquire(&limiter, client).is_none());
        let third = ConnectionLimiter::acquire(&limiter, other).unwrap();
        assert!(ConnectionLimiter::acquire(&limiter, other).is_none());
        drop(first);
        assert!(ConnectionLimiter::acquire(&limiter, mapped).is_some());
        drop((second, third));
        let counts = limiter.counts.lock();
        assert!(counts.by_client.is_empty() && counts.total == 0);
    }

    #[test]
    fn streams_have_a_limit_of_their_own() {
        let limiter = limiter(3, 2);
        let client: IpAddr = "10.0.0.1".parse().unwrap();
        let mapped: IpAddr = "::ffff:10.0.0.1".parse().unwrap();
        let connection = ConnectionLimiter::acquire(&limiter, client).unwrap();
        let streams =
            [client, mapped].map(|from| ConnectionLimiter::acquire_stream(&limiter, from));
        assert!(streams.iter().all(Option::is_some));
        assert!(ConnectionLimiter::acquire_stream(&limiter, client).is_none());
        drop(streams);
        assert!(ConnectionLimiter::acquire_stream(&limiter, mapped).is_some());
        assert!(limiter.counts.lock().streams_by_client.is_empty());
        drop(connection);
    }

    #[test]
    fn connections_and_streams_add_up_to_a_peak() {
        let limiter = limiter(3, 2);
        let client: IpAddr = "10.0.0.1".parse().unwrap();
        let check = |open, peak| {
            assert_eq!(limiter.take_load(), ConnectionLoad { open, peak });
        };
        check(0, 0);
        let connection = ConnectionLimiter::acquire(&limiter, client);
        let stream = ConnectionLimiter::acquire_stream(&limiter, client);
        drop(ConnectionLimiter::acquire_stream(&limiter, client));
        check(2, 3);
        check(2, 2);
        drop((connection, stream));
        check(0, 2);
        check(0, 0);
    }

    #[test]
    fn overload_responses_are_limited() {
        let limiter = limiter(0, 0);
        let slots: Vec<_> = (0..4)
            .map(|_| ConnectionLimiter::acquire_overload_reply(&limiter).unwrap())
            .collect();
        assert!(ConnectionLimiter::acquire_overload_reply(&limiter).is_none());
        drop(slots);
        assert!(ConnectionLimiter::acquire_overload_reply(&limiter).is_some());
    }
}

//! The open connections of the admin listener: which one is closed when another arrives and no place is free, and how
//! many requests of the API may be in progress.
//!
//! Probes and scrapes need no token, so whoever reaches the listener can hold connections. They must not shut out
//! others: a new connection takes the place of one that has not sent its request yet, else of one whose client does
//! not read its response, and of the client with the most of these. Requests of the API are never cut off for that;
//! they have half of the places, and one client has half of those.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// The connections of an admin server.
#[derive(Clone, Debug)]
pub struct AdminConnections {
    max_connections: usize,
    places: Arc<Semaphore>,
    /// By number, so that the oldest is first.
    open: Arc<Mutex<OpenConnections>>,
}

#[derive(Debug, Default)]
struct OpenConnections {
    next_number: u64,
    by_number: BTreeMap<u64, OpenEntry>,
}

#[derive(Debug)]
struct OpenEntry {
    client: IpAddr,
    phase: ConnectionPhase,
    /// Sent to when another connection takes the place of this one.
    evict: oneshot::Sender<()>,
}

/// The progress of a connection, which carries one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionPhase {
    /// The head of its request has not arrived.
    AwaitingHead,
    /// Its response needs no token: a probe, the metrics, or a refusal.
    Open,
    /// It is a request of the API, and has the token, if one is configured.
    Api,
}

/// The place of one connection, freed on drop.
#[derive(Debug)]
pub struct AdminConnection {
    /// The address of the listener to which the client has connected.
    pub(super) local: SocketAddr,
    /// The address of the client.
    pub(super) client: IpAddr,
    number: u64,
    connections: AdminConnections,
    _permit: OwnedSemaphorePermit,
}

/// Resolves to `Ok` when the connection must be closed, to make room for another one.
pub type Eviction = oneshot::Receiver<()>;

impl AdminConnections {
    pub(super) fn new(max_connections: usize) -> Self {
        Self {
            max_connections,
            places: Arc::new(Semaphore::new(max_connections)),
            open: Arc::default(),
        }
    }

    /// Returns a place for a connection, if necessary that of another one.
    pub async fn admit(
        &self,
        client: IpAddr,
        local: SocketAddr,
    ) -> Option<(AdminConnection, Eviction)> {
        let permit = match Arc::clone(&self.places).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                self.evict_one();
                Arc::clone(&self.places).acquire_owned().await.ok()?
            }
        };
        let (evict, eviction) = oneshot::channel();
        let mut open = self.open.lock();
        let number = open.next_number;
        open.next_number += 1;
        let entry = OpenEntry {
            client: client_network(client),
            phase: ConnectionPhase::AwaitingHead,
            evict,
        };
        open.by_number.insert(number, entry);
        let connection = AdminConnection {
            local,
            client,
            number,
            connections: self.clone(),
            _permit: permit,
        };
        Some((connection, eviction))
    }

    fn evict_one(&self) {
        let mut open = self.open.lock();
        let victim = [ConnectionPhase::AwaitingHead, ConnectionPhase::Open]
            .into_iter()
            .find_map(|phase| open.oldest_of_busiest_client(phase));
        if let Some(entry) = victim.and_then(|number| open.by_number.remove(&number)) {
            let _ = entry.evict.send(());
        }
    }

    /// Waits until there are no connections. Call it after the server has stopped accepting.
    pub async fn wait_until_closed(&self) {
        let all = u32::try_from(self.max_connections).unwrap_or(u32::MAX);
        let _ = self.places.acquire_many(all).await;
    }
}

impl OpenConnections {
    /// Returns the oldest connection in this phase of the client that has the most of them.
    fn oldest_of_busiest_client(&self, phase: ConnectionPhase) -> Option<u64> {
        let mut by_client: BTreeMap<IpAddr, (usize, Reverse<u64>)> = BTreeMap::new();
        for (number, entry) in &self.by_number {
            if entry.phase == phase {
                let (count, _) = by_client
                    .entry(entry.client)
                    .or_insert((0, Reverse(*number)));
                *count += 1;
            }
        }
        let (_, Reverse(oldest)) = by_client.into_values().max()?;
        Some(oldest)
    }
}

impl AdminConnection {
    /// Records that the head of the request has arrived.
    pub(super) fn begin_response(&self) {
        self.set_phase(ConnectionPhase::Open);
    }

    /// Records that the request is one of the API. Returns `false` if too many are in progress already.
    pub(super) fn begin_api(&self) -> bool {
        let max_total = self.connections.max_connections.div_ceil(2);
        let max_per_client = max_total.div_ceil(2);
        let mut open = self.connections.open.lock();
        let Some(client) = open.by_number.get(&self.number).map(|entry| entry.client) else {
            return false;
        };
        let api = open
            .by_number
            .values()
            .filter(|entry| entry.phase == ConnectionPhase::Api);
        let (total, of_client) = api.fold((0, 0), |(total, of_client), entry| {
            (total + 1, of_client + usize::from(entry.client == client))
        });
        if total >= max_total || of_client >= max_per_client {
            return false;
        }
        if let Some(entry) = open.by_number.get_mut(&self.number) {
            entry.phase = ConnectionPhase::Api;
        }
        true
    }

    fn set_phase(&self, phase: ConnectionPhase) {
        let mut open = self.connections.open.lock();
        if let Some(entry) = open.by_number.get_mut(&self.number) {
            entry.phase = phase;
        }
    }
}

impl Drop for AdminConnection {
    fn drop(&mut self) {
        self.connections.open.lock().by_number.remove(&self.number);
    }
}

/// Returns the client as far as one user controls it: an IPv4 address, or the first 64 bits of an IPv6 address.
fn client_network(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(
            address.to_bits() & !u128::from(u64::MAX),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: &str = "127.0.0.1:3129";

    async fn admit(connections: &AdminConnections, client: &str) -> (AdminConnection, Eviction) {
        connections
            .admit(client.parse().unwrap(), LOCAL.parse().unwrap())
            .await
            .unwrap()
    }

    /// Admits a client; the place that it gets must be that of the connection whose eviction is given.
    async fn admit_instead_of(
        connections: &AdminConnections,
        client: &str,
        (victim, eviction): (AdminConnection, Eviction),
    ) -> (AdminConnection, Eviction) {
        let leave = async {
            eviction.await.expect("this one is evicted");
            drop(victim);
        };
        tokio::join!(admit(connections, client), leave).0
    }

    #[tokio::test]
    async fn the_busiest_clients_oldest_connection_without_a_request_makes_room() {
        let connections = AdminConnections::new(4);
        let probe = admit(&connections, "10.0.0.1").await;
        let first = admit(&connections, "10.0.0.2").await;
        first.0.begin_response();
        let second = admit(&connections, "10.0.0.2").await;
        let third = admit(&connections, "10.0.0.2").await;
        let fourth = admit_instead_of(&connections, "10.0.0.3", second).await;
        // One each: the oldest.
        let fifth = admit_instead_of(&connections, "10.0.0.4", probe).await;
        for connection in [&third, &fourth, &fifth] {
            connection.0.begin_response();
        }
        // None waits for its request: one that does not read its response.
        let _sixth = admit_instead_of(&connections, "10.0.0.5", first).await;
        drop((third, fourth, fifth));
    }

    #[tokio::test]
    async fn the_api_has_half_of_the_places_and_a_client_half_of_these() {
        let connections = AdminConnections::new(8);
        let mut api = Vec::new();
        // Two addresses of one IPv6 network are one client.
        for client in ["2001:db8::1", "2001:db8::2"] {
            let (connection, eviction) = admit(&connections, client).await;
            connection.begin_response();
            assert!(connection.begin_api());
            api.push((connection, eviction));
        }
        let (third, _) = admit(&connections, "2001:db8::3").await;
        assert!(!third.begin_api());
        for client in ["10.0.0.1", "10.0.0.1", "10.0.0.2"] {
            let (connection, eviction) = admit(&connections, client).await;
            assert_eq!(connection.begin_api(), api.len() < 4, "{client}");
            if api.len() < 4 {
                api.push((connection, eviction));
            }
        }
        drop(api.pop());
        assert!(third.begin_api() || admit(&connections, "10.0.0.3").await.0.begin_api());
        // Requests of the API are not evicted.
        let mut probes = Vec::new();
        for _ in 0..4 {
            probes.push(admit(&connections, "10.0.0.4").await);
        }
        let _new = admit_instead_of(&connections, "10.0.0.4", probes.remove(0)).await;
        for (_, eviction) in &mut api {
            assert!(eviction.try_recv().is_err());
        }
    }
}

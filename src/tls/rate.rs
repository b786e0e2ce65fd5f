//! How fast certificates are made for one client: governor's cell-rate algorithm on our clock, and a line to wait in.
//!
//! Clients are forgotten when they are quiet for longer than their burst needs to be whole again.

use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use moka::sync::Cache;
use tokio::sync::{Mutex, MutexGuard};

use crate::clock::Clock;

/// At rest a client may have so many seconds' worth of certificates made at once.
const BURST_SECONDS: u32 = 10;
/// How many clients are told apart at a time.
const CLIENTS: u64 = 10_000;
/// Several bursts.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// The rates of all clients.
pub(super) struct Rates {
    clients: Cache<IpAddr, Arc<ClientRate>>,
    quota: Quota,
    clock: Clock,
}

/// The rate of one client, and the line of those of its handshakes that need a certificate.
pub(super) struct ClientRate {
    rate: RateLimiter<NotKeyed, InMemoryState, Ticks, NoOpMiddleware<Instant>>,
    line: Mutex<()>,
    /// Whether who is at the head of the line waits for the rate, not for a signature.
    short: AtomicBool,
}

/// Our clock, as governor asks for the time.
#[derive(Clone, Debug)]
struct Ticks(Clock);

impl governor::clock::Clock for Ticks {
    type Instant = Instant;

    fn now(&self) -> Instant {
        self.0.now()
    }
}

impl Rates {
    /// At least one a second.
    pub(super) fn new(per_second: u32, clock: Clock) -> Self {
        let rate = NonZeroU32::new(per_second).unwrap_or(NonZeroU32::MIN);
        let burst = rate.saturating_mul(NonZeroU32::new(BURST_SECONDS).unwrap_or(NonZeroU32::MIN));
        Self {
            clients: Cache::builder()
                .max_capacity(CLIENTS)
                .time_to_idle(FORGOTTEN_AFTER)
                .build(),
            quota: Quota::per_second(rate).allow_burst(burst),
            clock,
        }
    }

    pub(super) fn of(&self, client: IpAddr) -> Arc<ClientRate> {
        self.clients.get_with(network(client), || {
            let rate = RateLimiter::direct_with_clock(self.quota, Ticks(self.clock.clone()));
            Arc::new(ClientRate {
                rate,
                line: Mutex::new(()),
                short: AtomicBool::new(false),
            })
        })
    }
}

/// Whoever has one IPv6 address has its whole /64.
fn network(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
        }
        address @ IpAddr::V4(_) => address,
    }
}

impl ClientRate {
    /// Takes one.
    ///
    /// # Errors
    /// The time until there will be one.
    pub(super) fn take(&self) -> Result<(), Duration> {
        let taken = self.rate.check().map_err(|until| {
            let now = governor::clock::Clock::now(self.rate.clock());
            until.wait_time_from(now)
        });
        self.short.store(taken.is_err(), Ordering::Relaxed);
        taken
    }

    /// Whether who is at the head of the line waits for the rate.
    pub(super) fn is_short(&self) -> bool {
        self.short.load(Ordering::Relaxed) && self.line.try_lock().is_err()
    }

    /// Waits until nobody of this client is before.
    pub(super) async fn turn(&self) -> MutexGuard<'_, ()> {
        self.line.lock().await
    }
}

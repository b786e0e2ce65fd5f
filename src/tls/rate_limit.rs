//! The rate limit of certificates per client: governor's cell-rate algorithm on the process's
//! clock, with a queue.
//!
//! A client is removed when it has been idle longer than its burst needs to recover.

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

/// The size of a burst, in seconds of the rate.
const BURST_SECONDS: u32 = 10;
/// The maximum number of clients that are tracked at a time.
const MAX_CLIENTS: u64 = 10_000;
/// Several bursts.
const CLIENT_TTL: Duration = Duration::from_secs(60);

/// The rate limits of all clients.
pub(super) struct IssueRateLimits {
    clients: Cache<IpAddr, Arc<ClientRateLimit>>,
    quota: Quota,
    clock: Clock,
}

/// The rate limit of one client, and the queue of its handshakes that need a certificate.
pub(super) struct ClientRateLimit {
    limiter: RateLimiter<NotKeyed, InMemoryState, GovernorClock, NoOpMiddleware<Instant>>,
    queue: Mutex<()>,
    /// `true` if the head of the queue waits for the rate, not for a signature.
    rate_limited: AtomicBool,
}

/// Adapts [`Clock`] to governor.
#[derive(Clone, Debug)]
struct GovernorClock(Clock);

impl governor::clock::Clock for GovernorClock {
    type Instant = Instant;

    fn now(&self) -> Instant {
        self.0.now()
    }
}

impl IssueRateLimits {
    /// Creates limits of `per_second` certificates, at least one.
    pub(super) fn new(per_second: u32, clock: Clock) -> Self {
        let rate = NonZeroU32::new(per_second).unwrap_or(NonZeroU32::MIN);
        let burst = rate.saturating_mul(NonZeroU32::new(BURST_SECONDS).unwrap_or(NonZeroU32::MIN));
        Self {
            clients: Cache::builder()
                .max_capacity(MAX_CLIENTS)
                .time_to_idle(CLIENT_TTL)
                .build(),
            quota: Quota::per_second(rate).allow_burst(burst),
            clock,
        }
    }

    pub(super) fn for_client(&self, client: IpAddr) -> Arc<ClientRateLimit> {
        self.clients.get_with(client_network(client), || {
            let rate =
                RateLimiter::direct_with_clock(self.quota, GovernorClock(self.clock.clone()));
            Arc::new(ClientRateLimit {
                limiter: rate,
                queue: Mutex::new(()),
                rate_limited: AtomicBool::new(false),
            })
        })
    }
}

/// Returns the address, or the /64 network of an IPv6 address: its owner has the whole network.
fn client_network(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
        }
        address @ IpAddr::V4(_) => address,
    }
}

impl ClientRateLimit {
    /// Takes one certificate from the rate.
    ///
    /// # Errors
    /// Returns the time until one is available.
    pub(super) fn try_acquire(&self) -> Result<(), Duration> {
        let result = self.limiter.check().map_err(|not_until| {
            let now = governor::clock::Clock::now(self.limiter.clock());
            not_until.wait_time_from(now)
        });
        self.rate_limited.store(result.is_err(), Ordering::Relaxed);
        result
    }

    /// Returns `true` if the head of the queue waits for the rate.
    pub(super) fn is_rate_limited(&self) -> bool {
        self.rate_limited.load(Ordering::Relaxed) && self.queue.try_lock().is_err()
    }

    /// Waits for the client's turn in its queue.
    pub(super) async fn wait_turn(&self) -> MutexGuard<'_, ()> {
        self.queue.lock().await
    }
}

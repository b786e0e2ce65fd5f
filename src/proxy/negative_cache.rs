//! Addresses that have recently refused a connection: a request to such an address is answered at
//! once.
//!
//! Only connections by this proxy count; a successful one removes the entry. The cache is
//! independent of a host's pace, which takes the host's failures into account separately. The
//! `resolve` module remembers names that do not exist.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::clock::Clock;

use super::dial::{DialError, MAX_ATTEMPTS};

/// The time for which an address is assumed to refuse connections.
pub const REFUSED_TTL: Duration = Duration::from_secs(30);
/// The maximum number of remembered addresses; further ones are dialled again.
const MAX_ADDRESSES: usize = 10_000;

/// The addresses that refuse connections.
#[derive(Debug)]
pub struct NegativeConnectCache {
    /// The number of addresses. Nearly always 0, in which case nothing is locked.
    count: AtomicUsize,
    until: Mutex<HashMap<SocketAddr, Instant>>,
    clock: Clock,
}

impl NegativeConnectCache {
    /// Creates an empty cache.
    pub fn new(clock: Clock) -> Self {
        Self {
            count: AtomicUsize::new(0),
            until: Mutex::default(),
            clock,
        }
    }

    /// Returns the time until one of these addresses is dialled again, if all of them refuse
    /// connections.
    pub fn retry_in(&self, addresses: &[SocketAddr]) -> Option<Duration> {
        if self.is_empty() {
            return None;
        }
        let refused = self.until.lock();
        let now = self.clock.now();
        let mut earliest: Option<Duration> = None;
        for address in addresses {
            let remaining = remaining(*refused.get(address)?, now)?;
            earliest = Some(earliest.map_or(remaining, |earliest| earliest.min(remaining)));
        }
        earliest
    }

    /// Returns the addresses that refuse connections on any port, and for how long.
    #[allow(clippy::disallowed_methods, reason = "the result is sorted")]
    pub fn refused_on(&self, addresses: &[IpAddr]) -> Vec<(SocketAddr, Duration)> {
        if self.is_empty() {
            return vec![];
        }
        let now = self.clock.now();
        let mut found: Vec<_> = self
            .until
            .lock()
            .iter()
            .filter(|(address, _)| addresses.contains(&address.ip()))
            .filter_map(|(address, until)| Some((*address, remaining(*until, now)?)))
            .collect();
        found.sort();
        found
    }

    /// Records the result of dialling. A successful connection removes its address; the addresses
    /// are added only if all of them were tried and the failure was a refusal.
    pub fn record<S>(
        &self,
        addresses: &[SocketAddr],
        dialled: &Result<(S, SocketAddr), DialError>,
    ) {
        match dialled {
            Ok((_, address)) if !self.is_empty() => self.update(|refused, _| {
                refused.remove(address);
            }),
            Err(DialError::Refused) if addresses.len() <= MAX_ATTEMPTS => {
                self.update(|refused, now| {
                    if MAX_ADDRESSES <= refused.len() {
                        refused.retain(|_, until| now < *until);
                    }
                    let room = MAX_ADDRESSES.saturating_sub(refused.len());
                    refused.extend(
                        addresses
                            .iter()
                            .take(room)
                            .map(|address| (*address, now + REFUSED_TTL)),
                    );
                })
            }
            Ok(_) | Err(_) => {}
        }
    }

    /// Removes expired entries. Called periodically.
    pub fn sweep(&self) {
        if !self.is_empty() {
            self.update(|refused, now| refused.retain(|_, until| now < *until));
        }
    }

    fn update(&self, change: impl FnOnce(&mut HashMap<SocketAddr, Instant>, Instant)) {
        let mut refused = self.until.lock();
        change(&mut refused, self.clock.now());
        if refused.is_empty() {
            refused.shrink_to_fit();
        }
        self.count.store(refused.len(), Ordering::Relaxed);
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }
}

fn remaining(until: Instant, now: Instant) -> Option<Duration> {
    until
        .checked_duration_since(now)
        .filter(|remaining| !remaining.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn addresses(last: &[u8]) -> Vec<SocketAddr> {
        last.iter()
            .map(|last| SocketAddr::from(([10, 0, 0, *last], 80)))
            .collect()
    }

    fn refused() -> Result<((), SocketAddr), DialError> {
        Err(DialError::Refused)
    }

    #[test]
    fn a_target_is_refused_only_if_all_its_addresses_refuse() {
        let (clock, control) = Clock::manual();
        let cache = NegativeConnectCache::new(clock);
        cache.record(&addresses(&[1, 2]), &refused());
        cache.record(&addresses(&[3]), &Err::<((), _), _>(DialError::Timeout));
        // More addresses than are tried.
        cache.record(&addresses(&[4, 5, 6, 7, 8]), &refused());
        control.advance(10 * SECOND);
        cache.record(&addresses(&[9]), &refused());
        for (last, remaining) in [
            (&[1_u8][..], Some(20)),
            (&[1, 2], Some(20)),
            (&[1, 9], Some(20)),
            (&[9], Some(30)),
            (&[1, 3], None),
            (&[3], None),
            (&[4], None),
        ] {
            assert_eq!(
                cache.retry_in(&addresses(last)),
                remaining.map(|seconds| seconds * SECOND),
                "{last:?}"
            );
        }
        assert_eq!(
            cache.retry_in(&[SocketAddr::from(([10, 0, 0, 1], 81))]),
            None,
            "another port"
        );
        let first = addresses(&[1]);
        let both = addresses(&[1, 2]);
        cache.record(&both, &Ok(((), first[0])));
        assert_eq!(cache.retry_in(&first), None);
        control.advance(20 * SECOND);
        assert_eq!(cache.retry_in(&addresses(&[2])), None);
        assert_eq!(cache.retry_in(&addresses(&[9])), Some(10 * SECOND));
        control.advance(10 * SECOND);
        cache.sweep();
        assert!(cache.is_empty());
    }

    #[test]
    fn it_is_bounded() {
        let cache = NegativeConnectCache::new(Clock::manual().0);
        for number in 0..30_000_u32 {
            let [_, a, b, c] = number.to_be_bytes();
            cache.record(&[SocketAddr::from(([10, a, b, c], 80))], &refused());
        }
        assert_eq!(cache.count.load(Ordering::Relaxed), MAX_ADDRESSES);
    }
}

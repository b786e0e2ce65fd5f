//! Addresses that have just refused a connection: what goes to them alone is answered at once, and waits for nothing.
//!
//! Only what this proxy saw; a connection that stands clears it. It is no part of a host's pace: that a host answers
//! badly is learned there. Names that do not exist are remembered by `resolve`.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::clock::Clock;

use super::dial::{DialError, MAX_ATTEMPTS};

/// For how long an address is taken to refuse.
pub const REFUSED_TTL: Duration = Duration::from_secs(30);
/// Addresses remembered at most; any more are dialled again.
const MAX_ADDRESSES: usize = 10_000;

/// What refuses.
#[derive(Debug)]
pub struct NegativeConnectCache {
    /// Nearly always 0, so that nothing is locked.
    count: AtomicUsize,
    until: Mutex<HashMap<SocketAddr, Instant>>,
    clock: Clock,
}

impl NegativeConnectCache {
    /// Nothing is known to refuse.
    pub fn new(clock: Clock) -> Self {
        Self {
            count: AtomicUsize::new(0),
            until: Mutex::default(),
            clock,
        }
    }

    /// The time until one of these addresses is dialled again, if all of them refuse.
    pub fn retry_in(&self, addresses: &[SocketAddr]) -> Option<Duration> {
        if self.is_empty() {
            return None;
        }
        let (dead, now) = (self.lock(), self.clock.now());
        let left = |address| {
            dead.get(address)?
                .checked_duration_since(now)
                .filter(|left| !left.is_zero())
        };
        let all: Option<Vec<Duration>> = addresses.iter().map(left).collect();
        all?.into_iter().min()
    }

    /// Those on one of these addresses, on whatever port, that refuse, and for how long.
    #[allow(clippy::disallowed_methods, reason = "they are put in order")]
    pub fn refused_on(&self, addresses: &[IpAddr]) -> Vec<(SocketAddr, Duration)> {
        if self.is_empty() {
            return vec![];
        }
        let (dead, now) = (self.lock(), self.clock.now());
        let left = |until: &Instant| {
            until
                .checked_duration_since(now)
                .filter(|left| !left.is_zero())
        };
        let of_them = dead
            .iter()
            .filter(|(address, _)| addresses.contains(&address.ip()));
        let mut found: Vec<_> = of_them
            .filter_map(|(address, until)| Some((*address, left(until)?)))
            .collect();
        found.sort();
        found
    }

    /// One that is connected to does not refuse; if all have been tried and none answered but by refusing, all do.
    pub fn record<S>(
        &self,
        addresses: &[SocketAddr],
        dialled: &Result<(S, SocketAddr), DialError>,
    ) {
        match dialled {
            Ok((_, address)) if !self.is_empty() => self.update(|dead, _| {
                dead.remove(address);
            }),
            Err(DialError::Refused) if addresses.len() <= MAX_ATTEMPTS => {
                self.update(|dead, now| {
                    if MAX_ADDRESSES <= dead.len() {
                        dead.retain(|_, until| now < *until);
                    }
                    let room = MAX_ADDRESSES.saturating_sub(dead.len());
                    dead.extend(
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

    /// Forgets those whose time is over; now and then.
    pub fn sweep(&self) {
        if !self.is_empty() {
            self.update(|dead, now| dead.retain(|_, until| now < *until));
        }
    }

    fn update(&self, change: impl FnOnce(&mut HashMap<SocketAddr, Instant>, Instant)) {
        let (mut dead, now) = (self.lock(), self.clock.now());
        change(&mut dead, now);
        if dead.is_empty() {
            dead.shrink_to_fit();
        }
        self.count.store(dead.len(), Ordering::Relaxed);
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SocketAddr, Instant>> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
    fn only_what_refuses_with_all_its_addresses_is_dead() {
        let (clock, hand) = Clock::manual();
        let dead = NegativeConnectCache::new(clock);
        dead.record(&addresses(&[1, 2]), &refused());
        dead.record(&addresses(&[3]), &Err::<((), _), _>(DialError::Timeout));
        // More than are tried.
        dead.record(&addresses(&[4, 5, 6, 7, 8]), &refused());
        hand.advance(10 * SECOND);
        dead.record(&addresses(&[9]), &refused());
        for (last, left) in [
            (&[1_u8][..], Some(20)),
            (&[1, 2], Some(20)),
            (&[1, 9], Some(20)),
            (&[9], Some(30)),
            (&[1, 3], None),
            (&[3], None),
            (&[4], None),
        ] {
            assert_eq!(
                dead.retry_in(&addresses(last)),
                left.map(|left| left * SECOND),
                "{last:?}"
            );
        }
        assert_eq!(
            dead.retry_in(&[SocketAddr::from(([10, 0, 0, 1], 81))]),
            None,
            "another port"
        );
        let (first, rest) = (addresses(&[1]), addresses(&[1, 2]));
        dead.record(&rest, &Ok(((), first[0])));
        assert_eq!(dead.retry_in(&first), None);
        hand.advance(20 * SECOND);
        assert_eq!(dead.retry_in(&addresses(&[2])), None);
        assert_eq!(dead.retry_in(&addresses(&[9])), Some(10 * SECOND));
        hand.advance(10 * SECOND);
        dead.sweep();
        assert!(dead.is_empty());
    }

    #[test]
    fn it_is_bounded() {
        let dead = NegativeConnectCache::new(Clock::manual().0);
        for number in 0..30_000_u32 {
            let [_, a, b, c] = number.to_be_bytes();
            dead.record(&[SocketAddr::from(([10, a, b, c], 80))], &refused());
        }
        assert_eq!(dead.count.load(Ordering::Relaxed), MAX_ADDRESSES);
    }
}

//! A node's part of a limit that several nodes share.
//!
//! The nodes take amounts from one account, which never gives out more than the limit. A node uses only what it was
//! granted, so all nodes together never use more; what a node was granted and has not used when it dies is lost.

/// The divisor of a limit for the amount that a node takes at a time.
const SLICES: u64 = 1_000;

/// A node's part of one limit on one day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitShare {
    granted: u64,
    used: u64,
    /// The requests that have found no room since the last grant, and the limit that they have.
    waiting: u64,
    limit: u64,
    /// The limit at which the account had nothing left.
    exhausted_at: Option<u64>,
}

/// The room that a share has for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareRoom {
    Free,
    /// More must be taken from the account first.
    Unknown,
    /// The account has nothing left.
    Exhausted,
}

impl LimitShare {
    /// Returns the room for one more request.
    pub fn room(&self, limit: u64) -> ShareRoom {
        if limit == 0 || self.exhausted_at.is_some_and(|at| limit <= at) && self.is_empty() {
            ShareRoom::Exhausted
        } else if self.is_empty() {
            ShareRoom::Unknown
        } else {
            ShareRoom::Free
        }
    }

    /// Uses an amount. Bytes are known only after they have passed, so they may be more than was granted.
    pub fn use_amount(&mut self, amount: u64) {
        self.used = self.used.saturating_add(amount);
    }

    /// Counts a request that has found no room.
    pub fn wait(&mut self, limit: u64) {
        self.limit = limit;
        self.waiting = self.waiting.saturating_add(1);
    }

    /// Returns the limit and the amount to take from the account, if requests wait for it.
    pub fn wanted(&self) -> Option<(u64, u64)> {
        if self.waiting == 0 || self.room(self.limit) != ShareRoom::Unknown {
            return None;
        }
        let debt = self.used.saturating_sub(self.granted);
        let slice = (self.limit / SLICES).max(self.waiting).max(1);
        Some((self.limit, slice.saturating_add(debt).min(self.limit)))
    }

    /// Adds what the account has given.
    pub fn grant(&mut self, limit: u64, amount: u64) {
        self.granted = self.granted.saturating_add(amount);
        self.waiting = 0;
        if amount == 0 {
            self.exhausted_at = self.exhausted_at.max(Some(limit));
        }
    }

    fn is_empty(&self) -> bool {
        self.granted <= self.used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The account of a limit: what the store does with a request for an amount.
    fn take(taken: &mut u64, limit: u64, amount: u64) -> u64 {
        let given = amount.min(limit.saturating_sub(*taken));
        *taken += given;
        given
    }

    #[test]
    fn nodes_together_never_exceed_the_limit_and_lose_little_when_they_die() {
        for seed in 0..500 {
            let mut random = fastrand::Rng::with_seed(seed);
            let limit = random.u64(1..5_000);
            let mut shares = [LimitShare::default(); 3];
            let (mut taken, mut sent, mut lost) = (0, 0, 0);
            let mut refused = 0;
            while refused < 50 {
                let share = &mut shares[random.usize(0..3)];
                if random.u32(0..2_000) == 0 {
                    lost += share.granted - share.used;
                    *share = LimitShare::default();
                }
                // Several requests arrive before the account answers.
                for _ in 0..random.u32(1..5) {
                    match share.room(limit) {
                        ShareRoom::Free => {
                            share.use_amount(1);
                            sent += 1;
                        }
                        ShareRoom::Unknown => share.wait(limit),
                        ShareRoom::Exhausted => refused += 1,
                    }
                }
                if let Some((limit, amount)) = share.wanted() {
                    let given = take(&mut taken, limit, amount);
                    // The answer may be lost, with what was given.
                    match random.u32(0..2_000) {
                        0 => lost += given,
                        _ => share.grant(limit, given),
                    }
                }
            }
            let unused: u64 = shares.iter().map(|share| share.granted - share.used).sum();
            assert!(sent <= limit, "seed {seed}: {sent} of {limit}");
            assert!(
                sent + lost + unused >= limit,
                "seed {seed}: {sent} of {limit}, {lost} lost, {unused} unused"
            );
            assert!(unused <= 3 * 5.max(limit / SLICES), "seed {seed}: {unused}");
        }
    }

    #[test]
    fn bytes_beyond_what_was_granted_are_taken_first() {
        let mut share = LimitShare::default();
        share.wait(10_000);
        assert_eq!(share.wanted(), Some((10_000, 10)));
        share.grant(10_000, 10);
        assert_eq!(
            (share.room(10_000), share.wanted()),
            (ShareRoom::Free, None)
        );
        share.use_amount(3_000);
        assert_eq!(share.room(10_000), ShareRoom::Unknown);
        assert_eq!(share.wanted(), None, "nobody waits");
        share.wait(10_000);
        assert_eq!(share.wanted(), Some((10_000, 3_000)));
        share.grant(10_000, 2_000);
        assert_eq!(share.room(10_000), ShareRoom::Unknown);
        share.wait(10_000);
        share.grant(10_000, 0);
        assert_eq!(
            (share.room(10_000), share.wanted()),
            (ShareRoom::Exhausted, None)
        );
        assert_eq!(
            share.room(20_000),
            ShareRoom::Unknown,
            "a reload has raised the limit"
        );
    }

    #[test]
    fn a_limit_of_zero_needs_no_account() {
        assert_eq!(LimitShare::default().room(0), ShareRoom::Exhausted);
    }
}

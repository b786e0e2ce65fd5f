//! Checks credentials against a slow hash, once: the outcome is kept for a while under a keyed digest, and nothing of
//! the password is.
//!
//! The hash is computed on the blocking pool, a few at a time. Equal credentials that come at once are checked once.
//! A wrong guess counts against the address it came from, but the same guess again does not: it teaches nobody
//! anything, and a crawler with a stale password must not shut its neighbours out.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use moka::future::Cache;
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;

use crate::clock::Clock;

use super::basic::Credentials;
use super::password::{PasswordHash, Verdict};
use super::throttle::{Attempt, Throttle};

/// Outcomes that are kept.
const KEPT: u64 = 4_096;
/// How long one is kept that was right, and one that was wrong.
const RIGHT: Duration = Duration::from_secs(600);
const WRONG: Duration = Duration::from_secs(60);
/// Hashes computed at once; each takes a core and some memory.
const AT_ONCE: usize = 2;
/// Checks that may wait for that.
const WAITING: usize = 128;

/// What came of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The password is the hash's.
    Right,
    /// It is not.
    Wrong,
    /// It was not checked: too many from this address were wrong.
    Throttled,
    /// It was not checked: too many are being checked.
    Busy,
}

/// What a password is compared with.
#[derive(Clone, Copy, Debug)]
pub(super) enum Against<'a> {
    /// The hash of its user.
    User(&'a PasswordHash),
    /// Somebody's hash, since there is no such user: it takes as long, so that names cannot be told by the time.
    Decoy(&'a PasswordHash),
}

/// An outcome, and until when it holds.
#[derive(Clone, Copy, Debug)]
struct Kept {
    outcome: Outcome,
    until: Instant,
}

/// The checks of one proxy.
#[derive(Debug)]
pub(super) struct Checks {
    clock: Clock,
    key: Key,
    kept: Cache<[u8; 32], Kept>,
    throttle: Throttle,
    computing: Arc<Semaphore>,
    room: Semaphore,
}

impl Checks {
    pub(super) fn new(clock: Clock) -> Result<Self, String> {
        Ok(Self {
            key: Key::random()?,
            kept: Cache::builder()
                .max_capacity(KEPT)
                .time_to_live(RIGHT)
                .build(),
            throttle: Throttle::new(clock.now()),
            computing: Arc::new(Semaphore::new(AT_ONCE)),
            room: Semaphore::new(AT_ONCE + WAITING),
            clock,
        })
    }

    /// Checks a password, or finds what came of it before.
    pub(super) async fn run(
        &self,
        source: IpAddr,
        given: &Credentials,
        against: Against<'_>,
    ) -> Outcome {
        let digest = self.key.digest(given);
        let now = self.clock.now();
        if let Some(kept) = self.kept.get(&digest).await
            && now < kept.until
        {
            return kept.outcome;
        }
        let entry = self.kept.entry(digest);
        let check = self.check(source, given, against);
        entry
            .or_insert_with_if(check, |kept| kept.until <= now)
            .await
            .into_value()
            .outcome
    }

    async fn check(&self, source: IpAddr, given: &Credentials, against: Against<'_>) -> Kept {
        let now = self.clock.now();
        let not_kept = |outcome| Kept {
            outcome,
            until: now,
        };
        // Who leaves before the outcome has paid all the same, or guessing and leaving would be free.
        let Ok(_room) = self.room.try_acquire() else {
            return not_kept(Outcome::Busy);
        };
        if self.throttle.charge(source, now) == Attempt::Refused {
            return not_kept(Outcome::Throttled);
        }
        match self.compute(given.password.clone(), against).await {
            Some(Verdict::Right) => {
                self.throttle.pay_back(source);
                Kept {
                    outcome: Outcome::Right,
                    until: now + RIGHT,
                }
            }
            Some(Verdict::Wrong) => Kept {
                outcome: Outcome::Wrong,
                until: now + WRONG,
            },
            None => not_kept(Outcome::Busy),
        }
    }

    /// The slow part. Who leaves does not stop it, and its place stays taken until it is done. `None` if the process is
    /// going down.
    async fn compute(&self, password: String, against: Against<'_>) -> Option<Verdict> {
        let place = Arc::clone(&self.computing).acquire_owned().await.ok()?;
        let (Against::User(hash) | Against::Decoy(hash)) = against;
        let hash = hash.clone();
        let computed = tokio::task::spawn_blocking(move || {
            let _place = place;
            hash.verify(&password)
        });
        let verdict = computed.await.ok()?;
        Some(if matches!(against, Against::Decoy(_)) {
            Verdict::Wrong
        } else {
            verdict
        })
    }
}

/// What makes digests worth nothing outside this process.
struct Key([u8; 32]);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(…)")
    }
}

impl Key {
    fn random() -> Result<Self, String> {
        let mut key = [0; 32];
        getrandom::fill(&mut key)
            .map_err(|error| format!("the system gives no random bytes: {error}"))?;
        Ok(Self(key))
    }

    /// The user's length keeps `ab:c` apart from `a:bc`.
    fn digest(&self, given: &Credentials) -> [u8; 32] {
        let mut digest = Sha256::new();
        digest.update(self.0);
        digest.update(given.user.len().to_le_bytes());
        digest.update(given.user.as_bytes());
        digest.update(given.password.as_bytes());
        digest.finalize().into()
    }
}

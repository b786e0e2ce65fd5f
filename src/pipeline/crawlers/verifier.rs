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

use super::basic_auth::BasicCredentials;
use super::password::{PasswordHash, PasswordMatch};
use super::throttle::{LoginThrottle, ThrottleDecision};

/// Outcomes that are kept.
const CACHE_CAPACITY: u64 = 4_096;
/// How long one is kept that was right, and one that was wrong.
const VALID_TTL: Duration = Duration::from_secs(600);
const INVALID_TTL: Duration = Duration::from_secs(60);
/// Hashes computed at once; each takes a core and some memory.
const MAX_CONCURRENT_HASHES: usize = 2;
/// Checks that may wait for that.
const MAX_WAITING_CHECKS: usize = 128;

/// What came of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VerificationOutcome {
    /// The password is the hash's.
    Valid,
    /// It is not.
    Invalid,
    /// It was not checked: too many from this address were wrong.
    Throttled,
    /// It was not checked: too many are being checked.
    Busy,
}

/// What a password is compared with.
#[derive(Clone, Copy, Debug)]
pub(super) enum ReferenceHash<'a> {
    /// The hash of its user.
    User(&'a PasswordHash),
    /// Somebody's hash, since there is no such user: it takes as long, so that names cannot be told by the time.
    Decoy(&'a PasswordHash),
}

/// An outcome, and until when it holds.
#[derive(Clone, Copy, Debug)]
struct CachedVerification {
    outcome: VerificationOutcome,
    until: Instant,
}

/// The checks of one proxy.
#[derive(Debug)]
pub(super) struct CredentialVerifier {
    clock: Clock,
    key: CredentialDigestKey,
    cache: Cache<[u8; 32], CachedVerification>,
    throttle: LoginThrottle,
    hash_permits: Arc<Semaphore>,
    queue_permits: Semaphore,
}

impl CredentialVerifier {
    pub(super) fn new(clock: Clock) -> Result<Self, String> {
        Ok(Self {
            key: CredentialDigestKey::random()?,
            cache: Cache::builder()
                .max_capacity(CACHE_CAPACITY)
                .time_to_live(VALID_TTL)
                .build(),
            throttle: LoginThrottle::new(clock.now()),
            hash_permits: Arc::new(Semaphore::new(MAX_CONCURRENT_HASHES)),
            queue_permits: Semaphore::new(MAX_CONCURRENT_HASHES + MAX_WAITING_CHECKS),
            clock,
        })
    }

    /// Checks a password, or finds what came of it before.
    pub(super) async fn verify(
        &self,
        source: IpAddr,
        given: &BasicCredentials,
        against: ReferenceHash<'_>,
    ) -> VerificationOutcome {
        let digest = self.key.digest(given);
        let now = self.clock.now();
        if let Some(kept) = self.cache.get(&digest).await
            && now < kept.until
        {
            return kept.outcome;
        }
        let entry = self.cache.entry(digest);
        let check = self.check(source, given, against);
        entry
            .or_insert_with_if(check, |kept| kept.until <= now)
            .await
            .into_value()
            .outcome
    }

    async fn check(
        &self,
        source: IpAddr,
        given: &BasicCredentials,
        against: ReferenceHash<'_>,
    ) -> CachedVerification {
        let now = self.clock.now();
        let not_kept = |outcome| CachedVerification {
            outcome,
            until: now,
        };
        // Who leaves before the outcome has paid all the same, or guessing and leaving would be free.
        let Ok(_room) = self.queue_permits.try_acquire() else {
            return not_kept(VerificationOutcome::Busy);
        };
        if self.throttle.charge(source, now) == ThrottleDecision::Refused {
            return not_kept(VerificationOutcome::Throttled);
        }
        match self.compute(given.password.clone(), against).await {
            Some(PasswordMatch::Match) => {
                self.throttle.refund(source);
                CachedVerification {
                    outcome: VerificationOutcome::Valid,
                    until: now + VALID_TTL,
                }
            }
            Some(PasswordMatch::Mismatch) => CachedVerification {
                outcome: VerificationOutcome::Invalid,
                until: now + INVALID_TTL,
            },
            None => not_kept(VerificationOutcome::Busy),
        }
    }

    /// The slow part. Who leaves does not stop it, and its place stays taken until it is done. `None` if the process is
    /// going down.
    async fn compute(&self, password: String, against: ReferenceHash<'_>) -> Option<PasswordMatch> {
        let place = Arc::clone(&self.hash_permits).acquire_owned().await.ok()?;
        let (ReferenceHash::User(hash) | ReferenceHash::Decoy(hash)) = against;
        let hash = hash.clone();
        let computed = tokio::task::spawn_blocking(move || {
            let _place = place;
            hash.verify(&password)
        });
        let verdict = computed.await.ok()?;
        Some(if matches!(against, ReferenceHash::Decoy(_)) {
            PasswordMatch::Mismatch
        } else {
            verdict
        })
    }
}

/// What makes digests worth nothing outside this process.
struct CredentialDigestKey([u8; 32]);

impl std::fmt::Debug for CredentialDigestKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(…)")
    }
}

impl CredentialDigestKey {
    fn random() -> Result<Self, String> {
        let mut key = [0; 32];
        getrandom::fill(&mut key)
            .map_err(|error| format!("the system gives no random bytes: {error}"))?;
        Ok(Self(key))
    }

    /// The user's length keeps `ab:c` apart from `a:bc`.
    fn digest(&self, given: &BasicCredentials) -> [u8; 32] {
        let mut digest = Sha256::new();
        digest.update(self.0);
        digest.update(given.user.len().to_le_bytes());
        digest.update(given.user.as_bytes());
        digest.update(given.password.as_bytes());
        digest.finalize().into()
    }
}

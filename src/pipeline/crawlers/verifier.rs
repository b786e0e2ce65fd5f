//! Verifies credentials against a slow hash, once: the outcome is cached for a while under a keyed digest, and nothing
//! of the password is stored.
//!
//! The hash is computed on the blocking pool, a few at a time. Equal credentials that arrive at the same time are
//! verified once. A wrong guess counts against the source address, but the same guess again does not: an attacker
//! learns nothing from it, and a crawler with an outdated password must not lock its neighbours out.

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

/// The maximum number of cached outcomes.
const CACHE_CAPACITY: u64 = 4_096;
/// The lifetimes of a valid and of an invalid outcome.
const VALID_TTL: Duration = Duration::from_secs(600);
const INVALID_TTL: Duration = Duration::from_secs(60);
/// The number of hashes computed at once; each occupies a core and some memory.
const MAX_CONCURRENT_HASHES: usize = 2;
/// The maximum number of verifications that wait.
const MAX_WAITING_CHECKS: usize = 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VerificationOutcome {
    /// The password matches.
    Valid,
    /// The password does not match.
    Invalid,
    /// It was not verified, since too many from this address were wrong.
    Throttled,
    /// It was not verified, since too many verifications are waiting.
    Busy,
}

/// The hash that a password is compared with.
#[derive(Clone, Copy, Debug)]
pub(super) enum ReferenceHash<'a> {
    User(&'a PasswordHash),
    /// Another hash, since there is no such user: it takes as long, so that the time does not reveal which names exist.
    Decoy(&'a PasswordHash),
}

/// An outcome and its expiry.
#[derive(Clone, Copy, Debug)]
struct CachedVerification {
    outcome: VerificationOutcome,
    until: Instant,
}

/// The credential verifier of a proxy.
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

    /// Verifies a password, or returns the cached outcome.
    pub(super) async fn verify(
        &self,
        source: IpAddr,
        credentials: &BasicCredentials,
        reference: ReferenceHash<'_>,
    ) -> VerificationOutcome {
        let digest = self.key.digest(credentials);
        let now = self.clock.now();
        if let Some(cached) = self.cache.get(&digest).await
            && now < cached.until
        {
            return cached.outcome;
        }
        let entry = self.cache.entry(digest);
        let check = self.check(source, credentials, reference);
        entry
            .or_insert_with_if(check, |cached| cached.until <= now)
            .await
            .into_value()
            .outcome
    }

    async fn check(
        &self,
        source: IpAddr,
        credentials: &BasicCredentials,
        reference: ReferenceHash<'_>,
    ) -> CachedVerification {
        let now = self.clock.now();
        let not_kept = |outcome| CachedVerification {
            outcome,
            until: now,
        };
        // A client that leaves before the outcome is charged too; otherwise guessing and leaving would be free.
        let Ok(_room) = self.queue_permits.try_acquire() else {
            return not_kept(VerificationOutcome::Busy);
        };
        if self.throttle.charge(source, now) == ThrottleDecision::Refused {
            return not_kept(VerificationOutcome::Throttled);
        }
        match self.compute(credentials.password.clone(), reference).await {
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

    /// Computes the hash. A client that leaves does not stop it, and its permit stays taken until it is done. `None` if
    /// the process is shutting down.
    async fn compute(
        &self,
        password: String,
        reference: ReferenceHash<'_>,
    ) -> Option<PasswordMatch> {
        let permit = Arc::clone(&self.hash_permits).acquire_owned().await.ok()?;
        let (ReferenceHash::User(hash) | ReferenceHash::Decoy(hash)) = reference;
        let hash = hash.clone();
        let computed = tokio::task::spawn_blocking(move || {
            let _place = permit;
            hash.verify(&password)
        });
        let verdict = computed.await.ok()?;
        Some(if matches!(reference, ReferenceHash::Decoy(_)) {
            PasswordMatch::Mismatch
        } else {
            verdict
        })
    }
}

/// The key of the digests, which makes them worthless outside this process.
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

    /// Returns a digest of the credentials. The length of the name distinguishes `ab:c` from `a:bc`.
    fn digest(&self, credentials: &BasicCredentials) -> [u8; 32] {
        let mut digest = Sha256::new();
        digest.update(self.0);
        digest.update(credentials.user.len().to_le_bytes());
        digest.update(credentials.user.as_bytes());
        digest.update(credentials.password.as_bytes());
        digest.finalize().into()
    }
}

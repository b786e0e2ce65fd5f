//! Verifies credentials against a slow hash, once: the outcome is cached for a while under a keyed digest, and nothing
//! of the password is stored.
//!
//! Valid and invalid outcomes are cached apart: a flood of wrong passwords evicts no right one. Equal credentials that
//! arrive at the same time are verified once. A wrong guess counts against the source address, but the same guess again
//! does not: an attacker learns nothing from it, and a crawler with an outdated password must not lock its neighbours
//! out. Credentials that were not checked are never reported as wrong, and nothing is cached for them.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use moka::future::Cache;
use sha2::{Digest as _, Sha256};

use crate::clock::Clock;

use super::AuthenticationError;
use super::basic_auth::BasicCredentials;
use super::hash_queue::{HashPriority, HashQueue};
use super::password::{PasswordHash, PasswordMatch};
use super::throttle::{LoginThrottle, ThrottleDecision};

/// The maximum number of cached outcomes of each kind.
const CACHE_CAPACITY: u64 = 4_096;
/// The lifetimes of a valid and of an invalid outcome.
const VALID_TTL: Duration = Duration::from_secs(600);
const INVALID_TTL: Duration = Duration::from_secs(60);

/// The hash that a password is compared with.
#[derive(Clone, Copy, Debug)]
pub(super) enum ReferenceHash<'a> {
    User(&'a PasswordHash),
    /// Another hash, since there is no such user: it takes as long, so that the time does not reveal which names exist.
    Decoy(&'a PasswordHash),
}

/// Outcomes by the digest of the credentials, each with its expiry.
type OutcomeCache = Cache<[u8; 32], Instant>;

/// The credential verifier of a proxy.
#[derive(Debug)]
pub(super) struct CredentialVerifier {
    clock: Clock,
    key: CredentialDigestKey,
    valid: OutcomeCache,
    invalid: OutcomeCache,
    throttle: LoginThrottle,
    queue: HashQueue,
}

impl CredentialVerifier {
    pub(super) fn new(clock: Clock) -> Result<Self, String> {
        let cache = |ttl| {
            Cache::builder()
                .max_capacity(CACHE_CAPACITY)
                .time_to_live(ttl)
                .build()
        };
        Ok(Self {
            key: CredentialDigestKey::random()?,
            valid: cache(VALID_TTL),
            invalid: cache(INVALID_TTL),
            throttle: LoginThrottle::new(clock.now()),
            queue: HashQueue::new(),
            clock,
        })
    }

    /// Verifies a password, or returns the cached outcome.
    ///
    /// # Errors
    /// If the password is wrong, or was not checked.
    pub(super) async fn verify(
        &self,
        source: IpAddr,
        credentials: &BasicCredentials,
        reference: ReferenceHash<'_>,
    ) -> Result<(), AuthenticationError> {
        let digest = self.key.digest(credentials);
        let now = self.clock.now();
        if let Some(until) = self.valid.get(&digest).await {
            if now < until {
                return Ok(());
            }
            self.valid.invalidate(&digest).await;
        }
        if self.is_cached_as_invalid(digest).await {
            return Err(AuthenticationError::InvalidCredentials);
        }
        // Equal credentials share one check: a source that may make none must not start it for the others.
        if let Some(wait) = self.throttle.wait_time(source, now) {
            return Err(AuthenticationError::Throttled(wait));
        }
        let check = self.check(digest, source, credentials, reference);
        match self.valid.try_get_with(digest, check).await {
            Ok(_) => Ok(()),
            Err(error) => Err(*error),
        }
    }

    async fn is_cached_as_invalid(&self, digest: [u8; 32]) -> bool {
        let until = self.invalid.get(&digest).await;
        until.is_some_and(|until| self.clock.now() < until)
    }

    /// Returns the expiry of a valid outcome. Caches an invalid one.
    async fn check(
        &self,
        digest: [u8; 32],
        source: IpAddr,
        credentials: &BasicCredentials,
        reference: ReferenceHash<'_>,
    ) -> Result<Instant, AuthenticationError> {
        // A check of equal credentials may have ended since the caller looked.
        if self.is_cached_as_invalid(digest).await {
            return Err(AuthenticationError::InvalidCredentials);
        }
        let place = self.queue.enter(source).ok_or(AuthenticationError::Busy)?;
        let is_first = place.is_only && self.throttle.is_clear(source, self.clock.now());
        let priority = if is_first {
            HashPriority::FirstAttempt
        } else {
            HashPriority::Normal
        };
        let slot = self.queue.wait_slot(priority).await;
        let slot = slot.ok_or(AuthenticationError::Busy)?;
        let now = self.clock.now();
        // A client that leaves before the outcome is charged too; otherwise guessing and leaving would be free.
        match self.throttle.charge(source, now) {
            ThrottleDecision::Charged => {}
            ThrottleDecision::Refused(wait) => return Err(AuthenticationError::Throttled(wait)),
        }
        let (ReferenceHash::User(hash) | ReferenceHash::Decoy(hash)) = reference;
        let outcome = slot.verify(hash.clone(), credentials.password.clone());
        match (outcome.await, reference) {
            (Some(PasswordMatch::Match), ReferenceHash::User(_)) => {
                self.throttle.refund(source);
                Ok(now + VALID_TTL)
            }
            (Some(_), ReferenceHash::User(_) | ReferenceHash::Decoy(_)) => {
                self.invalid.insert(digest, now + INVALID_TTL).await;
                Err(AuthenticationError::InvalidCredentials)
            }
            (None, _) => {
                self.throttle.refund(source);
                Err(AuthenticationError::Busy)
            }
        }
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

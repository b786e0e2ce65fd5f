//! A cache of verified certificate chains: a chain that many hosts or connections present is
//! verified once.
//!
//! Chromium does the same for half an hour and per host (`CachingCertVerifier`). The cache covers
//! only what does not depend on the host: issuers, signatures and usages. The name, the dates and
//! the handshake's own signature are checked every time.

use std::ops::Range;
use std::time::Duration;

use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use rustls::pki_types::{CertificateDer, UnixTime};
use sha2::{Digest as _, Sha256};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

/// The longest time for which a verification is reused; it ends earlier if one of the certificates
/// expires.
const CACHE_TTL: Duration = Duration::from_mins(30);
/// The maximum number of chains.
const MAX_CHAINS: u64 = 4096;

/// The certificates that an origin presents.
#[derive(Clone, Copy)]
pub(super) struct CertificateChain<'c> {
    pub(super) end_entity: &'c CertificateDer<'c>,
    pub(super) intermediates: &'c [CertificateDer<'c>],
}

/// The verified chains, with the time range of their validity in seconds since 1970.
#[derive(Debug)]
pub(super) struct VerifiedChainCache(Cache<ChainDigest, Range<u64>>);

/// SHA-256 over every byte of a chain, because its contents are under the control of strangers.
pub(super) type ChainDigest = [u8; 32];

impl Default for VerifiedChainCache {
    fn default() -> Self {
        // The hosts of a crawl that come next are likely to be similar to the last ones.
        Self(
            Cache::builder()
                .max_capacity(MAX_CHAINS)
                .eviction_policy(EvictionPolicy::lru())
                .time_to_live(CACHE_TTL)
                .build(),
        )
    }
}

impl VerifiedChainCache {
    /// Returns `true` if this chain was verified recently. If the clock went back, it does not
    /// count.
    pub(super) fn contains(&self, chain: &ChainDigest, now: UnixTime) -> bool {
        self.0
            .get(chain)
            .is_some_and(|validity| validity.contains(&now.as_secs()))
    }

    /// Records that this chain is verified now.
    pub(super) fn insert(&self, digest: ChainDigest, chain: CertificateChain<'_>, now: UnixTime) {
        let from = now.as_secs();
        let expires_at = chain
            .expires_at()
            .map(|ends| ends.min(from + CACHE_TTL.as_secs()));
        if let Some(expires_at) = expires_at.filter(|until| *until > from) {
            self.0.insert(digest, from..expires_at);
        }
    }
}

impl<'c> CertificateChain<'c> {
    /// Returns the key of the chain in the cache.
    pub(super) fn digest(self) -> ChainDigest {
        let mut hash = Sha256::new();
        for certificate in self.certificates() {
            hash.update((certificate.len() as u64).to_le_bytes());
            hash.update(certificate);
        }
        hash.finalize().into()
    }

    /// Returns the earliest expiry of the certificates, including unneeded ones, or `None` if one
    /// cannot be parsed.
    fn expires_at(self) -> Option<u64> {
        let mut ends = u64::MAX;
        for certificate in self.certificates() {
            let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
            ends = ends.min(u64::try_from(parsed.validity().not_after.timestamp()).ok()?);
        }
        Some(ends)
    }

    fn certificates(self) -> impl Iterator<Item = &'c CertificateDer<'c>> {
        std::iter::once(self.end_entity).chain(self.intermediates)
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    use rustls::client::danger::ServerCertVerifier as _;
    use rustls::pki_types::ServerName;
    use rustls::{CertificateError, Error, RootCertStore};

    use crate::proxy::origin_tls::verifier::CachingVerifier;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MINUTE: Duration = Duration::from_mins(1);
    /// The expiry of the first certificate.
    const ENDS: Duration = Duration::from_secs(1_800_000_000);
    /// A time hours before the expiry.
    const NOW: Duration = Duration::from_secs(1_799_950_000);

    /// Returns the parameters of a certificate for this name, or of an authority without a name.
    fn params(name: Option<&str>, ends: Duration) -> CertificateParams {
        let mut params =
            CertificateParams::new(name.map(str::to_owned).into_iter().collect::<Vec<_>>())
                .unwrap();
        if name.is_none() {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        params.not_after = (UNIX_EPOCH + ends).into();
        params
    }

    fn authority() -> (Issuer<'static, KeyPair>, CertificateDer<'static>) {
        let params = params(None, 3 * ENDS);
        let key = KeyPair::generate().unwrap();
        let root = params.self_signed(&key).unwrap().der().clone();
        (Issuer::new(params, key), root)
    }

    /// Returns a certificate for `a.test`.
    fn leaf(issuer: &Issuer<'_, KeyPair>, ends: Duration) -> CertificateDer<'static> {
        let key = KeyPair::generate().unwrap();
        params(Some("a.test"), ends)
            .signed_by(&key, issuer)
            .unwrap()
            .der()
            .clone()
    }

    fn trusting(root: CertificateDer<'static>) -> CachingVerifier {
        let mut roots = RootCertStore::empty();
        roots.add(root).unwrap();
        CachingVerifier::new(roots).unwrap()
    }

    /// Returns a verifier that trusts an authority, and a certificate for `a.test` signed by it.
    fn trusted() -> (CachingVerifier, CertificateDer<'static>) {
        let (issuer, root) = authority();
        (trusting(root), leaf(&issuer, ENDS))
    }

    fn alone<'c>(end_entity: &'c CertificateDer<'c>) -> CertificateChain<'c> {
        CertificateChain {
            end_entity,
            intermediates: &[],
        }
    }

    fn verify(
        trusted: &CachingVerifier,
        chain: CertificateChain<'_>,
        name: &'static str,
        at: Duration,
    ) -> Option<CertificateError> {
        let name = ServerName::try_from(name).unwrap();
        let now = UnixTime::since_unix_epoch(at);
        match trusted.verify_server_cert(chain.end_entity, chain.intermediates, &name, &[], now) {
            Ok(_) => None,
            Err(Error::InvalidCertificate(error)) => Some(error),
            Err(other) => panic!("{other:?}"),
        }
    }

    fn is_cached(trusted: &CachingVerifier, chain: CertificateChain<'_>, at: Duration) -> bool {
        trusted
            .chain_cache
            .contains(&chain.digest(), UnixTime::since_unix_epoch(at))
    }

    #[test]
    fn a_verification_is_reused_for_half_an_hour() {
        let (trusted, leaf) = trusted();
        let is_cached_at = |at| is_cached(&trusted, alone(&leaf), at);
        assert!(!is_cached_at(NOW));
        assert_eq!(verify(&trusted, alone(&leaf), "a.test", NOW), None);
        assert!(is_cached_at(NOW) && is_cached_at(NOW + 30 * MINUTE - SECOND));
        assert!(!is_cached_at(NOW + 30 * MINUTE) && !is_cached_at(NOW - SECOND));
    }

    #[test]
    fn a_cached_chain_is_not_verified_again() {
        let (trusted, _) = trusted();
        // Signed by an untrusted authority, which a verification would notice.
        let leaf = leaf(&authority().0, ENDS);
        assert!(verify(&trusted, alone(&leaf), "a.test", NOW).is_some());
        assert!(!is_cached(&trusted, alone(&leaf), NOW));
        let chain = alone(&leaf);
        trusted
            .chain_cache
            .insert(chain.digest(), chain, UnixTime::since_unix_epoch(NOW));
        assert_eq!(verify(&trusted, chain, "a.test", NOW), None);
        assert!(verify(&trusted, chain, "a.test", NOW + 30 * MINUTE).is_some());
    }

    #[test]
    fn a_cached_chain_is_valid_for_its_own_names_only() {
        let (trusted, leaf) = trusted();
        for _ in 0..2 {
            assert_eq!(verify(&trusted, alone(&leaf), "a.test", NOW), None);
            let error = verify(&trusted, alone(&leaf), "b.test", NOW);
            assert!(
                matches!(error, Some(CertificateError::NotValidForNameContext { .. })),
                "{error:?}"
            );
        }
    }

    #[test]
    fn an_entry_expires_with_its_first_certificate() {
        let (issuer, root) = authority();
        let between = params(None, ENDS);
        let key = KeyPair::generate().unwrap();
        let intermediates = &[between.signed_by(&key, &issuer).unwrap().der().clone()];
        let long = leaf(&Issuer::new(between, key), 2 * ENDS);
        let short = leaf(&issuer, ENDS);
        let trusted = trusting(root);
        for chain in [
            alone(&short),
            CertificateChain {
                end_entity: &long,
                intermediates,
            },
        ] {
            assert_eq!(verify(&trusted, chain, "a.test", ENDS - MINUTE), None);
            assert!(is_cached(&trusted, chain, ENDS - SECOND) && !is_cached(&trusted, chain, ENDS));
            let error = verify(&trusted, chain, "a.test", ENDS + SECOND);
            assert!(
                matches!(error, Some(CertificateError::ExpiredContext { .. })),
                "{error:?}"
            );
        }
    }

    #[test]
    fn a_forged_chain_is_not_taken_for_a_cached_one() {
        let (trusted, leaf) = trusted();
        assert_eq!(verify(&trusted, alone(&leaf), "a.test", NOW), None);
        // The last bytes are the authority's signature.
        let mut forged = leaf.to_vec();
        *forged.last_mut().unwrap() ^= 1;
        let forged = CertificateDer::from(forged);
        for _ in 0..2 {
            assert!(verify(&trusted, alone(&forged), "a.test", NOW).is_some());
            assert!(!is_cached(&trusted, alone(&forged), NOW));
        }
        let more = CertificateChain {
            end_entity: &leaf,
            intermediates: std::slice::from_ref(&leaf),
        };
        assert!(!is_cached(&trusted, more, NOW));
    }
}

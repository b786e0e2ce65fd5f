//! Chains of certificates that were found good: one that many hosts or connections show is checked once.
//!
//! As Chromium does for half an hour, for each host by itself (`CachingCertVerifier`). What is remembered is what has
//! nothing to do with the host: issuers, signatures and uses. Its name, the dates and the handshake's own signature are
//! looked at each time.

use std::ops::Range;
use std::time::Duration;

use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use rustls::pki_types::{CertificateDer, UnixTime};
use sha2::{Digest as _, Sha256};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

/// For so long a chain is taken for good, unless one of its certificates ends before.
const CACHE_TTL: Duration = Duration::from_mins(30);
/// Chains that are remembered.
const MAX_CHAINS: u64 = 4096;

/// What an origin shows.
#[derive(Clone, Copy)]
pub(super) struct CertificateChain<'c> {
    pub(super) end_entity: &'c CertificateDer<'c>,
    pub(super) intermediates: &'c [CertificateDer<'c>],
}

/// Chains that were found good, and from when until when they are, in seconds since 1970.
#[derive(Debug)]
pub(super) struct VerifiedChainCache(Cache<ChainDigest, Range<u64>>);

/// SHA-256 over every byte of a chain: strangers choose what is in it.
pub(super) type ChainDigest = [u8; 32];

impl Default for VerifiedChainCache {
    fn default() -> Self {
        // Of the many hosts of a crawl those that come next are likely to be alike.
        let chains = Cache::builder()
            .max_capacity(MAX_CHAINS)
            .eviction_policy(EvictionPolicy::lru());
        Self(chains.time_to_live(CACHE_TTL).build())
    }
}

impl VerifiedChainCache {
    /// Whether this chain was found good lately. A clock that went back says nothing.
    pub(super) fn contains(&self, chain: &ChainDigest, now: UnixTime) -> bool {
        self.0
            .get(chain)
            .is_some_and(|good| good.contains(&now.as_secs()))
    }

    /// It was found good now.
    pub(super) fn insert(&self, digest: ChainDigest, chain: CertificateChain<'_>, now: UnixTime) {
        let from = now.as_secs();
        let until = chain
            .expires_at()
            .map(|ends| ends.min(from + CACHE_TTL.as_secs()));
        if let Some(until) = until.filter(|until| *until > from) {
            self.0.insert(digest, from..until);
        }
    }
}

impl<'c> CertificateChain<'c> {
    /// What it is remembered by.
    pub(super) fn digest(self) -> ChainDigest {
        let mut hash = Sha256::new();
        for certificate in self.certificates() {
            hash.update((certificate.len() as u64).to_le_bytes());
            hash.update(certificate);
        }
        hash.finalize().into()
    }

    /// When the first of the certificates ends, whether it was needed or not; none if one of them does not tell.
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
    /// When the first of the certificates ends.
    const ENDS: Duration = Duration::from_secs(1_800_000_000);
    /// Hours before.
    const NOW: Duration = Duration::from_secs(1_799_950_000);

    /// Good for this name until then, or an authority without a name.
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
        let (params, key) = (params(None, 3 * ENDS), KeyPair::generate().unwrap());
        let root = params.self_signed(&key).unwrap().der().clone();
        (Issuer::new(params, key), root)
    }

    /// A certificate for `a.test`.
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

    /// Trusts an authority, which has signed this certificate for `a.test`.
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
        let (name, now) = (
            ServerName::try_from(name).unwrap(),
            UnixTime::since_unix_epoch(at),
        );
        match trusted.verify_server_cert(chain.end_entity, chain.intermediates, &name, &[], now) {
            Ok(_) => None,
            Err(Error::InvalidCertificate(error)) => Some(error),
            Err(other) => panic!("{other:?}"),
        }
    }

    fn remembers(trusted: &CachingVerifier, chain: CertificateChain<'_>, at: Duration) -> bool {
        trusted
            .chain_cache
            .contains(&chain.digest(), UnixTime::since_unix_epoch(at))
    }

    #[test]
    fn a_chain_is_good_for_half_an_hour_from_when_it_was_found_so() {
        let (trusted, leaf) = trusted();
        let knows = |at| remembers(&trusted, alone(&leaf), at);
        assert!(!knows(NOW));
        assert_eq!(verify(&trusted, alone(&leaf), "a.test", NOW), None);
        assert!(knows(NOW) && knows(NOW + 30 * MINUTE - SECOND));
        assert!(!knows(NOW + 30 * MINUTE) && !knows(NOW - SECOND));
    }

    #[test]
    fn what_is_remembered_is_not_checked_again() {
        let (trusted, _) = trusted();
        // Of an authority that nobody trusts: a check would find that out.
        let leaf = leaf(&authority().0, ENDS);
        assert!(verify(&trusted, alone(&leaf), "a.test", NOW).is_some());
        assert!(!remembers(&trusted, alone(&leaf), NOW));
        let chain = alone(&leaf);
        trusted
            .chain_cache
            .insert(chain.digest(), chain, UnixTime::since_unix_epoch(NOW));
        assert_eq!(verify(&trusted, chain, "a.test", NOW), None);
        assert!(verify(&trusted, chain, "a.test", NOW + 30 * MINUTE).is_some());
    }

    #[test]
    fn a_chain_that_was_found_good_is_good_for_its_own_names_only() {
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
    fn a_chain_ends_with_the_first_certificate_that_does() {
        let (issuer, root) = authority();
        let (between, key) = (params(None, ENDS), KeyPair::generate().unwrap());
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
            assert!(remembers(&trusted, chain, ENDS - SECOND) && !remembers(&trusted, chain, ENDS));
            let error = verify(&trusted, chain, "a.test", ENDS + SECOND);
            assert!(
                matches!(error, Some(CertificateError::ExpiredContext { .. })),
                "{error:?}"
            );
        }
    }

    #[test]
    fn another_chain_is_not_taken_for_one_that_was_found_good() {
        let (trusted, leaf) = trusted();
        assert_eq!(verify(&trusted, alone(&leaf), "a.test", NOW), None);
        // In the last bytes is the authority's signature.
        let mut forged = leaf.to_vec();
        *forged.last_mut().unwrap() ^= 1;
        let forged = CertificateDer::from(forged);
        for _ in 0..2 {
            assert!(verify(&trusted, alone(&forged), "a.test", NOW).is_some());
            assert!(!remembers(&trusted, alone(&forged), NOW));
        }
        let more = CertificateChain {
            end_entity: &leaf,
            intermediates: std::slice::from_ref(&leaf),
        };
        assert!(!remembers(&trusted, more, NOW));
    }
}

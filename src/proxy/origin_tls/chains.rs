//! Chains of certificates that were found good: one that many hosts or connections show is checked once.
//!
//! Chromium does so, too, for half an hour (`CachingCertVerifier`). Only that the chain leads to a root is remembered: the
//! host's name and the handshake's own signature are looked at each time.

use std::ops::Range;
use std::time::Duration;

use moka::sync::Cache;
use rustls::pki_types::{CertificateDer, UnixTime};
use sha2::{Digest as _, Sha256};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

/// For so long a chain is taken for good, unless one of its certificates ends before.
const GOOD_FOR: Duration = Duration::from_mins(30);
/// Chains that are remembered.
const MOST: u64 = 4096;

/// What an origin shows.
#[derive(Clone, Copy)]
pub(super) struct Chain<'c> {
    pub(super) end_entity: &'c CertificateDer<'c>,
    pub(super) intermediates: &'c [CertificateDer<'c>],
}

/// Chains that were found good, and from when until when they are, in seconds since 1970.
#[derive(Debug)]
pub(super) struct Chains(Cache<Digest, Range<u64>>);

/// SHA-256 over every byte of a chain: strangers choose what is in it.
pub(super) type Digest = [u8; 32];

impl Default for Chains {
    fn default() -> Self {
        Self(Cache::new(MOST))
    }
}

impl Chains {
    /// Whether this chain was found good lately. A clock that went back says nothing.
    pub(super) fn have(&self, chain: &Digest, now: UnixTime) -> bool {
        self.0.get(chain).is_some_and(|good| good.contains(&now.as_secs()))
    }

    /// It was found good now.
    pub(super) fn insert(&self, digest: Digest, chain: Chain<'_>, now: UnixTime) {
        let Some(ends) = chain.ends() else { return };
        let from = now.as_secs();
        self.0.insert(digest, from..ends.min(from + GOOD_FOR.as_secs()));
    }
}

impl<'c> Chain<'c> {
    /// What it is remembered by.
    pub(super) fn digest(self) -> Digest {
        let mut hash = Sha256::new();
        for certificate in self.certificates() {
            hash.update((certificate.len() as u64).to_le_bytes());
            hash.update(certificate);
        }
        hash.finalize().into()
    }

    /// The first second at which one of the certificates is no longer good, whether it was needed or not; none if one of
    /// them does not tell.
    fn ends(self) -> Option<u64> {
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

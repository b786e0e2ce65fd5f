//! Who says whether an origin's certificate will do: the usual check by names, dates and issuers, or nobody.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme};

use crate::tls::provider::provider;

use super::chains::{Chain, Chains};

/// The usual check, which tells a certificate that signs itself from one that a stranger has signed. A chain that was
/// found good lately is not checked again.
#[derive(Debug)]
pub(super) struct Trusted {
    check: Arc<WebPkiServerVerifier>,
    chains: Chains,
}

/// Why a certificate is refused, where the library has no name for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SelfSigned;

impl fmt::Display for SelfSigned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the certificate is self-signed")
    }
}

impl std::error::Error for SelfSigned {}

impl Trusted {
    /// Trusts what these roots have signed.
    pub(super) fn new(roots: RootCertStore) -> Result<Self, String> {
        let check = check_by(roots);
        let check = check.map_err(|error| format!("no root certificate to verify origins by: {error}"))?;
        Ok(Self { check, chains: Chains::default() })
    }
}

fn check_by(roots: RootCertStore) -> Result<Arc<WebPkiServerVerifier>, rustls::client::VerifierBuilderError> {
    let provider = Arc::new(provider());
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build()
}

impl ServerCertVerifier for Trusted {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let chain = Chain { end_entity, intermediates };
        let digest = chain.digest();
        if self.chains.have(&digest, now) {
            verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
            return Ok(ServerCertVerified::assertion());
        }
        match self.check.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Ok(verified) => {
                self.chains.insert(digest, chain, now);
                Ok(verified)
            }
            Err(Error::InvalidCertificate(CertificateError::UnknownIssuer))
                if signs_itself(end_entity, now) =>
            {
                let other = OtherError(Arc::new(SelfSigned));
                Err(Error::InvalidCertificate(CertificateError::Other(other)))
            }
            Err(error) => Err(error),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.check.supported_verify_schemes()
    }
}

/// Whether a certificate would do if it were a root itself. Whatever name it is for is left aside.
fn signs_itself(certificate: &CertificateDer<'_>, now: UnixTime) -> bool {
    let mut alone = RootCertStore::empty();
    if alone.add(certificate.clone().into_owned()).is_err() {
        return false;
    }
    let Ok(check) = check_by(alone) else { return false };
    let nobody = ServerName::IpAddress(std::net::Ipv4Addr::UNSPECIFIED.into());
    let verified = check.verify_server_cert(certificate, &[], &nobody, &[], now);
    !matches!(verified, Err(Error::InvalidCertificate(CertificateError::UnknownIssuer)))
}

/// No check at all: any certificate of anybody, and any signature.
#[derive(Debug)]
pub(super) struct Anybody(Vec<SignatureScheme>);

impl Anybody {
    pub(super) fn new(provider: &CryptoProvider) -> Self {
        Self(provider.signature_verification_algorithms.supported_schemes())
    }
}

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    /// Until when the certificate for `a.test` is good.
    const ENDS: Duration = Duration::from_secs(1_800_000_000);

    /// Trusts an authority, which has signed this certificate for `a.test`.
    fn trusted() -> (Trusted, CertificateDer<'static>) {
        let mut authority = CertificateParams::new([]).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(authority.self_signed(&key).unwrap().der().clone()).unwrap();
        let mut leaf = CertificateParams::new(["a.test".to_owned()]).unwrap();
        leaf.not_after = (UNIX_EPOCH + ENDS).into();
        let signed = leaf.signed_by(&KeyPair::generate().unwrap(), &Issuer::new(authority, key)).unwrap();
        (Trusted::new(roots).unwrap(), signed.der().clone())
    }

    fn verify(
        trusted: &Trusted,
        leaf: &CertificateDer<'_>,
        name: &'static str,
        at: Duration,
    ) -> Option<Error> {
        let (name, now) = (ServerName::try_from(name).unwrap(), UnixTime::since_unix_epoch(at));
        trusted.verify_server_cert(leaf, &[], &name, &[], now).err()
    }

    fn refused(error: Option<Error>) -> CertificateError {
        match error {
            Some(Error::InvalidCertificate(error)) => error,
            other => panic!("{other:?}"),
        }
    }

    fn remembered(trusted: &Trusted, leaf: &CertificateDer<'_>, at: Duration) -> bool {
        let chain = Chain { end_entity: leaf, intermediates: &[] };
        trusted.chains.have(&chain.digest(), UnixTime::since_unix_epoch(at))
    }

    #[test]
    fn a_chain_is_good_for_half_an_hour_from_when_it_was_found_so() {
        let (trusted, leaf) = trusted();
        let now = ENDS - 600 * MINUTE;
        assert!(!remembered(&trusted, &leaf, now));
        assert_eq!(verify(&trusted, &leaf, "a.test", now), None);
        assert!(remembered(&trusted, &leaf, now) && remembered(&trusted, &leaf, now + 29 * MINUTE));
        assert!(
            !remembered(&trusted, &leaf, now + 30 * MINUTE) && !remembered(&trusted, &leaf, now - MINUTE)
        );
    }

    #[test]
    fn a_chain_that_was_found_good_is_good_for_its_own_names_only() {
        let (trusted, leaf) = trusted();
        let now = ENDS - 600 * MINUTE;
        for _ in 0..2 {
            assert_eq!(verify(&trusted, &leaf, "a.test", now), None);
            let error = refused(verify(&trusted, &leaf, "b.test", now));
            assert!(matches!(error, CertificateError::NotValidForNameContext { .. }), "{error:?}");
        }
    }

    #[test]
    fn a_chain_that_was_found_good_ends_when_it_ends() {
        let (trusted, leaf) = trusted();
        assert_eq!(verify(&trusted, &leaf, "a.test", ENDS - MINUTE), None);
        assert!(remembered(&trusted, &leaf, ENDS - MINUTE / 60) && !remembered(&trusted, &leaf, ENDS));
        let error = refused(verify(&trusted, &leaf, "a.test", ENDS + MINUTE));
        assert!(matches!(error, CertificateError::ExpiredContext { .. }), "{error:?}");
    }

    #[test]
    fn what_is_not_good_is_not_remembered_nor_taken_for_what_is() {
        let (trusted, leaf) = trusted();
        let now = ENDS - 600 * MINUTE;
        assert_eq!(verify(&trusted, &leaf, "a.test", now), None);
        // In the last bytes is the authority's signature.
        let mut forged = leaf.to_vec();
        *forged.last_mut().unwrap() ^= 1;
        let forged = CertificateDer::from(forged);
        for _ in 0..2 {
            assert!(verify(&trusted, &forged, "a.test", now).is_some());
            assert!(!remembered(&trusted, &forged, now));
        }
        // Whatever else comes with it is checked with it.
        let more = [leaf.clone()];
        let chain = Chain { end_entity: &leaf, intermediates: &more };
        assert!(!trusted.chains.have(&chain.digest(), UnixTime::since_unix_epoch(now)));
    }
}

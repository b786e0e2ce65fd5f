//! The verification of origins' certificates: by name, dates and issuers, or none.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};

use crate::tls::provider::crypto_provider;

use super::chain_cache::{CertificateChain, VerifiedChainCache};

/// The usual verification, which also recognizes self-signed certificates. A chain that was
/// verified recently is not verified again.
#[derive(Debug)]
pub(super) struct CachingVerifier {
    verifier: Arc<WebPkiServerVerifier>,
    pub(super) chain_cache: VerifiedChainCache,
}

/// The cause of a refused certificate for which rustls has no variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the certificate is self-signed")]
pub(super) struct SelfSigned;

impl CachingVerifier {
    /// Creates a verifier that trusts these roots.
    pub(super) fn new(roots: RootCertStore) -> Result<Self, String> {
        let verifier = webpki_verifier(roots)
            .map_err(|error| format!("no root certificate to verify origins with: {error}"))?;
        Ok(Self {
            verifier,
            chain_cache: VerifiedChainCache::default(),
        })
    }
}

fn webpki_verifier(
    roots: RootCertStore,
) -> Result<Arc<WebPkiServerVerifier>, rustls::client::VerifierBuilderError> {
    let provider = Arc::new(crypto_provider());
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build()
}

impl ServerCertVerifier for CachingVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let chain = CertificateChain {
            end_entity,
            intermediates,
        };
        let digest = chain.digest();
        if self.chain_cache.contains(&digest, now) {
            verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
            return Ok(ServerCertVerified::assertion());
        }
        match self.verifier.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        ) {
            Ok(verified) => {
                self.chain_cache.insert(digest, chain, now);
                Ok(verified)
            }
            Err(Error::InvalidCertificate(CertificateError::UnknownIssuer))
                if is_self_signed(end_entity, now) =>
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
        self.verifier.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

/// Returns `true` if a certificate would be valid as its own root. Its name is ignored.
fn is_self_signed(certificate: &CertificateDer<'_>, now: UnixTime) -> bool {
    let mut roots = RootCertStore::empty();
    if roots.add(certificate.clone().into_owned()).is_err() {
        return false;
    }
    let Ok(verifier) = webpki_verifier(roots) else {
        return false;
    };
    let any_name = ServerName::IpAddress(std::net::Ipv4Addr::UNSPECIFIED.into());
    let verified = verifier.verify_server_cert(certificate, &[], &any_name, &[], now);
    !matches!(
        verified,
        Err(Error::InvalidCertificate(CertificateError::UnknownIssuer))
    )
}

/// Accepts every certificate and every signature.
#[derive(Debug)]
pub(super) struct AcceptAnyVerifier(Vec<SignatureScheme>);

impl AcceptAnyVerifier {
    pub(super) fn new(provider: &CryptoProvider) -> Self {
        Self(
            provider
                .signature_verification_algorithms
                .supported_schemes(),
        )
    }
}

impl ServerCertVerifier for AcceptAnyVerifier {
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

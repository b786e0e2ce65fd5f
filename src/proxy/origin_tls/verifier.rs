//! Who says whether an origin's certificate will do: the usual check by names, dates and issuers, or nobody.

use std::fmt;
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

/// The usual check, which tells a certificate that signs itself from one that a stranger has signed. A chain that was
/// found good lately is not checked again.
#[derive(Debug)]
pub(super) struct CachingVerifier {
    verifier: Arc<WebPkiServerVerifier>,
    pub(super) chain_cache: VerifiedChainCache,
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

impl CachingVerifier {
    /// Trusts what these roots have signed.
    pub(super) fn new(roots: RootCertStore) -> Result<Self, String> {
        let check = webpki_verifier(roots);
        let check =
            check.map_err(|error| format!("no root certificate to verify origins by: {error}"))?;
        Ok(Self {
            verifier: check,
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

/// Whether a certificate would do if it were a root itself. Whatever name it is for is left aside.
fn is_self_signed(certificate: &CertificateDer<'_>, now: UnixTime) -> bool {
    let mut alone = RootCertStore::empty();
    if alone.add(certificate.clone().into_owned()).is_err() {
        return false;
    }
    let Ok(check) = webpki_verifier(alone) else {
        return false;
    };
    let nobody = ServerName::IpAddress(std::net::Ipv4Addr::UNSPECIFIED.into());
    let verified = check.verify_server_cert(certificate, &[], &nobody, &[], now);
    !matches!(
        verified,
        Err(Error::InvalidCertificate(CertificateError::UnknownIssuer))
    )
}

/// No check at all: any certificate of anybody, and any signature.
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

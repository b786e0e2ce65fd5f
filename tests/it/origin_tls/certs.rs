//! Certificates of all kinds, made for one test.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use time::{Duration, OffsetDateTime};

/// A certificate authority.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate with its key.
pub(crate) struct Leaf {
    pub(crate) certificate: CertificateDer<'static>,
    key: KeyPair,
}

/// The validity of a certificate.
#[derive(Clone, Copy, Debug)]
pub(crate) enum When {
    Now,
    Past,
    Future,
}

impl Authority {
    pub(crate) fn new() -> Self {
        Self::named("an authority")
    }

    pub(crate) fn named(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, format!("EVIL {name}"));
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for these names.
    pub(crate) fn leaf(&self, names: &[&str], when: When) -> Leaf {
        let key = KeyPair::generate().unwrap();
        let certificate = params(names, when).signed_by(&key, &self.0).unwrap();
        Leaf {
            certificate: certificate.der().clone(),
            key,
        }
    }

    /// The TLS configuration of an origin with a valid certificate.
    pub(crate) fn server(&self, names: &[&str]) -> Arc<ServerConfig> {
        self.leaf(names, When::Now).server()
    }

    /// A configuration that requires a client certificate.
    pub(crate) fn mutual(&self, names: &[&str]) -> Arc<ServerConfig> {
        let leaf = self.leaf(names, When::Now);
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let clients =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let builder =
            ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder
            .unwrap()
            .with_client_cert_verifier(clients.build().unwrap());
        let key = PrivateKeyDer::try_from(leaf.key.serialize_der()).unwrap();
        Arc::new(
            builder
                .with_single_cert(vec![leaf.certificate], key)
                .unwrap(),
        )
    }
}

fn params(names: &[&str], when: When) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params
        .distinguished_name
        .push(DnType::CommonName, "EVIL name");
    let now = OffsetDateTime::now_utc();
    let (from, to) = match when {
        When::Now => (-1, 1),
        When::Past => (-3, -1),
        When::Future => (1, 3),
    };
    (params.not_before, params.not_after) = (now + Duration::days(from), now + Duration::days(to));
    params
}

/// A self-signed certificate, which may be an authority.
pub(crate) fn self_signed(names: &[&str], is_ca: IsCa) -> Leaf {
    let key = KeyPair::generate().unwrap();
    let mut params = params(names, When::Now);
    params.is_ca = is_ca;
    let certificate = params.self_signed(&key).unwrap();
    Leaf {
        certificate: certificate.der().clone(),
        key,
    }
}

impl Leaf {
    pub(crate) fn server(self) -> Arc<ServerConfig> {
        self.server_by(rustls::DEFAULT_VERSIONS)
    }

    /// A configuration with these versions of TLS only.
    pub(crate) fn server_by(
        self,
        versions: &[&'static rustls::SupportedProtocolVersion],
    ) -> Arc<ServerConfig> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder =
            ServerConfig::builder_with_provider(provider).with_protocol_versions(versions);
        let builder = builder.unwrap().with_no_client_auth();
        let key = PrivateKeyDer::try_from(self.key.serialize_der()).unwrap();
        Arc::new(
            builder
                .with_single_cert(vec![self.certificate], key)
                .unwrap(),
        )
    }
}

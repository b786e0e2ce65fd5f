//! TLS with the store, by rustls. The certificate must be for the host in the URL.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect};
use tokio_rustls::TlsConnector;

use crate::tls::provider::crypto_provider;

use super::StoreError;
use super::url::{StoreTlsMode, StoreUrl};

/// Creates TLS connections to the store.
#[derive(Clone)]
pub(super) struct StoreTls(Arc<ClientConfig>);

impl StoreTls {
    /// Reads the roots that the URL names; those of the system if it names none.
    pub(super) fn new(url: &StoreUrl) -> Result<Self, StoreError> {
        let roots = match url.tls() {
            StoreTlsMode::Disabled => RootCertStore::empty(),
            StoreTlsMode::Verified(None) => system_roots(),
            StoreTlsMode::Verified(Some(path)) => {
                let mut roots = RootCertStore::empty();
                let unusable = |error: &dyn std::fmt::Display| {
                    StoreError::Tls(format!("sslrootcert {}: {error}", path.display()))
                };
                for certificate in
                    CertificateDer::pem_file_iter(path).map_err(|error| unusable(&error))?
                {
                    let certificate = certificate.map_err(|error| unusable(&error))?;
                    roots.add(certificate).map_err(|error| unusable(&error))?;
                }
                if roots.is_empty() {
                    return Err(unusable(&"no certificate (PEM)"));
                }
                roots
            }
        };
        let config = ClientConfig::builder_with_provider(Arc::new(crypto_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| StoreError::Tls(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self(Arc::new(config)))
    }
}

/// Returns the roots of the system; those that cannot be read are left out.
fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

impl<S> MakeTlsConnect<S> for StoreTls
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = StoreTlsStream<S>;
    type TlsConnect = StoreTlsConnector;
    type Error = rustls::pki_types::InvalidDnsNameError;

    fn make_tls_connect(&mut self, domain: &str) -> Result<StoreTlsConnector, Self::Error> {
        Ok(StoreTlsConnector {
            config: Arc::clone(&self.0),
            name: ServerName::try_from(domain.to_owned())?,
        })
    }
}

/// A TLS handshake with one server.
pub(super) struct StoreTlsConnector {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl<S> TlsConnect<S> for StoreTlsConnector
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = StoreTlsStream<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<StoreTlsStream<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let connector = TlsConnector::from(self.config);
            connector
                .connect(self.name, stream)
                .await
                .map(StoreTlsStream)
        })
    }
}

/// A TLS connection to the store.
pub(super) struct StoreTlsStream<S>(tokio_rustls::client::TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> tokio_postgres::tls::TlsStream for StoreTlsStream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        // The certificate is verified for the host, which prevents what channel binding would notice.
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for StoreTlsStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for StoreTlsStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, buffer)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

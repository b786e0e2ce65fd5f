//! The trusted roots for the certificates of origins (`tls.roots`, `tls.extra_roots`), from the system and from files.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::config::settings::{TlsConfig, TrustRoots};
use crate::model::certificate_verification::CertificateVerification;
use crate::proxy::origin_tls::OriginTlsSettings;
use crate::tls::provider::crypto_provider;
use crate::urls::target::{Scheme, UrlTarget};

use super::ca_bundle;

/// Returns the settings of TLS with origins. Roots are read only if they are used.
///
/// # Errors
/// If there are no roots, or a file of them cannot be used.
pub(super) fn origin_tls_settings(tls: &TlsConfig) -> Result<OriginTlsSettings, String> {
    let roots = match tls.verify {
        CertificateVerification::On => load_roots(tls)?,
        CertificateVerification::Skip => RootCertStore::empty(),
    };
    Ok(OriginTlsSettings {
        verify: tls.verify,
        roots,
        handshake_timeout: tls.handshake_timeout,
    })
}

/// Reads the roots that the settings name.
///
/// # Errors
/// If there are no roots, or a file of them cannot be used.
fn load_roots(tls: &TlsConfig) -> Result<RootCertStore, String> {
    let mut roots = match tls.roots {
        TrustRoots::Native => load_native_roots(&tls.bundle),
        TrustRoots::Webpki => webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect(),
    };
    for file in &tls.extra_roots {
        add_file(&mut roots, file)?;
    }
    if roots.is_empty() {
        return Err(
            "tls.roots: the system has no root certificates to verify origins with; install them (Debian: \
                    ca-certificates), or set tls.roots to webpki"
                .to_owned(),
        );
    }
    Ok(roots)
}

/// Reads the system's roots. Some systems have unreadable ones among them, which are skipped with a warning.
fn load_native_roots(bundle: &Path) -> RootCertStore {
    let found = ca_bundle::load_system_roots(bundle);
    for error in &found.errors {
        tracing::warn!("tls.roots: {error}");
    }
    let mut roots = RootCertStore::empty();
    let (_, unreadable) = roots.add_parsable_certificates(found.certs);
    if unreadable > 0 {
        tracing::warn!(
            "tls.roots: skipped {unreadable} unreadable root certificates of the system"
        );
    }
    roots
}

/// Adds the certificates of one file. Each must be usable, since the operator relies on it.
fn add_file(roots: &mut RootCertStore, file: &Path) -> Result<(), String> {
    add_certificates(roots, file)
        .map_err(|error| format!("tls.extra_roots: {}: {error}", file.display()))
}

fn add_certificates(roots: &mut RootCertStore, file: &Path) -> Result<(), String> {
    let text = std::fs::read(file).map_err(|error| error.to_string())?;
    let mut count = 0;
    for certificate in CertificateDer::pem_slice_iter(&text) {
        count += 1;
        let certificate =
            certificate.map_err(|error| format!("certificate {count} is not PEM: {error}"))?;
        roots
            .add(certificate)
            .map_err(|error| format!("certificate {count} cannot be a root: {error}"))?;
    }
    if count == 0 {
        return Err("it contains no certificate (-----BEGIN CERTIFICATE-----)".to_owned());
    }
    Ok(())
}

/// Returns the TLS configuration for a server that the operator names, or `None` for an http URL. Its certificate is
/// always verified, with the same roots as those of origins.
///
/// # Errors
/// If there are no roots, or a file of them cannot be used.
pub(super) fn client_config_for(
    url: &UrlTarget,
    tls: &TlsConfig,
) -> Result<Option<Arc<ClientConfig>>, String> {
    if url.scheme() == Scheme::Http {
        return Ok(None);
    }
    let config = ClientConfig::builder_with_provider(Arc::new(crypto_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let config = config
        .with_root_certificates(load_roots(tls)?)
        .with_no_client_auth();
    Ok(Some(Arc::new(config)))
}

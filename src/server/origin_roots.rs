//! Whom origins' certificates are to come from: the roots that `tls` of the configuration names, read from the system
//! and from files.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::config::settings::{Settings, TlsConfig, TrustRoots};
use crate::model::certificate_verification::CertificateVerification;
use crate::proxy::origin_tls::OriginTlsSettings;
use crate::tls::provider::crypto_provider;

use super::ca_bundle;

/// How the proxy speaks TLS to origins. Roots are read only if they are used.
///
/// # Errors
/// If there are none, or a file of them cannot be used; in words that name it.
pub(super) fn origin_tls_settings(settings: &Settings) -> Result<OriginTlsSettings, String> {
    let tls = &settings.tls;
    let verify = if tls.verify_upstream {
        CertificateVerification::On
    } else {
        CertificateVerification::Skip
    };
    let roots = match verify {
        CertificateVerification::On => load_roots(tls)?,
        CertificateVerification::Skip => RootCertStore::empty(),
    };
    Ok(OriginTlsSettings {
        verify,
        roots,
        handshake_timeout: settings.timeouts.tls,
    })
}

/// Those that the settings name.
///
/// # Errors
/// If there are none, or a file of them cannot be used; in words that name it.
pub(super) fn load_roots(tls: &TlsConfig) -> Result<RootCertStore, String> {
    let mut roots = match tls.roots {
        TrustRoots::Native => load_native_roots(&tls.bundle),
        TrustRoots::Webpki => webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect(),
    };
    for file in &tls.extra_roots {
        add_file(&mut roots, file)?;
    }
    if roots.is_empty() {
        return Err(
            "tls.roots: the system has no root certificates to verify origins by; install them (Debian: \
                    ca-certificates), or set tls.roots to webpki"
                .to_owned(),
        );
    }
    Ok(roots)
}

/// The system's. Some systems keep roots that cannot be read any more: what fails is told, and the others count.
fn load_native_roots(bundle: &Path) -> RootCertStore {
    let found = ca_bundle::load_system_roots(bundle);
    for error in &found.errors {
        tracing::warn!("tls.roots: {error}");
    }
    let mut roots = RootCertStore::empty();
    let (_, unreadable) = roots.add_parsable_certificates(found.certs);
    if unreadable > 0 {
        tracing::warn!("tls.roots: {unreadable} of the system's root certificates cannot be read");
    }
    roots
}

/// Adds the certificates of one file. Whoever names it counts on every one of them.
fn add_file(roots: &mut RootCertStore, file: &Path) -> Result<(), String> {
    let told = |why: String| format!("tls.extra_roots: {}: {why}", file.display());
    let text = std::fs::read(file).map_err(|error| told(error.to_string()))?;
    let mut count = 0;
    for certificate in CertificateDer::pem_slice_iter(&text) {
        count += 1;
        let certificate =
            certificate.map_err(|error| told(format!("certificate {count} is no PEM: {error}")))?;
        let added = roots.add(certificate);
        added.map_err(|error| told(format!("certificate {count} cannot be a root: {error}")))?;
    }
    if count == 0 {
        return Err(told(
            "there is no certificate in it (-----BEGIN CERTIFICATE-----)".to_owned(),
        ));
    }
    Ok(())
}

/// How those whom the operator names prove who they are: by the same roots, always verified.
///
/// # Errors
/// If there are no roots, in words.
pub(super) fn verifying_client_config(tls: &TlsConfig) -> Result<Arc<ClientConfig>, String> {
    let config = ClientConfig::builder_with_provider(Arc::new(crypto_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(Arc::new(
        config
            .with_root_certificates(load_roots(tls)?)
            .with_no_client_auth(),
    ))
}

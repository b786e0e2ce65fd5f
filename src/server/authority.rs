//! The certificate authorities that the settings name: loaded for `run`, and created if they do not exist.

use std::time::SystemTime;

use crate::config::settings::{AuthorityFiles, Settings, TlsConfig};
use crate::console::warn;
use crate::tls::{CaCertificate, CaError, CertificateAuthority};

use super::ca_bundle;

/// The remaining lifetime at which a warning about the expiry of an authority begins.
const EXPIRY_WARNING_DAYS: u64 = 30;

/// The authorities of a proxy that intercepts TLS.
#[derive(Debug)]
pub(crate) struct LoadedAuthorities {
    /// The first authority, which signs.
    pub(crate) authority: CertificateAuthority,
    /// The certificates of all authorities, as PEM text.
    pub(crate) pem: String,
}

/// Loads the authorities if TLS is intercepted, and writes the bundle for clients. If the first authority does not exist
/// and the settings allow it, creates it and reports that on standard error.
///
/// # Errors
/// If no authority is available for signing.
pub(crate) fn open(
    settings: &Settings,
    now: SystemTime,
) -> Result<Option<LoadedAuthorities>, CaError> {
    let tls = &settings.tls;
    if !tls.intercept {
        return Ok(None);
    }
    let authority = load_or_create_signing(tls, now)?;
    let certificates = load_certificates(tls)?;
    warn_expiry(&certificates, now);
    if let Err(error) = ca_bundle::write(&tls.bundle, &certificates) {
        warn(&format!(
            "tls.bundle {}: {error}; clients that need this file will not find it",
            tls.bundle.display()
        ));
    }
    Ok(Some(LoadedAuthorities {
        authority,
        pem: ca_bundle::join_pem(&certificates),
    }))
}

/// Loads the certificates of all authorities; the first is the one that signs.
///
/// # Errors
/// If a file does not exist, or is not the certificate of an authority.
pub(crate) fn load_certificates(tls: &TlsConfig) -> Result<Vec<CaCertificate>, CaError> {
    tls.authorities.iter().map(load_certificate).collect()
}

/// Returns the files of the authority that signs.
pub(crate) fn signing_files(tls: &TlsConfig) -> Result<&AuthorityFiles, CaError> {
    tls.authorities
        .first()
        .ok_or_else(|| CaError::Failed("`tls.ca` names no authority".into()))
}

/// Warns about authorities that have expired or will soon.
pub(crate) fn warn_expiry(certificates: &[CaCertificate], now: SystemTime) {
    for certificate in certificates {
        match certificate.days_left(now) {
            None => warn(&format!(
                "the certificate authority {} has expired",
                certificate.subject()
            )),
            Some(days) if days < EXPIRY_WARNING_DAYS => warn(&format!(
                "the certificate authority {} expires in {days} days; create a second one, list it under `tls.ca`, let \
                 clients trust it, then move it to the first place",
                certificate.subject()
            )),
            Some(_) => {}
        }
    }
}

/// Reports on standard error that an authority was created, and how to make clients trust it.
pub(crate) fn announce_created(files: &AuthorityFiles) {
    eprintln!(
        "created a certificate authority: {}, with its key in {}\n\
         clients must trust it: `eval \"$(crawlgate env)\"` sets this up for most clients started from a shell; the \
         certificate is also /ca.pem on the admin listener",
        files.cert.display(),
        files.key.display()
    );
}

fn load_or_create_signing(
    tls: &TlsConfig,
    now: SystemTime,
) -> Result<CertificateAuthority, CaError> {
    let files = signing_files(tls)?;
    match CertificateAuthority::load(&files.cert, &files.key, now) {
        Err(CaError::Missing { .. }) if tls.create => {
            let authority = CertificateAuthority::create(&files.cert, &files.key, now)?;
            announce_created(files);
            Ok(authority)
        }
        loaded => loaded,
    }
}

fn load_certificate(files: &AuthorityFiles) -> Result<CaCertificate, CaError> {
    if files.cert.exists() {
        return CaCertificate::load(&files.cert);
    }
    Err(CaError::Missing {
        cert: files.cert.clone(),
        key: files.key.clone(),
    })
}

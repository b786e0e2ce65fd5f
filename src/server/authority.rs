//! The certificate authorities that the settings name: opened for `run`, made if they are not there, and told of.
//!
//! What an authority is, and what is wrong with one, is `tls::ca`'s business.

use std::time::SystemTime;

use crate::config::settings::{AuthorityFiles, Settings, TlsConfig};
use crate::console::warn;
use crate::tls::{CaCertificate, CaError, CertificateAuthority};

use super::ca_bundle;

/// From here on an authority's end is told.
const EXPIRY_WARNING_DAYS: u64 = 30;

/// The authorities of a proxy that looks into TLS.
#[derive(Debug)]
pub(crate) struct LoadedAuthorities {
    /// The first, which signs.
    pub(crate) authority: CertificateAuthority,
    /// The certificates of all, as PEM text.
    pub(crate) pem: String,
}

/// Opens what `run` needs: nothing if TLS is not looked into. An authority that is not there is made if the settings
/// say so, and told on standard error; the bundle for clients is written.
///
/// # Errors
/// Why there is no authority to sign with.
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
            "tls.bundle {}: {error}; clients that need it will not find it",
            tls.bundle.display()
        ));
    }
    Ok(Some(LoadedAuthorities {
        authority,
        pem: ca_bundle::join_pem(&certificates),
    }))
}

/// The certificates of all authorities; the first is the one that signs.
///
/// # Errors
/// The first file that is no authority's certificate, or is not there.
pub(crate) fn load_certificates(tls: &TlsConfig) -> Result<Vec<CaCertificate>, CaError> {
    tls.authorities.iter().map(load_certificate).collect()
}

/// The files of the authority that signs.
pub(crate) fn signing_files(tls: &TlsConfig) -> Result<&AuthorityFiles, CaError> {
    tls.authorities
        .first()
        .ok_or_else(|| CaError::Failed("`tls.ca` names none".into()))
}

/// Warns of those that end soon, or have.
pub(crate) fn warn_expiry(certificates: &[CaCertificate], now: SystemTime) {
    for certificate in certificates {
        match certificate.days_left(now) {
            None => warn(&format!(
                "the certificate authority {} has expired",
                certificate.subject()
            )),
            Some(days) if days < EXPIRY_WARNING_DAYS => warn(&format!(
                "the certificate authority {} expires in {days} days; make a second one, list it under `tls.ca` and \
                 let clients trust it, then let it sign",
                certificate.subject()
            )),
            Some(_) => {}
        }
    }
}

/// Tells that there is a new authority, and what to do with it.
pub(crate) fn announce_created(files: &AuthorityFiles) {
    eprintln!(
        "made a certificate authority: {}, with its key in {}\n\
         clients must trust it: `eval \"$(crawlgate env)\"` tells most of those that a shell starts; it is /ca.pem on \
         the admin listener, too",
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
            let made = CertificateAuthority::create(&files.cert, &files.key, now)?;
            announce_created(files);
            Ok(made)
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

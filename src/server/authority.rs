//! The certificate authorities that the settings name: loaded for `run`, and created if they do not exist.

use std::fs;
use std::time::SystemTime;

use crate::config::canonical_path;
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
    /// The certificates of all authorities.
    pub(crate) certificates: Vec<CaCertificate>,
}

/// Loads the authorities if TLS is intercepted, and writes the bundle for clients. Creates those that do not exist if the
/// settings allow it, and reports that on standard error.
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
    create_missing(tls.authorities.iter().filter(|files| files.create), now)?;
    let files = signing_files(tls)?;
    let authority = CertificateAuthority::load(&files.cert, &files.key, now)?;
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
        certificates,
    }))
}

/// Creates the authorities neither of whose files exists, reports them on standard error, and returns their files.
///
/// # Errors
/// If a file cannot be written. Those created before it remain.
pub(crate) fn create_missing<'a>(
    authorities: impl Iterator<Item = &'a AuthorityFiles>,
    now: SystemTime,
) -> Result<Vec<&'a AuthorityFiles>, CaError> {
    let mut created = Vec::new();
    for files in authorities.filter(|files| is_missing(files)) {
        CertificateAuthority::create(&files.cert, &files.key, now)?;
        announce_created(files);
        created.push(files);
    }
    Ok(created)
}

/// Returns true if neither file of the authority exists.
pub(crate) fn is_missing(files: &AuthorityFiles) -> bool {
    let exists = |path| fs::symlink_metadata(path).is_ok();
    !exists(&files.cert) && !exists(&files.key)
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
    for warning in expiry_warnings(certificates, now) {
        warn(&warning);
    }
}

/// Returns a warning for each authority that has expired or will within 30 days.
pub(crate) fn expiry_warnings(
    certificates: &[CaCertificate],
    now: SystemTime,
) -> impl Iterator<Item = String> {
    certificates.iter().filter_map(move |certificate| {
        let subject = certificate.subject();
        match certificate.days_left(now) {
            None => Some(format!("the certificate authority {subject} has expired")),
            Some(days) if days < EXPIRY_WARNING_DAYS => Some(format!(
                "the certificate authority {subject} expires in {days} days; list a second one under `tls.ca`, create it \
                 by `crawlgate ca init`, let clients trust it, then move it to the first place"
            )),
            Some(_) => None,
        }
    })
}

/// Reports on standard error that an authority was created, and how to make clients trust it.
fn announce_created(files: &AuthorityFiles) {
    eprintln!(
        "created a certificate authority: {}, with its key in {}\n\
         clients must trust it: `eval \"$(crawlgate env)\"` sets this up for most clients started from a shell; the \
         certificate is also /ca.pem on the admin listener",
        canonical_path(&files.cert).display(),
        canonical_path(&files.key).display()
    );
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

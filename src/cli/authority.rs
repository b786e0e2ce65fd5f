//! The certificate authorities that the settings name: opened for `run`, made if they are not there, and told of.
//!
//! What an authority is, and what is wrong with one, is `tls::ca`'s business.

use std::time::SystemTime;

use crate::config::settings::{AuthorityFiles, Settings, Tls};
use crate::tls::{Authority, AuthorityError, Certificate};

use super::exit::Exit;
use super::out::{say_and_fail, warn};
use super::{bundle, out};

/// From here on an authority's end is told.
const SOON_DAYS: u64 = 30;

/// The authorities of a proxy that looks into TLS.
#[derive(Debug)]
pub struct Opened {
    /// The first, which signs.
    pub authority: Authority,
    /// The certificates of all, as PEM text.
    pub pem: String,
}

/// Opens what `run` needs: nothing if TLS is not looked into. An authority that is not there is made if the settings
/// say so, and told on standard error; the bundle for clients is written.
///
/// # Errors
/// Why there is no authority to sign with.
pub(super) fn open(settings: &Settings, now: SystemTime) -> Result<Option<Opened>, AuthorityError> {
    let tls = &settings.tls;
    if !tls.intercept {
        return Ok(None);
    }
    let authority = signing(tls, now)?;
    let certificates = certificates(tls)?;
    tell_age(&certificates, now);
    if let Err(error) = bundle::write(&tls.bundle, &certificates) {
        warn(&format!(
            "tls.bundle {}: {error}; clients that need it will not find it",
            tls.bundle.display()
        ));
    }
    Ok(Some(Opened {
        authority,
        pem: bundle::joined(&certificates),
    }))
}

/// The certificates of all authorities; the first is the one that signs.
///
/// # Errors
/// The first file that is no authority's certificate, or is not there.
pub(super) fn certificates(tls: &Tls) -> Result<Vec<Certificate>, AuthorityError> {
    tls.authorities.iter().map(of_file).collect()
}

/// The files of the authority that signs.
pub(super) fn first(tls: &Tls) -> Result<&AuthorityFiles, AuthorityError> {
    tls.authorities
        .first()
        .ok_or_else(|| AuthorityError::Failed("`tls.ca` names none".into()))
}

/// Tells why an authority cannot be used: files with mistakes are invalid input, all else keeps from running.
pub(super) fn refused(error: &AuthorityError) -> Exit {
    match error {
        AuthorityError::Exists(_)
        | AuthorityError::NoCertificate(_)
        | AuthorityError::NoAuthority(_)
        | AuthorityError::NoKey(_)
        | AuthorityError::Strangers { .. } => out::complain(error),
        AuthorityError::Missing { .. }
        | AuthorityError::Half { .. }
        | AuthorityError::LooseKey { .. }
        | AuthorityError::Expired { .. }
        | AuthorityError::Io { .. }
        | AuthorityError::Failed(_) => say_and_fail(error),
    }
}

/// Warns of those that end soon, or have.
pub(super) fn tell_age(certificates: &[Certificate], now: SystemTime) {
    for certificate in certificates {
        match certificate.days_left(now) {
            None => warn(&format!(
                "the certificate authority {} has expired",
                certificate.subject()
            )),
            Some(days) if days < SOON_DAYS => warn(&format!(
                "the certificate authority {} expires in {days} days; make a second one, list it under `tls.ca` and \
                 let clients trust it, then let it sign",
                certificate.subject()
            )),
            Some(_) => {}
        }
    }
}

/// Tells that there is a new authority, and what to do with it.
pub(super) fn tell_new(files: &AuthorityFiles) {
    eprintln!(
        "made a certificate authority: {}, with its key in {}\n\
         clients must trust it: `eval \"$(crawlgate env)\"` tells most of those that a shell starts; it is /ca.pem on \
         the admin listener, too",
        files.cert.display(),
        files.key.display()
    );
}

fn signing(tls: &Tls, now: SystemTime) -> Result<Authority, AuthorityError> {
    let files = first(tls)?;
    match Authority::load(&files.cert, &files.key, now) {
        Err(AuthorityError::Missing { .. }) if tls.create => {
            let made = Authority::create(&files.cert, &files.key, now)?;
            tell_new(files);
            Ok(made)
        }
        loaded => loaded,
    }
}

fn of_file(files: &AuthorityFiles) -> Result<Certificate, AuthorityError> {
    if files.cert.exists() {
        return Certificate::load(&files.cert);
    }
    Err(AuthorityError::Missing {
        cert: files.cert.clone(),
        key: files.key.clone(),
    })
}

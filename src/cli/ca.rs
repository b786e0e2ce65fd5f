//! `crawlgate ca`: creates, shows and exports the certificate authorities of the configuration.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::iter;
use std::time::SystemTime;

use crate::clock::{Clock, Rfc3339};
use crate::config::settings::{AuthorityFiles, TlsConfig};
use crate::server::{authority, ca_bundle};
use crate::tls::{CaCertificate, CaError, CertificateAuthority};

use super::args::{CaArgs, CaCommand, CaExportArgs, CaFormat};
use super::{Exit, console, inputs};

/// Runs the command. Exits with 2 for files that exist already or are invalid, with 3 if there is no authority.
pub(super) fn run(args: &CaArgs) -> Result<Exit, Exit> {
    let settings = inputs::load_config(args.config.as_deref())?;
    let tls = &settings.tls;
    let now = Clock::system().wall_time();
    let result = match &args.command {
        CaCommand::Init => init(tls, now),
        CaCommand::Show => show(tls, now),
        CaCommand::Export(args) => export(tls, args),
    };
    result.map_err(|error| report_error(&error))
}

/// Reports an error: invalid files are invalid input, any other error means that the command cannot run.
pub(super) fn report_error(error: &CaError) -> Exit {
    match error {
        CaError::Exists(_)
        | CaError::NoCertificate(_)
        | CaError::NotAuthority(_)
        | CaError::NoKey(_)
        | CaError::KeyMismatch { .. } => console::report_invalid(error),
        CaError::Missing { .. }
        | CaError::Incomplete { .. }
        | CaError::InsecureKeyMode { .. }
        | CaError::Expired { .. }
        | CaError::Io { .. }
        | CaError::Failed(_) => console::report_cannot_run(error),
    }
}

/// Creates the authorities that do not exist, and the bundle of all.
fn init(tls: &TlsConfig, now: SystemTime) -> Result<Exit, CaError> {
    let created = authority::create_missing(tls.authorities.iter(), now)?;
    if created.is_empty() {
        let files = authority::signing_files(tls)?;
        return Err(CaError::Exists(files.cert.clone()));
    }
    let certificates = authority::load_certificates(tls)?;
    if let Err(error) = ca_bundle::write(&tls.bundle, &certificates) {
        console::warn(&format!("tls.bundle {}: {error}", tls.bundle.display()));
    }
    let mut text = String::new();
    for (certificate, files, role) in by_role(&certificates, tls) {
        if created.contains(&files) {
            text.push_str(&describe(certificate, files, role, now));
        }
    }
    Ok(console::print(&text, Exit::Success))
}

/// Shows all certificates that can be read, then reports an error of the authority that signs.
fn show(tls: &TlsConfig, now: SystemTime) -> Result<Exit, CaError> {
    let certificates = authority::load_certificates(tls)?;
    let mut text = String::new();
    for (certificate, files, role) in by_role(&certificates, tls) {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&describe(certificate, files, role, now));
    }
    authority::warn_expiry(&certificates, now);
    let exit = console::print(&text, Exit::Success);
    let files = authority::signing_files(tls)?;
    CertificateAuthority::load(&files.cert, &files.key, now)?;
    Ok(exit)
}

fn export(tls: &TlsConfig, args: &CaExportArgs) -> Result<Exit, CaError> {
    let certificates = authority::load_certificates(tls)?;
    let bytes = match args.format {
        CaFormat::Pem => ca_bundle::join_pem(&certificates).into_bytes(),
        CaFormat::Der => {
            if certificates.len() > 1 {
                console::warn(&"DER contains one certificate: that of the authority that signs");
            }
            certificates
                .first()
                .map(|first| first.der().to_vec())
                .unwrap_or_default()
        }
    };
    let Some(path) = &args.output else {
        let mut output = io::stdout().lock();
        let written = output.write_all(&bytes).and_then(|()| output.flush());
        return Ok(
            written.map_or_else(|error| console::report_io_error(&error), |()| Exit::Success)
        );
    };
    let file = fs::File::create_new(path).and_then(|mut file| file.write_all(&bytes));
    file.map_err(|error| {
        if error.kind() == io::ErrorKind::AlreadyExists {
            CaError::Exists(path.clone())
        } else {
            CaError::Io {
                path: path.clone(),
                error,
            }
        }
    })?;
    Ok(Exit::Success)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AuthorityRole {
    /// The first authority, which signs certificates.
    Signing,
    /// Any other authority, which clients trust.
    Trusted,
}

/// Returns the certificates with their files; the first authority signs.
fn by_role<'a>(
    certificates: &'a [CaCertificate],
    tls: &'a TlsConfig,
) -> impl Iterator<Item = (&'a CaCertificate, &'a AuthorityFiles, AuthorityRole)> {
    let roles = iter::once(AuthorityRole::Signing).chain(iter::repeat(AuthorityRole::Trusted));
    let files = certificates.iter().zip(&tls.authorities).zip(roles);
    files.map(|((certificate, files), role)| (certificate, files, role))
}

fn describe(
    certificate: &CaCertificate,
    files: &AuthorityFiles,
    role: AuthorityRole,
    now: SystemTime,
) -> String {
    let mut text = String::new();
    let role = match role {
        AuthorityRole::Signing => "signs",
        AuthorityRole::Trusted => "exported, does not sign",
    };
    let remaining = match certificate.days_left(now) {
        Some(days) => format!("{days} days left"),
        None => "expired".to_owned(),
    };
    for (label, value) in [
        ("subject", certificate.subject().to_owned()),
        ("role", role.to_owned()),
        (
            "valid",
            format!(
                "{} to {} ({remaining})",
                Rfc3339(certificate.not_before()),
                Rfc3339(certificate.not_after())
            ),
        ),
        ("sha256", certificate.fingerprint()),
        ("certificate", files.cert.display().to_string()),
        ("key", files.key.display().to_string()),
    ] {
        let _ = writeln!(text, "{label:<12}{value}");
    }
    text
}

//! `crawlgate ca`: makes, shows and exports the certificate authorities of the configuration.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::time::SystemTime;

use crate::clock::{Clock, Rfc3339};
use crate::config::load::Overrides;
use crate::config::settings::{AuthorityFiles, Tls};
use crate::tls::{Authority, AuthorityError, Certificate};

use super::args::{CaArgs, CaCommand, CaExportArgs, CaFormat};
use super::exit::Exit;
use super::{authority, bundle, open, out};

/// Runs the command. Exit 2 for files that are there already or have mistakes, 3 if there is no authority.
pub(super) fn run(args: &CaArgs) -> Exit {
    let overrides = Overrides {
        config: args.config.clone(),
        ..Overrides::default()
    };
    let settings = match open::settings(&overrides) {
        Ok(loaded) => loaded.settings,
        Err(exit) => return exit,
    };
    let (tls, now) = (&settings.tls, Clock::system().wall());
    let done = match &args.command {
        CaCommand::Init => init(tls, now),
        CaCommand::Show => show(tls, now),
        CaCommand::Export(args) => export(tls, args),
    };
    done.unwrap_or_else(|error| authority::refused(&error))
}

/// Makes the first authority, and the bundle.
fn init(tls: &Tls, now: SystemTime) -> Result<Exit, AuthorityError> {
    let files = authority::first(tls)?;
    let made = Authority::create(&files.cert, &files.key, now)?;
    authority::tell_new(files);
    match authority::certificates(tls).map(|all| bundle::write(&tls.bundle, &all)) {
        Ok(Ok(())) => {}
        Ok(Err(error)) => out::warn(&format!("tls.bundle {}: {error}", tls.bundle.display())),
        Err(error) => out::warn(&format!("tls.bundle was not written: {error}")),
    }
    Ok(out::write(
        &described(made.certificate(), files, Role::Signs, now),
        Exit::Success,
    ))
}

/// Shows all that can be read, then says what is wrong with the one that signs.
fn show(tls: &Tls, now: SystemTime) -> Result<Exit, AuthorityError> {
    let certificates = authority::certificates(tls)?;
    let mut text = String::new();
    for (place, (certificate, files)) in certificates.iter().zip(&tls.authorities).enumerate() {
        let role = if place == 0 {
            Role::Signs
        } else {
            Role::Trusted
        };
        text.push_str(&described(certificate, files, role, now));
    }
    authority::tell_age(&certificates, now);
    let shown = out::write(&text, Exit::Success);
    let files = authority::first(tls)?;
    Authority::load(&files.cert, &files.key, now)?;
    Ok(shown)
}

fn export(tls: &Tls, args: &CaExportArgs) -> Result<Exit, AuthorityError> {
    let certificates = authority::certificates(tls)?;
    let bytes = match args.format {
        CaFormat::Pem => bundle::joined(&certificates).into_bytes(),
        CaFormat::Der => {
            if certificates.len() > 1 {
                out::warn(&"DER holds one certificate: this is the authority that signs");
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
        return Ok(written.map_or_else(|error| out::failed(&error), |()| Exit::Success));
    };
    let file = fs::File::create_new(path).and_then(|mut file| file.write_all(&bytes));
    file.map_err(|error| {
        if error.kind() == io::ErrorKind::AlreadyExists {
            AuthorityError::Exists(path.clone())
        } else {
            AuthorityError::Io {
                path: path.clone(),
                error,
            }
        }
    })?;
    Ok(Exit::Success)
}

/// What an authority is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Signs,
    Trusted,
}

fn described(
    certificate: &Certificate,
    files: &AuthorityFiles,
    role: Role,
    now: SystemTime,
) -> String {
    let mut text = String::new();
    let role = match role {
        Role::Signs => "signs",
        Role::Trusted => "exported, does not sign",
    };
    let left = match certificate.days_left(now) {
        Some(days) => format!("{days} days left"),
        None => "expired".to_owned(),
    };
    for (word, value) in [
        ("subject", certificate.subject().to_owned()),
        ("role", role.to_owned()),
        (
            "valid",
            format!(
                "{} to {} ({left})",
                Rfc3339(certificate.not_before()),
                Rfc3339(certificate.not_after())
            ),
        ),
        ("sha256", certificate.fingerprint()),
        ("certificate", files.cert.display().to_string()),
        ("key", files.key.display().to_string()),
    ] {
        let _ = writeln!(text, "{word:<12}{value}");
    }
    text
}

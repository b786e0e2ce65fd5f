//! Checks whether the paths of a configuration can be used, as far as that is possible without writing.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::Path;

use rustix::fs::{Access, access};

use crate::admin::guard::{AdminToken, AdminTokenError};
use crate::clock::Clock;
use crate::config::settings::{AuthorityFiles, Settings};
use crate::diagnostics::problem::{Problem, SourceLocation};
use crate::io_advice::user_name;
use crate::server::authority;
use crate::tls::{CaCertificate, CertificateAuthority};

/// Returns a problem for each path that `run` could not use. It is a warning if another user could, as whom the proxy may
/// run.
pub(super) fn find_problems(settings: &Settings, location: &SourceLocation) -> Vec<Problem> {
    let log = settings.logs.destination.file();
    let log = log.map(|path| ("logs.decisions", path));
    let events = settings.ledger.events.file.as_deref();
    let files = log
        .into_iter()
        .chain(events.map(|path| ("ledger.events.file", path)))
        .map(|(key, path)| (key, path, try_file(path)));
    let rotated = log.filter(|_| settings.logs.rotate.is_some());
    let rotated = rotated.map(|(_, path)| ("logs.rotate", path, try_rotation(path)));
    let directories = settings
        .store
        .path
        .as_deref()
        .map(|path| ("store.path", path, try_directory(path)));
    let authorities = (settings.tls.authorities.iter())
        .filter(|_| settings.tls.intercept)
        .enumerate()
        .flat_map(|(at, files)| try_authority(files, at == 0))
        .map(|(path, result)| ("tls.ca", path, result));
    let token = settings
        .admin
        .token_file
        .as_deref()
        .map(|path| ("admin.token_file", path, try_token(path)));
    let mut problems: Vec<Problem> = files
        .chain(rotated)
        .chain(directories)
        .chain(token)
        .chain(authorities)
        .filter_map(|(key, path, result)| {
            let error = result.err()?;
            let message = format!("{key}: {} cannot be used: {error}", path.display());
            Some(if error.kind() == ErrorKind::PermissionDenied {
                Problem::warning(location, message)
            } else {
                Problem::error(location, message)
            })
        })
        .collect();
    let bundle = settings.tls.bundle.as_path();
    if settings.tls.intercept
        && let Err(error) = try_bundle(bundle)
    {
        let message = format!(
            "tls.bundle: {} cannot be written: {error}; clients that need this file will not find it",
            bundle.display()
        );
        problems.push(Problem::warning(location, message));
    }
    problems
}

/// Loads an authority as `run` does, or checks that its files can be created. The first one signs: its key is used.
fn try_authority(files: &AuthorityFiles, signs: bool) -> Vec<(&Path, io::Result<()>)> {
    let cert = files.cert.as_path();
    let key = files.key.as_path();
    if authority::is_missing(files) {
        return if files.create {
            vec![(cert, try_file(cert)), (key, try_file(key))]
        } else {
            vec![(cert, Err(missing_authority()))]
        };
    }
    let paths = if signs { vec![cert, key] } else { vec![cert] };
    let unreadable: Vec<(&Path, io::Result<()>)> = paths
        .into_iter()
        .map(|path| (path, File::open(path).map(drop)))
        .filter(|(_, result)| result.is_err())
        .collect();
    if !unreadable.is_empty() {
        return unreadable;
    }
    let loaded = if signs {
        CertificateAuthority::load(cert, key, Clock::system().wall_time()).map(drop)
    } else {
        CaCertificate::load(cert).map(drop)
    };
    vec![(cert, loaded.map_err(io::Error::other))]
}

/// Checks that the bundle can be created. One that exists is only replaced if its content changes.
fn try_bundle(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(io::Error::other("it is a directory")),
        Ok(_) => Ok(()),
        Err(_) => try_file(path),
    }
}

/// Reads the file of the admin token as `run` does.
fn try_token(path: &Path) -> io::Result<()> {
    match AdminToken::from_file(path) {
        Ok(_) => Ok(()),
        Err(AdminTokenError::Unreadable(error)) => Err(error),
        Err(error @ AdminTokenError::Invalid) => Err(io::Error::other(error)),
    }
}

fn missing_authority() -> io::Error {
    let cure = "it does not exist, and `create` is off: `crawlgate ca init` creates it";
    io::Error::new(ErrorKind::NotFound, cure)
}

/// Opens a file that exists. Of another one, checks the directories in which it would be created.
fn try_file(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(io::Error::other("it is a directory")),
        // Opening a pipe would wait for its reader.
        Ok(found) if !found.is_file() => Ok(()),
        Ok(_) => OpenOptions::new().append(true).open(path).map(drop),
        Err(error) if is_missing(&error) => match path.parent() {
            Some(directory) => try_directory(directory),
            None => Ok(()),
        },
        Err(error) => Err(error),
    }
}

/// Checks that a file can be rotated: names in its directory change.
fn try_rotation(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(found) if found.is_file() => path.parent().map_or(Ok(()), try_directory),
        // The directory of a file that does not exist is checked anyway.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Checks that the user of this process may create files in a directory; root may everywhere.
fn check_writable(directory: &Path) -> io::Result<()> {
    let Err(error) = access(directory, Access::WRITE_OK | Access::EXEC_OK) else {
        return Ok(());
    };
    let kind = io::Error::from(error).kind();
    let message = if kind == ErrorKind::PermissionDenied {
        format!(
            "user {} may not write to {}",
            user_name(),
            directory.display()
        )
    } else {
        format!("{} cannot be written: {error}", directory.display())
    };
    Err(io::Error::new(kind, message))
}

/// Checks that a directory exists, or can be created: the nearest path above it that exists must be a directory.
fn try_directory(path: &Path) -> io::Result<()> {
    for path in path.ancestors().filter(|path| !path.as_os_str().is_empty()) {
        match fs::metadata(path) {
            Ok(found) if found.is_dir() => return check_writable(path),
            Ok(_) => {
                return Err(io::Error::other(format!(
                    "{} is not a directory",
                    path.display()
                )));
            }
            Err(error) if is_missing(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns `true` if a path does not exist; something above it may not be a directory.
fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

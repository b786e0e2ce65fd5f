//! `tls.bundle`: a file with the system's roots and the authorities, for clients with an environment variable that
//! replaces their roots. The roots that the proxy itself trusts are in [`super::origin_roots`].

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustls_native_certs::{CertificateResult, load_certs_from_paths, load_native_certs};

use crate::console::warn;
use crate::tls::{CaCertificate, ca};

/// The files in which systems keep all their roots.
const SYSTEM_FILES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Writes the bundle if its content has changed. The file is replaced atomically.
pub(crate) fn write(path: &Path, authorities: &[CaCertificate]) -> io::Result<()> {
    let text = bundle_text(path, authorities);
    if fs::read(path).is_ok_and(|old| old == text.as_bytes()) {
        return Ok(());
    }
    if let Some(directory) = path
        .parent()
        .filter(|directory| !directory.as_os_str().is_empty())
    {
        fs::create_dir_all(directory)?;
    }
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}.new", std::process::id()));
    let temporary = PathBuf::from(temporary);
    let result = fs::write(&temporary, text).and_then(|()| fs::rename(&temporary, path));
    if result.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    result
}

/// Returns the certificates as PEM text.
pub(crate) fn join_pem(certificates: &[CaCertificate]) -> String {
    certificates.iter().map(CaCertificate::pem).collect()
}

fn bundle_text(path: &Path, authorities: &[CaCertificate]) -> String {
    let roots = load_system_roots(path).certs;
    if roots.is_empty() {
        warn(
            &"this system has no trusted roots (is `ca-certificates` installed?): tls.bundle has only crawlgate's authorities",
        );
    }
    let mut text: String = roots
        .iter()
        .filter(|root| !authorities.iter().any(|authority| authority.der() == *root))
        .map(|root| ca::to_pem("CERTIFICATE", root))
        .collect();
    text.push_str(&join_pem(authorities));
    text
}

/// Loads the system's roots, or those that `SSL_CERT_FILE` and `SSL_CERT_DIR` name.
///
/// After `crawlgate env` the variable names the bundle itself. Then it is ignored: the bundle must not be derived from
/// its own content, and the authorities in it must not be trusted for origins.
pub(crate) fn load_system_roots(bundle: &Path) -> CertificateResult {
    let named = env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    let mut roots = match named {
        Some(file) if is_same_file(&file, bundle) => load_system_file(),
        Some(_) | None => load_native_certs(),
    };
    // Directories are read in no particular order, but equal roots must result in equal bundles.
    roots
        .certs
        .sort_unstable_by(|one, other| one.as_ref().cmp(other.as_ref()));
    roots.certs.dedup();
    roots
}

fn is_same_file(file: &Path, bundle: &Path) -> bool {
    match (fs::canonicalize(file), fs::canonicalize(bundle)) {
        (Ok(file), Ok(bundle)) => file == bundle,
        (Err(_), Err(_)) => file.ends_with(bundle) || bundle.ends_with(file),
        (Ok(_), Err(_)) | (Err(_), Ok(_)) => false,
    }
}

fn load_system_file() -> CertificateResult {
    let file = SYSTEM_FILES
        .map(Path::new)
        .into_iter()
        .find(|file| file.exists());
    file.map_or_else(CertificateResult::default, |file| {
        load_certs_from_paths(Some(file), None)
    })
}

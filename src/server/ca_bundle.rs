//! `tls.bundle`: the system's roots together with our authorities, for clients whose variable replaces the roots.
//!
//! Who trusts origins is not decided here.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustls::pki_types::CertificateDer;
use rustls_native_certs::{CertificateResult, load_certs_from_paths, load_native_certs};

use crate::console::warn;
use crate::tls::{CaCertificate, ca};

/// Where systems keep all their roots in one file.
const SYSTEM_FILES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Writes the bundle if it says something else than before. A reader sees the old one or the new one, whole.
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
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.new", std::process::id()));
    let beside = PathBuf::from(beside);
    let written = fs::write(&beside, text).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

/// Certificates one after another, as PEM text.
pub(crate) fn join_pem(certificates: &[CaCertificate]) -> String {
    certificates.iter().map(CaCertificate::pem).collect()
}

fn bundle_text(path: &Path, authorities: &[CaCertificate]) -> String {
    let ours =
        |root: &CertificateDer<'_>| authorities.iter().any(|authority| authority.der() == root);
    let roots = load_system_roots(path).certs;
    if roots.is_empty() {
        warn(
            &"this system has no trusted roots (is `ca-certificates` installed?): tls.bundle holds our own only",
        );
    }
    let mut text: String = roots
        .iter()
        .filter(|root| !ours(root))
        .map(|root| ca::to_pem("CERTIFICATE", root))
        .collect();
    text.push_str(&join_pem(authorities));
    text
}

/// The system's roots, or those that `SSL_CERT_FILE` and `SSL_CERT_DIR` name. In a shell that trusts us by that
/// variable it names the bundle itself: that must not be made of what it was, and our authority is none for origins.
pub(crate) fn load_system_roots(bundle: &Path) -> CertificateResult {
    let named = env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    let is_bundle = |file: &Path| match (fs::canonicalize(file), fs::canonicalize(bundle)) {
        (Ok(file), Ok(bundle)) => file == bundle,
        (Err(_), Err(_)) => file.ends_with(bundle) || bundle.ends_with(file),
        (Ok(_), Err(_)) | (Err(_), Ok(_)) => false,
    };
    let mut found = match named {
        Some(file) if is_bundle(&file) => {
            let system = SYSTEM_FILES
                .map(Path::new)
                .into_iter()
                .find(|file| file.exists());
            system.map_or_else(CertificateResult::default, |file| {
                load_certs_from_paths(Some(file), None)
            })
        }
        Some(_) | None => load_native_certs(),
    };
    // Directories are read in no order: the same roots make the same file.
    found
        .certs
        .sort_unstable_by(|one, other| one.as_ref().cmp(other.as_ref()));
    found.certs.dedup();
    found
}

//! The certificate authority: created once, stored in two files, and validated whenever it is
//! loaded.
//!
//! Its key signs certificates and has no other use. No error or log message contains it.

use std::fmt::{self, Write as _};
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SerialNumber,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

use crate::clock::Rfc3339;
use crate::io_advice::IoAdvice;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Five years.
const VALIDITY: Duration = Duration::from_secs(5 * 365 * 24 * 60 * 60);
/// Tolerance for clients whose clock is slow.
pub(super) const BACKDATED: Duration = DAY;
/// Read and write permission for the owner only.
pub(super) const KEY_MODE: u32 = 0o600;

/// The certificate of an authority, which is public: clients install it.
#[derive(Clone, PartialEq, Eq)]
pub struct CaCertificate {
    pem: String,
    der: CertificateDer<'static>,
    subject: String,
    not_before: SystemTime,
    not_after: SystemTime,
    public_key: Vec<u8>,
}

impl CaCertificate {
    /// Loads the first certificate of a PEM file; other contents are ignored. An expired
    /// certificate is loaded too.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or does not contain a certificate of an
    /// authority.
    pub fn load(path: &Path) -> Result<Self, CaError> {
        let text = read_file(path)?;
        let der = CertificateDer::from_pem_slice(&text)
            .map_err(|_| CaError::NoCertificate(path.to_owned()))?;
        Self::from_der(der, path)
    }

    fn from_der(der: CertificateDer<'static>, path: &Path) -> Result<Self, CaError> {
        let (_, parsed) =
            X509Certificate::from_der(&der).map_err(|_| CaError::NoCertificate(path.to_owned()))?;
        if !can_sign_certificates(&parsed) {
            return Err(CaError::NotAuthority(path.to_owned()));
        }
        let validity = parsed.validity();
        Ok(Self {
            pem: to_pem("CERTIFICATE", &der),
            subject: parsed.subject().to_string(),
            not_before: from_unix(validity.not_before.timestamp()),
            not_after: from_unix(validity.not_after.timestamp()),
            public_key: parsed.public_key().subject_public_key.data.to_vec(),
            der,
        })
    }

    /// Returns the certificate as PEM text.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Returns the certificate as DER bytes.
    pub fn der(&self) -> &CertificateDer<'static> {
        &self.der
    }

    /// Returns its subject in the notation of RFC 4514.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// Returns the start of its validity.
    pub fn not_before(&self) -> SystemTime {
        self.not_before
    }

    /// Returns the end of its validity.
    pub fn not_after(&self) -> SystemTime {
        self.not_after
    }

    /// Returns the number of whole days until it expires; `None` after that.
    pub fn days_left(&self, now: SystemTime) -> Option<u64> {
        let remaining = self.not_after.duration_since(now).ok()?;
        Some(remaining.as_secs() / DAY.as_secs())
    }

    /// Returns the SHA-256 of the DER bytes in the usual notation: `AB:CD:…`.
    pub fn fingerprint(&self) -> String {
        let mut text = String::with_capacity(95);
        for byte in Sha256::digest(&self.der) {
            let colon = if text.is_empty() { "" } else { ":" };
            let _ = write!(text, "{colon}{byte:02X}");
        }
        text
    }
}

impl fmt::Debug for CaCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "CaCertificate({}, until {})",
            self.subject,
            Rfc3339(self.not_after)
        )
    }
}

/// An authority that can sign certificates.
pub struct CertificateAuthority {
    certificate: CaCertificate,
    issuer: Issuer<'static, KeyPair>,
}

impl CertificateAuthority {
    /// Creates an authority and writes it to two files that must not exist: first the key,
    /// accessible only to the owner, then the certificate. Missing directories are created.
    ///
    /// # Errors
    /// Returns [`CaError::Exists`] if one of the files exists; it is not modified.
    pub fn create(cert: &Path, key: &Path, now: SystemTime) -> Result<Self, CaError> {
        for path in [key, cert] {
            if fs::symlink_metadata(path).is_ok() {
                return Err(CaError::Exists(path.to_owned()));
            }
        }
        let pair = KeyPair::generate().map_err(|error| CaError::Failed(error.to_string()))?;
        let signed = self_signed_certificate(&pair, now)
            .map_err(|error| CaError::Failed(error.to_string()))?;
        let certificate = CaCertificate::from_der(signed.der().clone(), cert)?;
        write_new(key, KEY_MODE, pair.serialize_pem().as_bytes())?;
        write_new(cert, 0o644, certificate.pem.as_bytes())?;
        Self::from_parts(certificate, pair)
    }

    /// Loads the two files.
    ///
    /// # Errors
    /// Returns the first problem with them; [`CaError::Missing`] if neither exists.
    pub fn load(cert: &Path, key: &Path, now: SystemTime) -> Result<Self, CaError> {
        check_both_exist(cert, key)?;
        check_key_mode(key)?;
        let certificate = CaCertificate::load(cert)?;
        let text = read_file(key)?;
        // The parser's error message may quote the key.
        let pair = std::str::from_utf8(&text)
            .ok()
            .and_then(|text| KeyPair::from_pem(text).ok());
        let pair = pair.ok_or_else(|| CaError::NoKey(key.to_owned()))?;
        if pair.public_key_raw() != certificate.public_key {
            return Err(CaError::KeyMismatch {
                cert: cert.to_owned(),
                key: key.to_owned(),
            });
        }
        if certificate.not_after <= now {
            return Err(CaError::Expired {
                cert: cert.to_owned(),
                at: certificate.not_after,
            });
        }
        Self::from_parts(certificate, pair)
    }

    fn from_parts(certificate: CaCertificate, pair: KeyPair) -> Result<Self, CaError> {
        let issuer = Issuer::from_ca_cert_der(&certificate.der, pair)
            .map_err(|error| CaError::Failed(error.to_string()))?;
        Ok(Self {
            certificate,
            issuer,
        })
    }

    /// Returns the authority's own certificate.
    pub fn certificate(&self) -> &CaCertificate {
        &self.certificate
    }

    /// Returns its certificate as PEM text.
    pub fn pem(&self) -> &str {
        self.certificate.pem()
    }

    /// Returns the end of its validity.
    pub fn not_after(&self) -> SystemTime {
        self.certificate.not_after
    }

    pub(super) fn issuer(&self) -> &Issuer<'static, KeyPair> {
        &self.issuer
    }
}

impl fmt::Debug for CertificateAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CertificateAuthority({:?})", self.certificate)
    }
}

/// The reason why there is no usable certificate authority. Every message names the file and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum CaError {
    /// Neither file exists.
    #[error(
        "no certificate authority: {} and {} do not exist; `crawlgate ca init` creates them",
        cert.display(),
        key.display()
    )]
    Missing {
        /// The expected certificate file.
        cert: PathBuf,
        /// The expected key file.
        key: PathBuf,
    },
    /// One of the two files exists without the other.
    #[error(
        "incomplete certificate authority: {} exists without {}; restore the missing file, or move the other \
         one away and run `crawlgate ca init`",
        present.display(),
        missing.display()
    )]
    Incomplete {
        /// The existing file.
        present: PathBuf,
        /// The missing file.
        missing: PathBuf,
    },
    /// A new authority must not replace this file.
    #[error(
        "{} already exists and is never overwritten: choose another file, or move it away (for a new authority \
         set other files in `tls.ca` in the configuration; both may be in use for some time)",
        .0.display()
    )]
    Exists(PathBuf),
    /// Other users have access to the key.
    #[error(
        "{}: other users have access to this key (mode {mode:04o}); run: chmod 600 {}",
        key.display(),
        shell_quote(key)
    )]
    InsecureKeyMode {
        /// The key file.
        key: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file contains no certificate.
    #[error("{}: no certificate (PEM)", .0.display())]
    NoCertificate(PathBuf),
    /// The file contains a certificate that must not sign others.
    #[error(
        "{}: this certificate must not sign others (no `CA: true`, or its key usage does not allow it)",
        .0.display()
    )]
    NotAuthority(PathBuf),
    /// The file contains no usable private key.
    #[error("{}: no private key that can sign (PEM, PKCS #8, unencrypted)", .0.display())]
    NoKey(PathBuf),
    /// The key does not belong to the certificate.
    #[error("{} is not the key of {}", key.display(), cert.display())]
    KeyMismatch {
        /// The certificate file.
        cert: PathBuf,
        /// The key file.
        key: PathBuf,
    },
    /// The certificate has expired.
    #[error(
        "{}: expired at {}; move it and its key away and run `crawlgate ca init`, then install the new \
         certificate in the clients",
        cert.display(),
        Rfc3339(*at)
    )]
    Expired {
        /// The certificate file.
        cert: PathBuf,
        /// The time of its expiry.
        at: SystemTime,
    },
    /// A file cannot be read or written.
    #[error("{}: {}", path.display(), IoAdvice::new(path, error))]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// The cryptography library failed.
    #[error("the certificate authority cannot be used: {0}")]
    Failed(String),
}

/// Quotes a path for a POSIX shell.
fn shell_quote(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

fn self_signed_certificate(
    pair: &KeyPair,
    now: SystemTime,
) -> Result<rcgen::Certificate, rcgen::Error> {
    let mut params = CertificateParams::default();
    params.not_before = to_offset_date_time(now.checked_sub(BACKDATED).unwrap_or(now));
    params.not_after = to_offset_date_time(now + VALIDITY);
    let serial = random_serial().map_err(|_| rcgen::Error::RingUnspecified)?;
    // Two authorities may be in use at the same time, and some clients distinguish them only by
    // name.
    let suffix: String = serial
        .as_ref()
        .iter()
        .take(4)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let mut name = DistinguishedName::new();
    name.push(DnType::OrganizationName, "crawlgate");
    name.push(DnType::CommonName, format!("crawlgate CA {suffix}"));
    params.distinguished_name = name;
    params.serial_number = Some(serial);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.self_signed(pair)
}

/// Returns a serial number of 128 random bits; never zero in practice (RFC 5280 section 4.1.2.2).
pub(super) fn random_serial() -> Result<SerialNumber, getrandom::Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    Ok(SerialNumber::from_slice(&bytes))
}

/// Returns `true` for an authority's certificate (RFC 5280 section 4.2.1.9) whose key usage, if
/// present, includes signing certificates (section 4.2.1.3).
fn can_sign_certificates(certificate: &X509Certificate<'_>) -> bool {
    let usage = certificate.key_usage().ok().flatten();
    certificate.is_ca() && usage.is_none_or(|usage| usage.value.key_cert_sign())
}

fn check_both_exist(cert: &Path, key: &Path) -> Result<(), CaError> {
    match (cert.exists(), key.exists()) {
        (true, true) => Ok(()),
        (false, false) => Err(CaError::Missing {
            cert: cert.to_owned(),
            key: key.to_owned(),
        }),
        (true, false) => Err(incomplete(cert, key)),
        (false, true) => Err(incomplete(key, cert)),
    }
}

fn incomplete(present: &Path, missing: &Path) -> CaError {
    CaError::Incomplete {
        present: present.to_owned(),
        missing: missing.to_owned(),
    }
}

/// Returns an error if others than the owner can read a key.
pub(crate) fn check_key_mode(key: &Path) -> Result<(), CaError> {
    let mode = fs::metadata(key)
        .map_err(|error| io_error(key, error))?
        .permissions()
        .mode()
        & 0o7777;
    if mode & 0o077 == 0 {
        Ok(())
    } else {
        Err(CaError::InsecureKeyMode {
            key: key.to_owned(),
            mode,
        })
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, CaError> {
    fs::read(path).map_err(|error| io_error(path, error))
}

fn io_error(path: &Path, error: io::Error) -> CaError {
    CaError::Io {
        path: path.to_owned(),
        error,
    }
}

/// Writes a file that must not exist, and syncs it to disk.
pub(super) fn write_new(path: &Path, mode: u32, text: &[u8]) -> Result<(), CaError> {
    if let Some(directory) = path
        .parent()
        .filter(|directory| !directory.as_os_str().is_empty())
    {
        fs::create_dir_all(directory).map_err(|error| io_error(directory, error))?;
    }
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path);
    let mut file = file.map_err(|error| {
        if error.kind() == io::ErrorKind::AlreadyExists {
            CaError::Exists(path.to_owned())
        } else {
            io_error(path, error)
        }
    })?;
    file.write_all(text)
        .and_then(|()| file.sync_all())
        .map_err(|error| {
            // A truncated file is worse than none.
            let _ = fs::remove_file(path);
            io_error(path, error)
        })
}

/// Formats bytes as PEM text (RFC 7468).
pub fn to_pem(label: &str, der: &[u8]) -> String {
    let mut text = format!("-----BEGIN {label}-----\n");
    for chunk in der.chunks(48) {
        text.push_str(&BASE64.encode(chunk));
        text.push('\n');
    }
    let _ = writeln!(text, "-----END {label}-----");
    text
}

fn from_unix(unix: i64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(unix).unwrap_or(0))
}

pub(super) fn to_offset_date_time(time: SystemTime) -> OffsetDateTime {
    OffsetDateTime::from(time)
}

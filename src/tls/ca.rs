//! The certificate authority: made once, kept in two files, and read with every doubt about them told.
//!
//! Its key signs certificates and is used for nothing else; no text, error or log that is made here shows it.

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

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Five years.
const VALIDITY: Duration = Duration::from_secs(5 * 365 * 24 * 60 * 60);
/// For clients whose clock is behind.
const BACKDATED: Duration = DAY;
/// Read and write for the owner, nothing for others.
const KEY_MODE: u32 = 0o600;

/// The certificate of an authority, which is no secret: what clients are told to trust.
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
    /// Reads the first certificate of a PEM file; all else that may stand there is left out.
    ///
    /// # Errors
    /// The file cannot be read, holds no certificate, or one that is no authority's. An expired one is read.
    pub fn load(path: &Path) -> Result<Self, CaError> {
        let text = read_file(path)?;
        let der = CertificateDer::from_pem_slice(&text)
            .map_err(|_| CaError::NoCertificate(path.to_owned()))?;
        Self::from_der(der, path)
    }

    fn from_der(der: CertificateDer<'static>, path: &Path) -> Result<Self, CaError> {
        let unreadable = || CaError::NoCertificate(path.to_owned());
        let (_, parsed) = X509Certificate::from_der(&der).map_err(|_| unreadable())?;
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

    /// The certificate as PEM text, without anything else.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// The certificate as DER bytes.
    pub fn der(&self) -> &CertificateDer<'static> {
        &self.der
    }

    /// Its subject, as RFC 4514 writes names.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// Since when it is valid.
    pub fn not_before(&self) -> SystemTime {
        self.not_before
    }

    /// Until when it is valid.
    pub fn not_after(&self) -> SystemTime {
        self.not_after
    }

    /// Whole days until it expires; `None` once it has.
    pub fn days_left(&self, now: SystemTime) -> Option<u64> {
        let left = self.not_after.duration_since(now).ok()?;
        Some(left.as_secs() / DAY.as_secs())
    }

    /// SHA-256 of the DER bytes as tools show it: `AB:CD:…`.
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
            "Certificate({}, until {})",
            self.subject,
            Rfc3339(self.not_after)
        )
    }
}

/// An authority that can sign.
pub struct CertificateAuthority {
    certificate: CaCertificate,
    issuer: Issuer<'static, KeyPair>,
}

impl CertificateAuthority {
    /// Makes a new one and writes it to two files that must not be there: first the key, for the owner's eyes only,
    /// then the certificate. Directories are made.
    ///
    /// # Errors
    /// [`CaError::Exists`] if one of the files is there; it is not touched.
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

    /// Reads the two files.
    ///
    /// # Errors
    /// What is wrong with them, as [`CaError`] lists it; [`CaError::Missing`] if neither is there.
    pub fn load(cert: &Path, key: &Path, now: SystemTime) -> Result<Self, CaError> {
        check_both_exist(cert, key)?;
        check_key_mode(key)?;
        let certificate = CaCertificate::load(cert)?;
        let text = read_file(key)?;
        // What the parser has to say may quote the key.
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

    /// Its certificate.
    pub fn certificate(&self) -> &CaCertificate {
        &self.certificate
    }

    /// Its certificate as PEM text.
    pub fn pem(&self) -> &str {
        self.certificate.pem()
    }

    /// Until when it is valid.
    pub fn not_after(&self) -> SystemTime {
        self.certificate.not_after
    }

    /// What signs.
    pub(super) fn issuer(&self) -> &Issuer<'static, KeyPair> {
        &self.issuer
    }
}

impl fmt::Debug for CertificateAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Authority({:?})", self.certificate)
    }
}

/// Why there is no authority to sign with. Every text names the file and what to do.
#[derive(Debug)]
pub enum CaError {
    /// Neither file is there.
    Missing {
        /// Where the certificate should be.
        cert: PathBuf,
        /// Where the key should be.
        key: PathBuf,
    },
    /// One of the two files is there without the other.
    Incomplete {
        /// What is there.
        present: PathBuf,
        /// What is not.
        missing: PathBuf,
    },
    /// A new one must not replace this file.
    Exists(PathBuf),
    /// The key can be read by others; the file's mode.
    InsecureKeyMode {
        /// The key.
        key: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file holds no certificate.
    NoCertificate(PathBuf),
    /// The file holds a certificate that must not sign others.
    NotAuthority(PathBuf),
    /// The file holds no private key that can be used.
    NoKey(PathBuf),
    /// The key is not the certificate's.
    KeyMismatch {
        /// The certificate.
        cert: PathBuf,
        /// The key.
        key: PathBuf,
    },
    /// The certificate is not valid any more.
    Expired {
        /// The certificate.
        cert: PathBuf,
        /// When it expired.
        at: SystemTime,
    },
    /// A file cannot be read or written.
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The cryptography library refused.
    Failed(String),
}

impl fmt::Display for CaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { cert, key } => write!(
                f,
                "no certificate authority: {} and {} are not there; `crawlgate ca init` makes them",
                cert.display(),
                key.display()
            ),
            Self::Incomplete {
                present: there,
                missing,
            } => write!(
                f,
                "half a certificate authority: {} is there without {}; put the other back, or move it away and run \
                 `crawlgate ca init`",
                there.display(),
                missing.display()
            ),
            Self::Exists(path) => write!(
                f,
                "{} is there already and is never overwritten: name another file, or move it away (for a new \
                 authority name other files under `tls.ca` in the configuration; two may overlap)",
                path.display()
            ),
            Self::InsecureKeyMode { key, mode } => write!(
                f,
                "{}: others than its owner may use this key (mode {mode:04o}); run: chmod 600 {}",
                key.display(),
                shell_quote(key)
            ),
            Self::NoCertificate(path) => write!(f, "{}: no certificate (PEM)", path.display()),
            Self::NotAuthority(path) => write!(
                f,
                "{}: this certificate must not sign others (no `CA: true`, or no key usage for it)",
                path.display()
            ),
            Self::NoKey(path) => {
                write!(
                    f,
                    "{}: no private key that can sign (PEM, PKCS #8, unencrypted)",
                    path.display()
                )
            }
            Self::KeyMismatch { cert, key } => {
                write!(f, "{} is not the key of {}", key.display(), cert.display())
            }
            Self::Expired { cert, at } => write!(
                f,
                "{}: expired at {}; move it and its key away and run `crawlgate ca init`, then let clients trust the \
                 new one",
                cert.display(),
                Rfc3339(*at)
            ),
            Self::Io { path, error } => write!(f, "{}: {error}", path.display()),
            Self::Failed(why) => write!(f, "the certificate authority cannot be used: {why}"),
        }
    }
}

impl std::error::Error for CaError {}

/// A path as a POSIX shell reads it.
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
    // Two authorities may overlap: some clients tell them apart by name only.
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

/// 128 random bits; never zero in practice (RFC 5280, section 4.1.2.2).
pub(super) fn random_serial() -> Result<SerialNumber, getrandom::Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    Ok(SerialNumber::from_slice(&bytes))
}

/// RFC 5280, section 4.2.1.9 and 4.2.1.3: an authority's, and if uses are named, signing is one of them.
fn can_sign_certificates(certificate: &X509Certificate<'_>) -> bool {
    let uses = certificate.key_usage().ok().flatten();
    certificate.is_ca() && uses.is_none_or(|uses| uses.value.key_cert_sign())
}

fn check_both_exist(cert: &Path, key: &Path) -> Result<(), CaError> {
    let half = |there: &Path, missing: &Path| {
        Err(CaError::Incomplete {
            present: there.to_owned(),
            missing: missing.to_owned(),
        })
    };
    match (cert.exists(), key.exists()) {
        (true, true) => Ok(()),
        (false, false) => Err(CaError::Missing {
            cert: cert.to_owned(),
            key: key.to_owned(),
        }),
        (true, false) => half(cert, key),
        (false, true) => half(key, cert),
    }
}

fn check_key_mode(key: &Path) -> Result<(), CaError> {
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

/// Writes a file that must not be there, down to the disk.
fn write_new(path: &Path, mode: u32, text: &[u8]) -> Result<(), CaError> {
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
        let there = error.kind() == io::ErrorKind::AlreadyExists;
        if there {
            CaError::Exists(path.to_owned())
        } else {
            io_error(path, error)
        }
    })?;
    file.write_all(text)
        .and_then(|()| file.sync_all())
        .map_err(|error| {
            // A file that is cut short is worse than none.
            let _ = fs::remove_file(path);
            io_error(path, error)
        })
}

/// Bytes as PEM text (RFC 7468).
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

//! Hashes of passwords: Argon2 (PHC strings) and bcrypt as `htpasswd -B` creates it.
//!
//! Verification is slow on purpose, so it never runs on a thread that serves connections; `verifier.rs` takes care of
//! that.

use std::fmt;
use std::str::FromStr;

use argon2::password_hash::phc;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use argon2::{Argon2, Params};

/// The largest memory of a hash that is accepted, in KiB: 1 GiB.
const MAX_MEMORY_KIB: u32 = 1 << 20;
/// The most passes over that memory.
const MAX_PASSES: u32 = 64;
/// bcrypt's cost doubles the time with each step. This one takes about ten seconds.
const MAX_BCRYPT_COST: u32 = 17;

/// The hash of a password. Its `Debug` output is redacted.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash(PasswordHashKind);

#[derive(Clone, PartialEq, Eq)]
enum PasswordHashKind {
    Argon2(Box<phc::PasswordHash>),
    Bcrypt(Box<str>),
}

/// The result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PasswordMatch {
    Match,
    /// The password does not match.
    Mismatch,
}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordHash(…)")
    }
}

impl PasswordHash {
    /// Parses a hash.
    ///
    /// # Errors
    /// The mistake, without quoting the text, which may be a password.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let kind = text
            .strip_prefix('$')
            .and_then(|rest| rest.split('$').next())
            .unwrap_or("");
        match kind {
            "argon2id" | "argon2i" | "argon2d" => parse_argon2(text),
            "2a" | "2b" | "2y" => parse_bcrypt(text),
            "apr1" | "1" | "5" | "6" | "y" | "scrypt" => {
                Err("a hash of a kind that is not read here: Argon2 and bcrypt (`htpasswd -B`) are")
            }
            _ => Err("this is not a password hash; the password itself must not be written here"),
        }
    }

    /// Hashes a password with a new salt: Argon2id with 19 MiB and two passes (RFC 9106 and OWASP's advice), as a PHC
    /// string.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub fn generate(password: &str) -> Result<String, String> {
        let hashed: phc::PasswordHash = Argon2::default()
            .hash_password(password.as_bytes())
            .map_err(|error| error.to_string())?;
        Ok(hashed.to_string())
    }

    /// Compares a password with the hash, in constant time. Takes some 10 to 100 milliseconds and the memory that the
    /// hash demands.
    pub fn verify(&self, password: &str) -> PasswordMatch {
        let is_match = match &self.0 {
            PasswordHashKind::Argon2(hash) => Argon2::default()
                .verify_password(password.as_bytes(), hash.as_ref())
                .is_ok(),
            PasswordHashKind::Bcrypt(hash) => bcrypt::verify(password, hash).unwrap_or(false),
        };
        if is_match {
            PasswordMatch::Match
        } else {
            PasswordMatch::Mismatch
        }
    }
}

fn parse_argon2(text: &str) -> Result<PasswordHash, &'static str> {
    const MALFORMED: &str = "a malformed Argon2 hash";
    let hash = phc::PasswordHash::new(text).map_err(|_| MALFORMED)?;
    let params = Params::try_from(&hash).map_err(|_| MALFORMED)?;
    if hash.salt.is_none() || hash.hash.is_none() {
        return Err(MALFORMED);
    }
    if params.m_cost() > MAX_MEMORY_KIB || params.t_cost() > MAX_PASSES {
        return Err("an Argon2 hash that takes too much: at most 1 GiB of memory and 64 passes");
    }
    Ok(PasswordHash(PasswordHashKind::Argon2(Box::new(hash))))
}

fn parse_bcrypt(text: &str) -> Result<PasswordHash, &'static str> {
    let parts = bcrypt::HashParts::from_str(text).map_err(|_| "a malformed bcrypt hash")?;
    if !(4..=MAX_BCRYPT_COST).contains(&parts.get_cost()) {
        return Err("a bcrypt hash with a cost that is not from 4 to 17");
    }
    Ok(PasswordHash(PasswordHashKind::Bcrypt(text.into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Created by libcrypt, as `htpasswd -nbB -C 4` does.
    const BCRYPT: &str = "$2y$04$iofWQRpaN9T3zoFsvjEFYuOGiDpeCKe/4aVcx2pycp1KHIM/cNHHO";

    #[test]
    fn a_generated_hash_verifies_only_its_password() {
        let text = PasswordHash::generate("correct horse").unwrap();
        assert!(
            text.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"),
            "{text}"
        );
        assert_ne!(
            text,
            PasswordHash::generate("correct horse").unwrap(),
            "each has a salt of its own"
        );
        let hash = PasswordHash::parse(&text).unwrap();
        assert_eq!(hash.verify("correct horse"), PasswordMatch::Match);
        assert_eq!(hash.verify("correct hors"), PasswordMatch::Mismatch);
        assert!(!format!("{hash:?}").contains("argon2"));
    }

    #[test]
    fn hashes_of_other_programs() {
        let hash = PasswordHash::parse(BCRYPT).unwrap();
        assert_eq!(
            (hash.verify("s3cret"), hash.verify("S3cret")),
            (PasswordMatch::Match, PasswordMatch::Mismatch)
        );
        // The example of Argon2's reference program.
        let hash = "$argon2i$v=19$m=65536,t=2,p=4$c29tZXNhbHQ$RdescudvJCsgt3ub+b+dWRWJTmaaJObG";
        assert_eq!(
            PasswordHash::parse(hash).unwrap().verify("password"),
            PasswordMatch::Match
        );
    }

    #[test]
    fn invalid_hashes_are_refused_and_not_quoted() {
        for (text, expected) in [
            ("hunter2", "not a password hash"),
            ("", "not a password hash"),
            ("$hunter2", "not a password hash"),
            ("$apr1$abc$def", "kind that is not read"),
            ("$6$abc$def", "kind that is not read"),
            ("$2y$04$short", "malformed bcrypt"),
            (
                "$2y$31$iofWQRpaN9T3zoFsvjEFYuNyYXQfSgD5hQ1WC7/EpRBXFZXCv07ga",
                "cost",
            ),
            (
                "$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHQ",
                "malformed Argon2",
            ),
            ("$argon2id$v=19$m=19456,t=2,p=1", "malformed Argon2"),
            ("$argon2id$nonsense", "malformed Argon2"),
            (
                "$argon2id$v=19$m=9999999,t=2,p=1$c2FsdHNhbHRzYWx0$MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz",
                "too much",
            ),
        ] {
            let mistake = PasswordHash::parse(text).unwrap_err();
            assert!(mistake.contains(expected), "{text}: {mistake}");
        }
    }
}

//! Hashes of passwords: Argon2 (PHC strings) and bcrypt as `htpasswd -B` creates it.
//!
//! Verification is slow on purpose, so it never runs on a thread that serves connections; `verifier.rs` takes care of
//! that.

use std::fmt;
use std::str::FromStr;

use argon2::password_hash::PasswordHasher;
use argon2::password_hash::phc;
use argon2::{Algorithm, Argon2, Block, Params, Version};

/// The largest memory of a hash that is accepted, in KiB: 1 GiB.
const MAX_MEMORY_KIB: u32 = 1 << 20;
/// The most passes over that memory.
const MAX_PASSES: u32 = 64;
/// The most blocks of 1 KiB that are kept for the next hash. The C library maps a larger allocation by itself, and
/// unmaps it when it is freed.
const MAX_KEPT_BLOCKS: usize = 32 << 10;
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

/// The memory in which hashes are computed, one after another.
///
/// A new allocation for each hash would make the process grow by some 19 MiB with each: the C library does not return
/// freed memory of this size to the system, and fragments it.
#[derive(Debug, Default)]
pub struct HashMemory(Vec<Block>);

impl HashMemory {
    /// Returns at least this number of blocks; `None` if the system has no memory for them.
    fn blocks(&mut self, count: usize) -> Option<&mut [Block]> {
        if self.0.len() < count {
            // Freed first, since its content is not needed.
            self.0 = Vec::new();
            self.0.try_reserve_exact(count).ok()?;
            self.0.resize(count, Block::new());
        }
        Some(&mut self.0)
    }

    /// Frees the memory if it is too large to be kept.
    fn trim(&mut self) {
        if self.0.len() > MAX_KEPT_BLOCKS {
            self.0 = Vec::new();
        }
    }
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
    /// hash demands. `None` if the system has no memory for it.
    pub fn verify(&self, password: &str, memory: &mut HashMemory) -> Option<PasswordMatch> {
        let is_match = match &self.0 {
            PasswordHashKind::Argon2(hash) => matches_argon2(hash, password, memory)?,
            PasswordHashKind::Bcrypt(hash) => bcrypt::verify(password, hash).unwrap_or(false),
        };
        Some(if is_match {
            PasswordMatch::Match
        } else {
            PasswordMatch::Mismatch
        })
    }
}

/// Computes the hash of a password with the parameters and the salt of another, and compares them.
fn matches_argon2(
    hash: &phc::PasswordHash,
    password: &str,
    memory: &mut HashMemory,
) -> Option<bool> {
    let (Some(salt), Some(expected), Ok(algorithm), Ok(params)) = (
        &hash.salt,
        &hash.hash,
        Algorithm::try_from(hash.algorithm.as_str()),
        Params::try_from(hash),
    ) else {
        return Some(false);
    };
    let version = hash
        .version
        .map_or(Ok(Version::default()), Version::try_from);
    let Ok(version) = version else {
        return Some(false);
    };
    let blocks = memory.blocks(params.block_count())?;
    let mut output = vec![0; expected.len()];
    let computed = Argon2::new(algorithm, version, params).hash_password_into_with_memory(
        password.as_bytes(),
        salt,
        &mut output,
        blocks,
    );
    memory.trim();
    // `Output` compares in constant time.
    let output = computed.ok().and_then(|()| phc::Output::new(&output).ok());
    Some(output.is_some_and(|output| output == *expected))
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

    fn verify(hash: &PasswordHash, password: &str) -> PasswordMatch {
        hash.verify(password, &mut HashMemory::default()).unwrap()
    }

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
        assert_eq!(verify(&hash, "correct horse"), PasswordMatch::Match);
        assert_eq!(verify(&hash, "correct hors"), PasswordMatch::Mismatch);
        assert!(!format!("{hash:?}").contains("argon2"));
    }

    #[test]
    fn hashes_of_other_programs() {
        let hash = PasswordHash::parse(BCRYPT).unwrap();
        assert_eq!(
            (verify(&hash, "s3cret"), verify(&hash, "S3cret")),
            (PasswordMatch::Match, PasswordMatch::Mismatch)
        );
        // The example of Argon2's reference program.
        let hash = "$argon2i$v=19$m=65536,t=2,p=4$c29tZXNhbHQ$RdescudvJCsgt3ub+b+dWRWJTmaaJObG";
        let hash = PasswordHash::parse(hash).unwrap();
        assert_eq!(verify(&hash, "password"), PasswordMatch::Match);
    }

    #[test]
    fn one_memory_serves_all_hashes_and_keeps_no_large_one() {
        let hash = |memory_kib: u32, lanes: u32| {
            let params = Params::new(memory_kib, 1, lanes, None).unwrap();
            let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
            let text: phc::PasswordHash = argon2.hash_password(b"s3cret").unwrap();
            PasswordHash::parse(&text.to_string()).unwrap()
        };
        let mut memory = HashMemory::default();
        for (memory_kib, lanes, kept) in [
            (64, 1, 64),
            (1_024, 4, 1_024),
            (64, 2, 1_024),
            (33 << 10, 1, 0),
            (100, 3, 96),
        ] {
            let hash = hash(memory_kib, lanes);
            for (password, expected) in [
                ("s3cret", PasswordMatch::Match),
                ("other", PasswordMatch::Mismatch),
            ] {
                assert_eq!(hash.verify(password, &mut memory), Some(expected));
            }
            assert_eq!(memory.0.len(), kept, "{memory_kib} KiB");
        }
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

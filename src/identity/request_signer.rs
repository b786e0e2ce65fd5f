//! Signs the requests of crawlers that have an identity.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::header::{HeaderMap, HeaderName, HeaderValue};

use crate::urls::target::UrlTarget;

use super::message_signature::{self, Component, SignatureParameters};
use super::signing_key::{Ed25519Key, KeyError};

const SIGNATURE: HeaderName = HeaderName::from_static("signature");
const SIGNATURE_INPUT: HeaderName = HeaderName::from_static("signature-input");
const SIGNATURE_AGENT: HeaderName = HeaderName::from_static("signature-agent");
/// The name of the signature in the three fields.
const LABEL: &str = "crawlgate";
const TAG: &str = "web-bot-auth";
/// Long enough for a request that is sent a second time, and for clocks that differ.
const LIFETIME: Duration = Duration::from_secs(300);
/// The length of a nonce before it is encoded.
const NONCE_LENGTH: usize = 16;

/// The identity of a crawler, as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrawlerKeys {
    /// The name of the crawler.
    pub crawler: Box<str>,
    /// The files of its keys. The first one signs.
    pub files: Vec<PathBuf>,
    /// The origin at which its operator publishes them: `https://bot.example.com`.
    pub directory: Box<str>,
}

/// The reason why a crawler's requests cannot be signed.
#[derive(Debug, thiserror::Error)]
#[error("the identity of the crawler {crawler} (`crawlers.identity`) cannot be used: {error}")]
pub struct IdentityError {
    crawler: Box<str>,
    error: KeyError,
}

/// Signs the requests of one crawler.
#[derive(Clone, Debug)]
pub struct RequestSigner {
    keys: Box<[Ed25519Key]>,
    signing: Ed25519Key,
    directory: Box<str>,
    /// The directory as a structured field's string.
    quoted_directory: Box<str>,
    agent_field: HeaderValue,
}

impl RequestSigner {
    /// Loads the keys of a crawler. Returns `None` if there are none.
    fn load(keys: &CrawlerKeys) -> Result<Option<Self>, KeyError> {
        let loaded: Result<Box<[_]>, _> = keys
            .files
            .iter()
            .map(|file| Ed25519Key::load(file))
            .collect();
        Ok(Self::new(loaded?, &keys.directory))
    }

    /// Returns `None` if there are no keys, or the directory is no visible ASCII.
    fn new(keys: Box<[Ed25519Key]>, directory: &str) -> Option<Self> {
        let quoted = format!("\"{directory}\"");
        Some(Self {
            agent_field: HeaderValue::from_str(&format!("{LABEL}={quoted}")).ok()?,
            signing: keys.first()?.clone(),
            keys,
            directory: directory.into(),
            quoted_directory: quoted.into(),
        })
    }

    /// Returns the keys, the one that signs first.
    pub fn keys(&self) -> &[Ed25519Key] {
        &self.keys
    }

    /// Returns the origin at which the keys are published.
    pub fn directory(&self) -> &str {
        &self.directory
    }

    /// Adds the three fields of the signature, in place of those that the crawler has sent. Nothing that is covered may
    /// change after this: method, authority and path of the request.
    ///
    /// # Errors
    /// If the system or the library fails. The request has no signature then.
    pub fn sign(
        &self,
        headers: &mut HeaderMap,
        method: &http::Method,
        target: &UrlTarget,
        now: SystemTime,
    ) -> Result<(), SigningError> {
        for name in [SIGNATURE, SIGNATURE_INPUT, SIGNATURE_AGENT] {
            headers.remove(name);
        }
        let mut random = [0; NONCE_LENGTH];
        getrandom::fill(&mut random).map_err(|_| SigningError::NoRandomness)?;
        let nonce = BASE64.encode(random);
        let agent = format!("\"signature-agent\";key=\"{LABEL}\"");
        let component = |identifier, value| Component { identifier, value };
        let signature = message_signature::sign(
            &[
                component("\"@method\"", method.as_str()),
                component("\"@authority\"", target.authority()),
                component("\"@path\"", target.path()),
                component(&agent, &self.quoted_directory),
            ],
            &SignatureParameters {
                created: now,
                lifetime: LIFETIME,
                key: &self.signing,
                nonce: Some(&nonce),
                tag: TAG,
            },
        )?;
        let field = |value: &str| {
            HeaderValue::from_str(&format!("{LABEL}={value}")).map_err(|_| SigningError::NotAField)
        };
        let (input, signature) = (field(&signature.input)?, field(&signature.signature)?);
        headers.insert(SIGNATURE_AGENT, self.agent_field.clone());
        headers.insert(SIGNATURE_INPUT, input);
        headers.insert(SIGNATURE, signature);
        Ok(())
    }
}

/// The reason why a request cannot be signed.
#[derive(Debug, thiserror::Error)]
pub enum SigningError {
    /// The system provides no random bytes.
    #[error("the system provides no random bytes")]
    NoRandomness,
    /// The library failed.
    #[error(transparent)]
    Library(#[from] rustls::Error),
    /// A value cannot be sent as a header field.
    #[error("the signature is no header field")]
    NotAField,
}

/// The signers of all crawlers that have an identity, by name.
#[derive(Clone, Debug, Default)]
pub struct RequestSigners(BTreeMap<Box<str>, RequestSigner>);

impl RequestSigners {
    /// Loads the keys of these crawlers.
    ///
    /// # Errors
    /// If a key cannot be read, or others than its owner can read it.
    pub fn load(identities: &[CrawlerKeys]) -> Result<Self, IdentityError> {
        let mut signers = BTreeMap::new();
        for keys in identities {
            let signer = RequestSigner::load(keys).map_err(|error| IdentityError {
                crawler: keys.crawler.clone(),
                error,
            })?;
            if let Some(signer) = signer {
                signers.insert(keys.crawler.clone(), signer);
            }
        }
        Ok(Self(signers))
    }

    /// Iterates over the crawlers and their signers, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &RequestSigner)> {
        self.0.iter().map(|(name, signer)| (&**name, signer))
    }

    /// Returns the origins at which keys are published.
    pub fn directories(&self) -> BTreeSet<&str> {
        self.0.values().map(RequestSigner::directory).collect()
    }

    /// Returns the keys that are published at an origin, each once: crawlers may share a directory, and a key.
    pub fn directory_keys(&self, directory: &str) -> impl Iterator<Item = &Ed25519Key> {
        let mut seen = BTreeSet::new();
        self.0
            .values()
            .filter(move |signer| signer.directory() == directory)
            .flat_map(RequestSigner::keys)
            .filter(move |key| seen.insert(key.thumbprint()))
    }

    /// Returns the signer of a crawler, if it has an identity.
    pub fn get(&self, crawler: &str) -> Option<&RequestSigner> {
        self.0.get(crawler)
    }
}

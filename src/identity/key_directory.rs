//! The document by which origins find a crawler's keys, and the response fields that prove who made it.

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::message_signature::{self, Component, MessageSignature, SignatureParameters};
use super::signing_key::Ed25519Key;

/// The path at which a directory is served.
pub const WELL_KNOWN_PATH: &str = "/.well-known/http-message-signatures-directory";
const MEDIA_TYPE: &str = "application/http-message-signatures-directory+json";
const TAG: &str = "http-message-signatures-directory";

/// A key directory, with the fields that its response needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyDirectory {
    /// The body: a JSON Web Key Set (RFC 7517).
    pub body: String,
    /// The fields, in the order in which they are written.
    pub fields: Vec<(&'static str, String)>,
}

impl KeyDirectory {
    /// Creates the directory of these keys, signed by each of them for the authority that serves it.
    ///
    /// # Errors
    /// If a key fails.
    pub fn new(
        keys: &[&Ed25519Key],
        authority: &str,
        created: SystemTime,
        lifetime: Duration,
    ) -> Result<Self, rustls::Error> {
        let entries: Vec<_> = keys.iter().map(|key| to_json_web_key(key)).collect();
        let body = json!({ "keys": entries }).to_string();
        let digest = format!("sha-256=:{}:", BASE64.encode(Sha256::digest(&body)));
        let components = [
            Component {
                identifier: "\"@authority\";req",
                value: authority,
            },
            Component {
                identifier: "\"content-digest\"",
                value: &digest,
            },
        ];
        let signatures: Result<Vec<MessageSignature>, _> = keys
            .iter()
            .map(|key| {
                let parameters = SignatureParameters {
                    created,
                    lifetime,
                    key,
                    nonce: None,
                    tag: TAG,
                };
                message_signature::sign(&components, &parameters)
            })
            .collect();
        let signatures = signatures?;
        let dictionary = |value: fn(&MessageSignature) -> &str| {
            let members = signatures.iter().enumerate();
            let members = members.map(|(index, one)| format!("key{}={}", index + 1, value(one)));
            members.collect::<Vec<_>>().join(", ")
        };
        let fields = vec![
            ("Content-Type", MEDIA_TYPE.to_owned()),
            ("Cache-Control", "max-age=86400".to_owned()),
            ("Signature-Input", dictionary(|one| &one.input)),
            ("Signature", dictionary(|one| &one.signature)),
            ("Content-Digest", digest),
        ];
        Ok(Self { body, fields })
    }
}

fn to_json_web_key(key: &Ed25519Key) -> serde_json::Value {
    json!({
        "kty": "OKP",
        "crv": "Ed25519",
        "kid": key.thumbprint(),
        "x": key.public(),
        "use": "sig",
    })
}

//! HTTP message signatures (RFC 9421): the text that is signed, and the fields that carry the signature.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::signing_key::Ed25519Key;

/// A covered component of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Component<'a> {
    /// Its identifier with its parameters, as in `Signature-Input`: `"@method"`, `"signature-agent";key="a"`.
    pub identifier: &'a str,
    /// Its value, on one line.
    pub value: &'a str,
}

/// The parameters of a signature by an Ed25519 key.
#[derive(Clone, Copy, Debug)]
pub(super) struct SignatureParameters<'a> {
    pub created: SystemTime,
    pub lifetime: Duration,
    pub key: &'a Ed25519Key,
    /// A value that no other signature has, if verifiers may reject repetitions.
    pub nonce: Option<&'a str>,
    /// The name of the protocol that uses the signature.
    pub tag: &'a str,
}

/// A signature of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MessageSignature {
    /// The member's value in `Signature-Input`.
    pub input: String,
    /// The member's value in `Signature`.
    pub signature: String,
}

/// Signs the components of a message.
///
/// # Errors
/// If the key fails.
pub(super) fn sign(
    components: &[Component<'_>],
    parameters: &SignatureParameters<'_>,
) -> Result<MessageSignature, rustls::Error> {
    let input = signature_input(components, parameters);
    let signed = parameters
        .key
        .sign(signature_base(components, &input).as_bytes())?;
    Ok(MessageSignature {
        signature: format!(":{}:", BASE64.encode(signed)),
        input,
    })
}

/// Returns the covered components and the parameters (RFC 9421 section 2.3).
fn signature_input(components: &[Component<'_>], parameters: &SignatureParameters<'_>) -> String {
    let mut input = String::with_capacity(320);
    for (index, component) in components.iter().enumerate() {
        input.push_str(if index == 0 { "(" } else { " " });
        input.push_str(component.identifier);
    }
    let created = unix_seconds(parameters.created);
    let _ = write!(
        input,
        r#");created={created};expires={};keyid="{}";alg="ed25519""#,
        created.saturating_add(parameters.lifetime.as_secs()),
        parameters.key.thumbprint(),
    );
    if let Some(nonce) = parameters.nonce {
        let _ = write!(input, r#";nonce="{nonce}""#);
    }
    let _ = write!(input, r#";tag="{}""#, parameters.tag);
    input
}

/// Returns the text that is signed (RFC 9421 section 2.5).
fn signature_base(components: &[Component<'_>], input: &str) -> String {
    let mut base = String::with_capacity(640);
    for Component { identifier, value } in components {
        let _ = writeln!(base, "{identifier}: {value}");
    }
    let _ = write!(base, r#""@signature-params": {input}"#);
    base
}

fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::PrivatePkcs8KeyDer;
    use rustls::pki_types::pem::PemObject as _;

    use super::*;

    /// RFC 9421 appendix B.1.4.
    pub(crate) const TEST_KEY: &[u8] = b"-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIJ+DYvh6SEqVTm50DFtMDoQikTmiCqirVv9mWG9qfSnF
-----END PRIVATE KEY-----
";

    fn test_key() -> Ed25519Key {
        let der = PrivatePkcs8KeyDer::from_pem_slice(TEST_KEY).unwrap();
        Ed25519Key::from_pkcs8(&der).unwrap()
    }

    fn signed(components: &[(&str, &str)], input: &str) -> String {
        let components: Vec<_> = components
            .iter()
            .map(|&(identifier, value)| Component { identifier, value })
            .collect();
        let signature = test_key().sign(signature_base(&components, input).as_bytes());
        BASE64.encode(signature.unwrap())
    }

    #[test]
    fn the_vector_of_rfc_9421_b_2_6() {
        let found = signed(
            &[
                (r#""date""#, "Tue, 20 Apr 2021 02:07:55 GMT"),
                (r#""@method""#, "POST"),
                (r#""@path""#, "/foo"),
                (r#""@authority""#, "example.com"),
                (r#""content-type""#, "application/json"),
                (r#""content-length""#, "18"),
            ],
            r#"("date" "@method" "@path" "@authority" "content-type" "content-length");created=1618884473;keyid="test-key-ed25519""#,
        );
        assert_eq!(
            found,
            "wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUPiu4A0w6vuQv5lIp5WPpBKRCw=="
        );
    }

    #[test]
    fn the_vector_of_a_request_of_web_bot_auth() {
        let found = signed(
            &[
                (r#""@authority""#, "example.com"),
                (
                    r#""signature-agent";key="agent2""#,
                    r#""https://signature-agent.test""#,
                ),
            ],
            r#"("@authority" "signature-agent";key="agent2");created=1735689600;keyid="poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U";alg="ed25519";expires=4889289600;nonce="n9p433xm+NJ3ph3upfBIGmsuwHw387YV7Q/F+6BSpGCVjYCqQw6rznNA8PVVLySrAWsv0hQtFioQb6E1YsauiA==";tag="web-bot-auth""#,
        );
        assert_eq!(
            found,
            "RdNFx5Bj6au3YgAMQL/RzmUlZE8QZLIaXGRpw985hWnwPfMxT228NMk6ehRS1PSl4e8PhbNZACSanGdhEwYCCg=="
        );
    }

    #[test]
    fn the_vector_of_a_directory_of_web_bot_auth() {
        let found = signed(
            &[
                (r#""@authority";req"#, "signature-agent.test"),
                (
                    r#""content-digest""#,
                    "sha-256=:CADMT2aBdV/rqQr/NIru64ERQkCobVvllA4V0fLFDu0=:",
                ),
            ],
            r#"("@authority";req "content-digest");created=1735689600;expires=4889289600;keyid="poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U";tag="http-message-signatures-directory""#,
        );
        assert_eq!(
            found,
            "l6P8R67tm3kujAxbHWio7ll01qrEZ0dKD/WWlGhNYEmTnFZM8Wt0VQ9zqGfvo7T/UMkBxsigzChM1Gpz7gOVBg=="
        );
    }

    #[test]
    fn the_thumbprint_of_rfc_8037_a_3() {
        assert_eq!(
            test_key().thumbprint(),
            "poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U"
        );
    }

    #[test]
    fn the_input_has_all_parameters() {
        let key = test_key();
        let parameters = SignatureParameters {
            created: UNIX_EPOCH + Duration::from_secs(100),
            lifetime: Duration::from_secs(60),
            key: &key,
            nonce: Some("abc"),
            tag: "web-bot-auth",
        };
        let component = |identifier| Component {
            identifier,
            value: "",
        };
        let components = [component(r#""@method""#), component(r#""@authority""#)];
        assert_eq!(
            signature_input(&components, &parameters),
            r#"("@method" "@authority");created=100;expires=160;keyid="poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U";alg="ed25519";nonce="abc";tag="web-bot-auth""#
        );
    }
}

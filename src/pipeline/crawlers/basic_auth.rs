//! `Proxy-Authorization: Basic` (RFC 7617), as clients write it.

use std::fmt;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// The maximum length of a name or a password.
const MAX_LENGTH: usize = 1024;

/// Some clients omit the padding, or set the unused bits of the last character.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// The credentials that a client sends.
#[derive(PartialEq, Eq)]
pub(super) struct BasicCredentials {
    pub(super) user: String,
    pub(super) password: String,
}

impl fmt::Debug for BasicCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BasicCredentials(…)")
    }
}

impl BasicCredentials {
    /// Parses the value of the header field.
    ///
    /// # Errors
    /// The mistake in the value.
    pub(super) fn parse(field: &[u8]) -> Result<Self, &'static str> {
        let field = field.trim_ascii();
        let end = field
            .iter()
            .position(u8::is_ascii_whitespace)
            .unwrap_or(field.len());
        let (scheme, encoded) = field.split_at_checked(end).unwrap_or_default();
        if !scheme.eq_ignore_ascii_case(b"basic") {
            return Err("Proxy-Authorization with a scheme other than Basic");
        }
        let decoded = BASE64
            .decode(encoded.trim_ascii())
            .map_err(|_| "credentials that are not base64")?;
        let text = decode_text(decoded);
        let (user, password) = text
            .split_once(':')
            .ok_or("credentials without a colon after the user")?;
        if text.chars().any(char::is_control) {
            return Err("credentials with a control character");
        }
        if user.len().max(password.len()) > MAX_LENGTH {
            return Err("credentials that are too long");
        }
        Ok(Self {
            user: user.to_owned(),
            password: password.to_owned(),
        })
    }
}

/// Decodes text. The proxy asks for UTF-8; clients that cannot send it (Python's `requests`) send Latin-1.
fn decode_text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| error.as_bytes().iter().map(|b| char::from(*b)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_as_clients_write_them() {
        for (field, user, password) in [
            ("Basic bmV3czpzM2NyZXQ=", "news", "s3cret"),
            ("basic bmV3czpzM2NyZXQ=", "news", "s3cret"),
            ("BASIC   bmV3czpzM2NyZXQ=  ", "news", "s3cret"),
            ("Basic\tbmV3czpzM2NyZXQ", "news", "s3cret"),
            ("Basic bmV3czpzM2NyZXR=", "news", "s3cret"),
            ("Basic bmV3czphOmI6Yw==", "news", "a:b:c"),
            ("Basic bmV3czo=", "news", ""),
            ("Basic OnB3", "", "pw"),
            // The same letters in UTF-8 and in Latin-1.
            ("Basic asO8cmdlbjpwYcOf", "jürgen", "paß"),
            ("Basic avxyZ2VuOnBh3w==", "jürgen", "paß"),
        ] {
            let read = BasicCredentials::parse(field.as_bytes());
            let expected = BasicCredentials {
                user: user.into(),
                password: password.into(),
            };
            assert!(read == Ok(expected), "{field}");
        }
    }

    #[test]
    fn errors_name_the_cause_without_quoting_the_field() {
        for (field, mistake) in [
            ("", "other than Basic"),
            ("Bearer abc", "other than Basic"),
            ("Digest username=\"news\"", "other than Basic"),
            ("BasicbmV3czpzM2NyZXQ=", "other than Basic"),
            ("Basic", "without a colon"),
            ("Basic !!!", "not base64"),
            ("Basic bmV3czpz M2NyZXQ=", "not base64"),
            ("Basic bmV3cw==", "without a colon"),
            ("Basic bmV3czpzMwA=", "control"),
            ("Basic bmUKd3M6cHc=", "control"),
        ] {
            let error = BasicCredentials::parse(field.as_bytes()).unwrap_err();
            assert!(error.contains(mistake), "{field}: {error}");
        }
        let long = BASE64.encode(format!("news:{}", "x".repeat(MAX_LENGTH + 1)));
        assert!(
            BasicCredentials::parse(format!("Basic {long}").as_bytes())
                .unwrap_err()
                .contains("too long")
        );
        let debug = format!("{:?}", BasicCredentials::parse(b"Basic bmV3czpzM2NyZXQ="));
        assert!(
            !debug.contains("s3cret") && !debug.contains("news"),
            "{debug}"
        );
    }
}

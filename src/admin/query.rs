//! The parameters of a target, decoded strictly: what is no percent-encoded UTF-8 text is a mistake, and so is a control
//! character. Nothing of them is repeated in an answer.

use std::fmt;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::json;

use super::response::problem_with;

/// The most parameters that are looked at.
const MAX_PARAMETERS: usize = 64;

/// What is wrong with a query, in words for whoever sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ParameterError(pub(super) String);

impl ParameterError {
    /// 400 with the words.
    pub(super) fn to_response(&self) -> Response<Full<Bytes>> {
        problem_with(StatusCode::BAD_REQUEST, &json!({ "detail": self.0 }))
    }
}

impl fmt::Display for ParameterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The keys and values of a query, in their order and as often as they stand (see [`reject_duplicates`]); a `+` is a space (`application/x-www-form-urlencoded`).
///
/// # Errors
/// If it has too many, or one of them cannot be read.
pub(super) fn parse_query(query: Option<&str>) -> Result<Vec<(String, String)>, ParameterError> {
    let parts = query
        .unwrap_or_default()
        .split('&')
        .filter(|part| !part.is_empty());
    let read: Vec<_> = parts
        .take(MAX_PARAMETERS + 1)
        .map(parse_parameter)
        .collect::<Result<_, _>>()?;
    if read.len() > MAX_PARAMETERS {
        return Err(ParameterError(format!(
            "more than {MAX_PARAMETERS} parameters"
        )));
    }
    Ok(read)
}

/// The same, if none of these keys stands more than once: which value would count is a guess, and what stands behind this
/// may guess otherwise.
pub(super) fn reject_duplicates(
    parameters: Vec<(String, String)>,
    keys: &[&str],
) -> Result<Vec<(String, String)>, ParameterError> {
    let count = |key: &str| parameters.iter().filter(|(name, _)| name == key).count();
    match keys.iter().find(|key| count(key) > 1) {
        Some(key) => Err(ParameterError(format!("`{key}` stands more than once"))),
        None => Ok(parameters),
    }
}

fn parse_parameter(part: &str) -> Result<(String, String), ParameterError> {
    let (key, value) = part.split_once('=').unwrap_or((part, ""));
    let form = |text: &str| percent_decode(&text.replace('+', " "));
    Ok((form(key)?, form(value)?))
}

/// Text with its percent-escapes resolved, once.
///
/// # Errors
/// If an escape is broken, or the outcome is no UTF-8 or has a control character.
pub(super) fn percent_decode(text: &str) -> Result<String, ParameterError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, others)) = rest.split_first() {
        rest = others;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let escape = others.split_first_chunk::<2>();
        let digits = escape.and_then(|([high, low], behind)| {
            Some((hex_value(*high)? << 4 | hex_value(*low)?, behind))
        });
        let (byte, behind) = digits
            .ok_or_else(|| ParameterError("a `%` without two hex digits behind it".into()))?;
        bytes.push(byte);
        rest = behind;
    }
    let text = String::from_utf8(bytes)
        .map_err(|_| ParameterError("a percent-encoded text is no UTF-8".into()))?;
    match text.chars().any(char::is_control) {
        true => Err(ParameterError("a control character".into())),
        false => Ok(text),
    }
}

fn hex_value(digit: u8) -> Option<u8> {
    char::from(digit)
        .to_digit(16)
        .and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_read_strictly() {
        let pairs = |query| {
            let read = parse_query(query).ok()?;
            Some(
                read.iter()
                    .map(|(key, value)| format!("[{key}={value}]"))
                    .collect::<String>(),
            )
        };
        for (query, read) in [
            (None, Some("")),
            (Some(""), Some("")),
            (Some("&&a=1&"), Some("[a=1]")),
            (Some("a=1&a=2&b"), Some("[a=1][a=2][b=]")),
            (Some("a+b=c+d%2Be%26"), Some("[a b=c d+e&]")),
            (Some("a=b=c?d/e"), Some("[a=b=c?d/e]")),
            (Some("a=%25E4%c3%A4"), Some("[a=%E4ä]")),
            (Some("a=%"), None),
            (Some("a=%4"), None),
            (Some("a=%zz"), None),
            (Some("a=%+1"), None),
            (Some("%E4=a"), None),
            (Some("a=%ff"), None),
            (Some("a=%00"), None),
            (Some("a=x%0d%0ay"), None),
            (Some("a=%C2%85"), None),
            (Some("a=%ed%a0%80"), None),
        ] {
            assert_eq!(pairs(query).as_deref(), read, "{query:?}");
        }
        assert!(parse_query(Some(&"a&".repeat(MAX_PARAMETERS))).is_ok());
        assert!(parse_query(Some(&"a&".repeat(MAX_PARAMETERS + 1))).is_err());
    }
}

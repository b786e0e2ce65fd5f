//! Query parameters, decoded strictly: anything but percent-encoded UTF-8 text without control characters is an error.
//! Responses repeat no part of them.

use super::api_request::ApiError;

/// The most rows of a list.
pub(super) const MAX_LIMIT: usize = 1_000;
/// The rows of a list if `limit` is not given.
pub(super) const DEFAULT_LIMIT: usize = 100;
/// The most parameters of a query.
const MAX_PARAMETERS: usize = 64;

/// Returns the error for a key that is not one of `allowed`.
pub(super) fn unknown_parameter(allowed: &[&str]) -> ApiError {
    ApiError::Invalid(unknown_parameter_message(allowed))
}

/// Returns the message for a key that is not one of `allowed`.
pub(super) fn unknown_parameter_message(allowed: &[&str]) -> String {
    format!(
        "there is no such parameter; allowed: {}",
        allowed.join(", ")
    )
}

/// Returns the keys and values of a query in their order. Keys may repeat (see [`reject_duplicates`]), and a `+` is a
/// space (`application/x-www-form-urlencoded`).
///
/// # Errors
/// If the query has too many parameters, or one of them cannot be decoded.
pub(super) fn parse_query(query: Option<&str>) -> Result<Vec<(String, String)>, ApiError> {
    let parts = query
        .unwrap_or_default()
        .split('&')
        .filter(|part| !part.is_empty());
    let parameters: Vec<_> = parts
        .take(MAX_PARAMETERS + 1)
        .map(parse_parameter)
        .collect::<Result<_, _>>()?;
    if parameters.len() > MAX_PARAMETERS {
        return Err(ApiError::Invalid(format!(
            "more than {MAX_PARAMETERS} parameters"
        )));
    }
    Ok(parameters)
}

/// Returns the parameters, if none of `keys` repeats. Programs disagree about which value of a repeated key counts, so
/// none is chosen here.
pub(super) fn reject_duplicates(
    parameters: Vec<(String, String)>,
    keys: &[&str],
) -> Result<Vec<(String, String)>, ApiError> {
    for key in keys {
        if parameters.iter().filter(|(name, _)| name == key).count() > 1 {
            return Err(ApiError::Invalid(format!(
                "`{key}` is given more than once"
            )));
        }
    }
    Ok(parameters)
}

fn parse_parameter(part: &str) -> Result<(String, String), ApiError> {
    let (key, value) = part.split_once('=').unwrap_or((part, ""));
    Ok((form_decode(key)?, form_decode(value)?))
}

fn form_decode(text: &str) -> Result<String, ApiError> {
    percent_decode(&text.replace('+', " "))
}

/// Parses the value of a key that is one of some words.
pub(super) fn parse_word<T: Copy>(
    text: &str,
    key: &str,
    words: &[(&str, T)],
) -> Result<T, ApiError> {
    let known = words.iter().find(|(word, _)| *word == text);
    known.map(|(_, value)| *value).ok_or_else(|| {
        let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        ApiError::Invalid(format!("`{key}` is one of: {}", words.join(", ")))
    })
}

/// Parses the value of `limit`.
pub(super) fn parse_limit(text: &str) -> Result<usize, ApiError> {
    let limit = text
        .parse()
        .ok()
        .filter(|limit| (1..=MAX_LIMIT).contains(limit) && !text.starts_with('+'));
    limit.ok_or_else(|| ApiError::Invalid(format!("`limit` is a number from 1 to {MAX_LIMIT}")))
}

/// Decodes percent-escapes, once.
///
/// # Errors
/// If an escape is invalid, or the result is not UTF-8 or contains a control character.
pub(super) fn percent_decode(text: &str) -> Result<String, ApiError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, others)) = rest.split_first() {
        rest = others;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let escape = others.split_first_chunk::<2>();
        let digits = escape.and_then(|([high, low], tail)| {
            Some((hex_value(*high)? << 4 | hex_value(*low)?, tail))
        });
        let (byte, tail) = digits
            .ok_or_else(|| ApiError::Invalid("a `%` without two hex digits after it".into()))?;
        bytes.push(byte);
        rest = tail;
    }
    let text = String::from_utf8(bytes)
        .map_err(|_| ApiError::Invalid("a percent-encoded text is not UTF-8".into()))?;
    if text.chars().any(char::is_control) {
        return Err(ApiError::Invalid("a control character".into()));
    }
    Ok(text)
}

fn hex_value(digit: u8) -> Option<u8> {
    char::from(digit)
        .to_digit(16)
        .and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(query: Option<&str>) -> Option<String> {
        let parameters = parse_query(query).ok()?;
        Some(
            parameters
                .iter()
                .map(|(key, value)| format!("[{key}={value}]"))
                .collect(),
        )
    }

    #[test]
    fn queries_are_decoded_strictly() {
        for (query, expected) in [
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
            assert_eq!(pairs(query).as_deref(), expected, "{query:?}");
        }
        assert!(parse_query(Some(&"a&".repeat(MAX_PARAMETERS))).is_ok());
        assert!(parse_query(Some(&"a&".repeat(MAX_PARAMETERS + 1))).is_err());
    }
}

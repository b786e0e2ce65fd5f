//! `GET /api/v1/messages`: the latest messages of the process, as on its standard error.

use http::StatusCode;
use serde_json::{Value as Json, json};

use crate::clock::Rfc3339;
use crate::messages::{self, LogMessage};

use super::api_request::{ApiError, ApiResult};
use super::query::{parse_query, reject_duplicates, unknown_parameter};
use super::response;

const KEYS: [&str; 1] = ["after"];

/// Returns the messages that are kept and newer than the one of `after`, the oldest first.
pub(super) fn list(query: Option<&str>) -> ApiResult {
    let after = parse_after(query)?;
    let messages = messages::recent().after(after);
    let next = messages.last().map_or(after, |message| message.id);
    let document = json!({
        "messages": messages.iter().map(message_to_json).collect::<Vec<_>>(),
        "next": next,
    });
    Ok(response::json(StatusCode::OK, &document))
}

fn message_to_json(message: &LogMessage) -> Json {
    json!({
        "id": message.id,
        "at": Rfc3339(message.at).to_string(),
        "level": message.level,
        "area": message.area,
        "text": message.text,
    })
}

fn parse_after(query: Option<&str>) -> Result<u64, ApiError> {
    let mut after = 0;
    for (key, value) in reject_duplicates(parse_query(query)?, &KEYS)? {
        if key != "after" {
            return Err(unknown_parameter(&KEYS));
        }
        let number = value.parse().ok().filter(|_| !value.starts_with('+'));
        after = number.ok_or_else(|| {
            ApiError::Invalid("`after` is a number, as `next` of a response is".into())
        })?;
    }
    Ok(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_parsed_or_refused() {
        assert_eq!(parse_after(None).ok(), Some(0));
        assert_eq!(parse_after(Some("after=7")).ok(), Some(7));
        for query in [
            "after=",
            "after=-1",
            "after=%2B1",
            "after=1&after=2",
            "limit=1",
        ] {
            assert!(parse_after(Some(query)).is_err(), "{query}");
        }
    }
}

//! A webhook: batches of events as JSON arrays, and what its answers mean.

use bytes::Bytes;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use serde_json::Value as Json;

use crate::post::{Again, Answer, Endpoint, Failure};

/// The same for the same events, whenever they are sent (draft-ietf-httpapi-idempotency-key-header).
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Who is told.
#[derive(Debug)]
pub(super) struct Webhook(Endpoint);

impl Webhook {
    pub(super) fn new(endpoint: Endpoint) -> Self {
        Self(endpoint)
    }

    /// Posts events; any 2xx says that they are taken.
    pub(super) async fn post(&self, documents: &Vec<Json>) -> Result<(), Failure> {
        let id = |document: Option<&Json>| {
            document
                .and_then(|one| one.get("id")?.as_u64())
                .unwrap_or(0)
        };
        let key = format!("\"{}-{}\"", id(documents.first()), id(documents.last()));
        let key = HeaderValue::try_from(key)
            .ok()
            .map(|key| (IDEMPOTENCY_KEY, key));
        let fields = key
            .into_iter()
            .chain([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        let body = serde_json::to_vec(documents).map(Bytes::from);
        let body = body.map_err(|error| Failure {
            why: error.to_string(),
            again: Again::No,
        })?;
        match self.0.post(body, fields).await {
            Ok(answer) => judged(&answer),
            Err(why) => Err(Failure {
                why,
                again: Again::Yes,
            }),
        }
    }
}

fn judged(answer: &Answer) -> Result<(), Failure> {
    let status = answer.status;
    if status.is_success() {
        return Ok(());
    }
    let later = matches!(
        status,
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS
    );
    let again = match answer.retry_after {
        _ if !later && !status.is_server_error() => Again::No,
        Some(time) => Again::After(time),
        None => Again::Yes,
    };
    Err(Failure {
        why: format!("it answers {status}"),
        again,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_cannot_help_is_not_tried_again() {
        for (status, retry_after, again) in [
            (400, None, Some(Again::No)),
            (401, Some(5), Some(Again::No)),
            (302, None, Some(Again::No)),
            (408, None, Some(Again::Yes)),
            (429, Some(5), Some(Again::After(Duration::from_secs(5)))),
            (500, None, Some(Again::Yes)),
            (503, Some(5), Some(Again::After(Duration::from_secs(5)))),
            (200, None, None),
            (204, None, None),
        ] {
            let answer = Answer {
                status: StatusCode::from_u16(status).unwrap(),
                retry_after: retry_after.map(Duration::from_secs),
                body: None,
            };
            assert_eq!(
                judged(&answer).err().map(|failure| failure.again),
                again,
                "{status}"
            );
        }
    }
}

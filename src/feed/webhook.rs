//! A webhook that receives batches of events as JSON arrays.

use bytes::Bytes;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use serde_json::Value as Json;

use crate::http_client::{DeliveryFailure, Endpoint, PostResponse, RetryAdvice};

/// Equal for equal batches, however often they are sent (draft-ietf-httpapi-idempotency-key-header).
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The endpoint that receives events.
#[derive(Debug)]
pub(super) struct Webhook(Endpoint);

impl Webhook {
    pub(super) fn new(endpoint: Endpoint) -> Self {
        Self(endpoint)
    }

    /// Posts events; any 2xx response means that they were accepted.
    pub(super) async fn post(&self, documents: &Vec<Json>) -> Result<(), DeliveryFailure> {
        let first = event_id(documents.first());
        let last = event_id(documents.last());
        let key = format!("\"{first}-{last}\"");
        let key = HeaderValue::try_from(key)
            .ok()
            .map(|key| (IDEMPOTENCY_KEY, key));
        let fields = key
            .into_iter()
            .chain([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        let body = serde_json::to_vec(documents).map(Bytes::from);
        let body = body.map_err(|error| DeliveryFailure {
            message: error.to_string(),
            retry: RetryAdvice::Never,
        })?;
        match self.0.post(body, fields).await {
            Ok(response) => check_response(&response),
            Err(error) => Err(DeliveryFailure {
                message: error,
                retry: RetryAdvice::AfterBackoff,
            }),
        }
    }
}

fn event_id(document: Option<&Json>) -> u64 {
    document
        .and_then(|document| document.get("id")?.as_u64())
        .unwrap_or(0)
}

fn check_response(response: &PostResponse) -> Result<(), DeliveryFailure> {
    let status = response.status;
    if status.is_success() {
        return Ok(());
    }
    let later = matches!(
        status,
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS
    );
    let retry_after = match response.retry_after {
        _ if !later && !status.is_server_error() => RetryAdvice::Never,
        Some(time) => RetryAdvice::After(time),
        None => RetryAdvice::AfterBackoff,
    };
    Err(DeliveryFailure {
        message: format!("it answers {status}"),
        retry: retry_after,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn permanent_failures_are_not_retried() {
        for (status, retry_after, again) in [
            (400, None, Some(RetryAdvice::Never)),
            (401, Some(5), Some(RetryAdvice::Never)),
            (302, None, Some(RetryAdvice::Never)),
            (408, None, Some(RetryAdvice::AfterBackoff)),
            (
                429,
                Some(5),
                Some(RetryAdvice::After(Duration::from_secs(5))),
            ),
            (500, None, Some(RetryAdvice::AfterBackoff)),
            (
                503,
                Some(5),
                Some(RetryAdvice::After(Duration::from_secs(5))),
            ),
            (200, None, None),
            (204, None, None),
        ] {
            let response = PostResponse {
                status: StatusCode::from_u16(status).unwrap(),
                retry_after: retry_after.map(Duration::from_secs),
                body: None,
            };
            assert_eq!(
                check_response(&response).err().map(|failure| failure.retry),
                again,
                "{status}"
            );
        }
    }
}

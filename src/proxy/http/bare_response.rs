//! Responses without a request: to a head that was refused, and to connections above the limit.

use std::net::IpAddr;

use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode};

use crate::metrics::labels::ResponseSource;
use crate::pipeline::refusal::Refusal;
use crate::proxy::local_reply::{self, ReplyPreferences};

use super::ProxyService;

/// Returns the response to a refused head, or to a connection above the limit, as bytes.
pub fn bare_refusal(service: &ProxyService, refusal: &Refusal, client: Option<IpAddr>) -> Bytes {
    let mut record = service
        .recorder
        .begin(service.recorder.clock().now(), &Method::GET);
    if let Some(client) = client {
        record.set_client(client);
    }
    record.enter_stage(refusal.stage);
    record.set_rejected(refusal.reason, None, refusal.url_detail);
    let snapshot = service.active_policy.load();
    let policy = local_reply::PolicyLabel {
        name: snapshot.policy.name(),
        revision: snapshot.policy.revision(),
    };
    let preferences = ReplyPreferences::from_headers(&HeaderMap::new());
    let decision = record.id().to_text();
    let Some(response) = local_reply::refusal_response(
        refusal,
        preferences.refusal_style(service.profile),
        policy,
        &decision,
    ) else {
        return Bytes::new();
    };
    record.set_sent_status(response.status().as_u16(), ResponseSource::Proxy);
    record.finish(service.recorder.clock().now());
    to_http1_bytes(&response)
}

/// Formats a response as HTTP/1.1 bytes. The connection closes after it.
fn to_http1_bytes(response: &Response<Bytes>) -> Bytes {
    let status: StatusCode = response.status();
    let phrase = status.canonical_reason().unwrap_or("Refused");
    let mut bytes = format!("HTTP/1.1 {} {phrase}\r\n", status.as_u16()).into_bytes();
    for (name, value) in response.headers() {
        bytes.extend_from_slice(name.as_str().as_bytes());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"connection: close\r\n\r\n");
    bytes.extend_from_slice(response.body());
    bytes.into()
}

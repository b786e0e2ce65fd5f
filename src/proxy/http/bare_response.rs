//! An answer where there is no exchange: to a head that never became a request, and to connections that find no room.

use std::net::IpAddr;

use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode};

use crate::metrics::labels::ResponseSource;
use crate::pipeline::refusal::Refusal;
use crate::proxy::local_reply::{self, ReplyPreferences};

use super::ProxyService;

/// The answer to a head that never became a request, as bytes; also to connections that find no room.
pub fn bare_refusal(exchange: &ProxyService, refusal: &Refusal, client: Option<IpAddr>) -> Bytes {
    let mut record = exchange
        .recorder
        .begin(exchange.recorder.clock().now(), &Method::GET);
    client
        .into_iter()
        .for_each(|client| record.set_client(client));
    record.enter_stage(refusal.stage);
    record.set_rejected(refusal.reason, None, refusal.url_detail);
    let snapshot = exchange.active_policy.load();
    let in_force = local_reply::PolicyLabel {
        name: snapshot.policy.name(),
        revision: snapshot.policy.revision(),
    };
    let asker = ReplyPreferences::from_headers(&HeaderMap::new());
    let decision = record.id().to_text();
    let Some(response) = local_reply::refusal_response(
        refusal,
        asker.refusal_style(exchange.profile),
        in_force,
        &decision,
    ) else {
        return Bytes::new();
    };
    record.set_sent_status(response.status().as_u16(), ResponseSource::Proxy);
    record.finish(exchange.recorder.clock().now());
    to_http1_bytes(&response)
}

/// An answer as HTTP/1.1 bytes; the connection closes behind it.
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

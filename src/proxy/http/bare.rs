//! An answer where there is no exchange: to a head that never became a request, and to connections that find no room.

use std::net::IpAddr;

use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode};

use crate::gate::refusal::Refusal;
use crate::metrics::labels::Source;
use crate::proxy::answer::{self, Asker};

use super::Exchange;

/// The answer to a head that never became a request, as bytes; also to connections that find no room.
pub fn bare_refusal(exchange: &Exchange, refusal: &Refusal, client: Option<IpAddr>) -> Bytes {
    let mut record = exchange
        .recorder
        .begin(exchange.recorder.clock().now(), &Method::GET);
    client.into_iter().for_each(|client| record.client(client));
    record.enter(refusal.stage);
    record.rejected(refusal.reason, None, refusal.keep);
    let snapshot = exchange.in_force.load();
    let in_force = answer::InForce {
        name: snapshot.policy.name(),
        revision: snapshot.policy.revision(),
    };
    let asker = Asker::of(&HeaderMap::new());
    let decision = record.id().text();
    let Some(response) =
        answer::refuse(refusal, asker.manner(exchange.profile), in_force, &decision)
    else {
        return Bytes::new();
    };
    record.answered(response.status().as_u16(), Source::Proxy);
    record.finish(exchange.recorder.clock().now());
    written(&response)
}

/// An answer as HTTP/1.1 bytes; the connection closes behind it.
fn written(response: &Response<Bytes>) -> Bytes {
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

//! Conversion of requests to spans. Attributes have the names of OpenTelemetry's semantic conventions for HTTP,
//! and `crawlgate.*` for everything else.

use std::time::{Duration, SystemTime};

use http::Method;

use crate::metrics::trace::{FinishedPart, FinishedTrace};
use crate::trace_context::SpanId;

use super::message::{
    AnyValue, ExportTraceServiceRequest, InstrumentationScope, KeyValue, OtlpSpan, OtlpStatus,
    ResourceSpans, ScopeSpans, SpanKind, StatusCode, Value,
};

/// The flag of a sampled span.
const SAMPLED: u32 = 0x01;
/// The flag for a meaningful [`IS_REMOTE`].
const HAS_IS_REMOTE: u32 = 0x100;
/// The flag of a span whose parent is in another program.
const IS_REMOTE: u32 = 0x200;

/// The attributes of this program.
#[derive(Clone, Debug)]
pub struct ServiceIdentity {
    /// `service.name`.
    pub service: String,
    /// `service.instance.id`, which is also the prefix of decision ids.
    pub instance: String,
}

/// Encodes all spans of these requests.
pub(super) fn export_request(
    resource: &ServiceIdentity,
    batch: &[Box<FinishedTrace>],
) -> ExportTraceServiceRequest {
    let attributes = vec![
        text_attribute("service.name", &resource.service),
        text_attribute("service.version", env!("CARGO_PKG_VERSION")),
        text_attribute("service.instance.id", &resource.instance),
    ];
    let scope = InstrumentationScope {
        name: "crawlgate".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let spans = batch.iter().flat_map(|trace| spans(trace)).collect();
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(super::message::OtlpResource { attributes }),
            scope_spans: vec![ScopeSpans {
                scope: Some(scope),
                spans,
            }],
        }],
    }
}

fn spans(trace: &FinishedTrace) -> impl Iterator<Item = OtlpSpan> {
    let parts = trace.parts.iter().zip(1..);
    std::iter::once(request_span(trace))
        .chain(parts.map(|(part, number)| part_span(trace, *part, number)))
}

fn request_span(trace: &FinishedTrace) -> OtlpSpan {
    let failed = trace.status.filter(|status| *status >= 500);
    let parent = trace
        .parent
        .map(SpanId::bytes)
        .map_or_else(Vec::new, |id| id.to_vec());
    let remote = if trace.parent.is_some() { IS_REMOTE } else { 0 };
    OtlpSpan {
        trace_id: trace.trace.bytes().to_vec(),
        span_id: trace.span.bytes().to_vec(),
        parent_span_id: parent,
        name: "request".to_owned(),
        kind: SpanKind::Server.into(),
        start_time_unix_nano: unix_nanos(trace.began),
        end_time_unix_nano: unix_nanos(trace.began + trace.duration),
        attributes: attributes(trace),
        status: failed.map(|_| OtlpStatus {
            message: String::new(),
            code: StatusCode::Error.into(),
        }),
        flags: SAMPLED | HAS_IS_REMOTE | remote,
    }
}

fn part_span(trace: &FinishedTrace, part: FinishedPart, number: u64) -> OtlpSpan {
    let began = trace.began + part.offset;
    OtlpSpan {
        trace_id: trace.trace.bytes().to_vec(),
        span_id: trace.span.nth(number).bytes().to_vec(),
        parent_span_id: trace.span.bytes().to_vec(),
        name: part.part.as_str().to_owned(),
        kind: SpanKind::Internal.into(),
        start_time_unix_nano: unix_nanos(began),
        end_time_unix_nano: unix_nanos(began + part.duration),
        attributes: Vec::new(),
        status: None,
        flags: SAMPLED | HAS_IS_REMOTE,
    }
}

fn attributes(trace: &FinishedTrace) -> Vec<KeyValue> {
    let method = known_method(&trace.method);
    let mut all = vec![
        text_attribute("http.request.method", method.unwrap_or("_OTHER")),
        text_attribute("crawlgate.decision", &trace.decision),
        text_attribute("crawlgate.crawler", &trace.crawler),
        text_attribute("crawlgate.verdict", trace.verdict),
        text_attribute("crawlgate.reason", trace.reason),
        text_attribute("crawlgate.stage", trace.stage),
        int_attribute("http.response.body.size", trace.bytes),
    ];
    if method.is_none() {
        let written: String = trace.method.as_str().chars().take(128).collect();
        all.push(text_attribute("http.request.method_original", &written));
    }
    if let Some((host, port)) = &trace.server {
        all.push(text_attribute("server.address", host));
        all.push(int_attribute("server.port", *port));
    }
    if let Some((name, revision)) = &trace.policy {
        all.push(text_attribute("crawlgate.policy", name));
        all.push(text_attribute("crawlgate.revision", revision));
    }
    let failed = trace
        .status
        .filter(|status| *status >= 500)
        .map(|status| status.to_string());
    let address = trace.address.map(|address| address.to_string());
    for (key, value) in [
        ("url.full", trace.url.as_deref()),
        ("crawlgate.rule", trace.rule.as_deref()),
        ("crawlgate.address", address.as_deref()),
        ("error.type", trace.error.or(failed.as_deref())),
    ] {
        all.extend(value.map(|value| text_attribute(key, value)));
    }
    for (key, status) in [
        ("http.response.status_code", trace.status),
        ("crawlgate.origin_status", trace.origin_status),
    ] {
        all.extend(status.map(|status| int_attribute(key, status)));
    }
    all
}

/// Returns the method, if the conventions define it.
fn known_method(method: &Method) -> Option<&str> {
    const KNOWN: [&str; 9] = [
        "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE",
    ];
    Some(method.as_str()).filter(|method| KNOWN.contains(method))
}

fn text_attribute(key: &str, value: &str) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue {
            value: Some(Value::Text(value.to_owned())),
        }),
    }
}

fn int_attribute(key: &str, value: impl TryInto<i64>) -> KeyValue {
    let value = Value::Int(value.try_into().unwrap_or(i64::MAX));
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
    }
}

fn unix_nanos(time: SystemTime) -> u64 {
    let timestamp = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or(Duration::ZERO);
    u64::try_from(timestamp.as_nanos()).unwrap_or(u64::MAX)
}

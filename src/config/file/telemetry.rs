//! `telemetry` of the configuration file.

use std::ops::RangeInclusive;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use serde_json::{Value as Json, json};

use crate::config::settings::{OtlpConfig, Settings, SpanExportConfig};
use crate::diagnostics::problem::Problem;
use crate::diagnostics::problems::Problems;
use crate::urls::target::UrlTarget;
use crate::yaml::read::{self, MapReader};
use crate::yaml::{Node, YamlValue};

use super::ReadContext;
use super::json_schema::text_schema;
use super::key::{
    ConfigKey, CountValue, CustomValue, ParsedValue, ShareValue, TimeValue, WordValue,
    object_schema, read_keys,
};

/// The time that one export may take.
const EXPORT_TIME_RANGE: RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(60);
/// Headers that frame an export, which the configuration must not set.
const FRAMING_HEADERS: [HeaderName; 5] = [
    http::header::HOST,
    http::header::CONTENT_LENGTH,
    http::header::CONTENT_TYPE,
    http::header::TRANSFER_ENCODING,
    http::header::CONNECTION,
];

pub(super) const KEYS: &[ConfigKey<Settings>] = &[
    ConfigKey::new(
        "metrics",
        "full: /metrics has everything; none: requests, connections and hosts are not counted.",
        &WordValue(|s: &mut Settings| &mut s.telemetry.metrics.mode),
    ),
    ConfigKey::new(
        "rule_labels",
        "The most rules with series of their own in /metrics: those that match and decide most. The others are summed.",
        &CountValue(0..=100_000, |s: &mut Settings| {
            &mut s.telemetry.metrics.rule_labels
        }),
    ),
    ConfigKey::new(
        "otlp",
        "Where spans of requests are sent, or none.",
        &CustomValue(read_otlp, otlp_schema),
    ),
];

#[derive(Default)]
struct OtlpDraft {
    endpoint: Option<UrlTarget>,
    export: SpanExportConfig,
}

const OTLP_KEYS: &[ConfigKey<OtlpDraft>] = &[
    ConfigKey::required(
        "endpoint",
        "The URL of the collector, http or https; /v1/traces is added.",
        &ParsedValue {
            parse: parse_endpoint,
            store: |draft: &mut OtlpDraft, endpoint| draft.endpoint = Some(endpoint),
            schema: |_| json!({ "type": "string" }),
        },
    ),
    ConfigKey::new(
        "share",
        "The share of requests for which spans are recorded.",
        &ShareValue(|draft: &mut OtlpDraft| &mut draft.export.share),
    ),
    ConfigKey::new(
        "service",
        "The name of the service in spans (service.name); the default is crawlgate.",
        &CustomValue(
            |node, draft: &mut OtlpDraft, context| {
                if let Some(service) = read::spelling(node, context.problems) {
                    draft.export.service = service.to_owned();
                }
            },
            |_| text_schema(),
        ),
    ),
    ConfigKey::new(
        "headers",
        "Headers of each export, such as credentials.",
        &CustomValue(
            |node, draft: &mut OtlpDraft, context| {
                draft.export.headers = read_headers(node, context.problems);
            },
            |_| json!({ "type": "object", "additionalProperties": text_schema() }),
        ),
    ),
    ConfigKey::new(
        "timeout",
        "The time that one export may take.",
        &TimeValue(EXPORT_TIME_RANGE, |draft: &mut OtlpDraft| {
            vec![&mut draft.export.timeout]
        }),
    ),
    ConfigKey::new(
        "queue",
        "Requests that may wait to be exported; the spans of others are dropped and counted.",
        &CountValue(1..=1_000_000, |draft: &mut OtlpDraft| {
            &mut draft.export.queue
        }),
    ),
];

fn read_otlp(node: &Node, settings: &mut Settings, context: &mut ReadContext<'_>) {
    if node.spelling() == Some("none") {
        return;
    }
    let subject = "`telemetry.otlp`, if not `none`,";
    let Some(map) = MapReader::open(node, subject, context.problems) else {
        return;
    };
    let mut draft = OtlpDraft::default();
    read_keys(OTLP_KEYS, map, &mut draft, context);
    let Some(endpoint) = draft.endpoint else {
        return;
    };
    settings.telemetry.otlp = Some(OtlpConfig {
        endpoint,
        export: draft.export,
    });
}

fn otlp_schema(_: &mut Settings) -> Json {
    let about = "A collector that accepts OTLP over HTTP with protobuf.";
    let collector = object_schema(about, OTLP_KEYS, &mut OtlpDraft::default());
    json!({ "anyOf": [{ "const": "none" }, collector], "default": "none" })
}

fn parse_endpoint(text: &str) -> Result<UrlTarget, String> {
    UrlTarget::parse(text)
        .ok()
        .filter(|target| target.query().is_empty())
        .ok_or_else(|| {
            "the URL of an OTLP collector is needed here: http://127.0.0.1:4318".to_owned()
        })
}

/// Reads names and values of headers. The values may be secrets, so no message quotes one.
fn read_headers(node: &Node, problems: &mut Problems) -> Vec<(HeaderName, HeaderValue)> {
    let mut headers = Vec::new();
    if !matches!(node.value, YamlValue::Mapping(_)) {
        problems.push(Problem::error(
            &node.place,
            "`headers` is a mapping (`name: value`)",
        ));
        return headers;
    }
    for entry in read::entries(node, "`headers`", problems) {
        let name = HeaderName::from_bytes(entry.key.text.as_bytes());
        let value = entry
            .value
            .spelling()
            .and_then(|text| HeaderValue::from_str(text).ok());
        match (name, value) {
            (Ok(name), _) if FRAMING_HEADERS.contains(&name) => {
                problems.push(Problem::error(
                    &entry.key.place,
                    "this header is set by the export itself",
                ));
            }
            (Ok(name), Some(mut value)) => {
                value.set_sensitive(true);
                headers.push((name, value));
            }
            (Err(_), _) => problems.push(
                Problem::error(&entry.key.place, "this is not the name of a header")
                    .with_found(&*entry.key.text),
            ),
            (Ok(_), None) => problems.push(Problem::error(
                &entry.value.place,
                "this is not the value of a header",
            )),
        }
    }
    headers
}

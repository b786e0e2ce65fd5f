//! `telemetry` of the configuration file.
//!
//! A build without the feature `otlp` reads the same keys, so that `check` finds the same mistakes, and if there are none
//! says that it cannot do it.

use std::ops::RangeInclusive;
use std::time::Duration;

use http::{HeaderName, HeaderValue};

use crate::config::settings::{MetricsLevel, OtlpConfig, TelemetryConfig};
use crate::diagnostics::problem::Problem;
use crate::diagnostics::problems::Problems;
use crate::urls::target::UrlTarget;
use crate::yaml::read::{self, MapReader};
use crate::yaml::{Node, YamlValue};

use super::{parse_scalar, set_if_some};

/// Requests that wait to be exported.
pub(super) const QUEUE_RANGE: RangeInclusive<i64> = 1..=1_000_000;
/// An export may take so long.
const TIMEOUT_RANGE: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(60);
/// What frames an export is not the configuration's to say.
const FRAMING_HEADERS: [HeaderName; 5] = [
    http::header::HOST,
    http::header::CONTENT_LENGTH,
    http::header::CONTENT_TYPE,
    http::header::TRANSFER_ENCODING,
    http::header::CONNECTION,
];
/// What is said of `otlp` where it is not built.
const OTLP_NOT_BUILT: &str = "this build has no OTLP: cargo build --features otlp";

pub(super) fn read(
    telemetry: &mut TelemetryConfig,
    mut map: MapReader<'_>,
    problems: &mut Problems,
) {
    let words = MetricsLevel::ALL.map(MetricsLevel::as_str);
    let level = |word: &str| {
        MetricsLevel::ALL
            .into_iter()
            .find(|level| level.as_str() == word)
    };
    set_if_some(
        &mut telemetry.metrics,
        map.take("metrics")
            .and_then(|node| read::word(node, &words, level, problems)),
    );
    if let Some(node) = map
        .take("otlp")
        .filter(|node| node.spelling() != Some("none"))
    {
        telemetry.otlp = read_otlp(node, problems);
        if telemetry.otlp.is_some() && !cfg!(feature = "otlp") {
            problems.push(
                Problem::error(&node.place, OTLP_NOT_BUILT)
                    .with_help("leave `telemetry.otlp` at `none`"),
            );
        }
    }
    map.finish(problems);
}

fn read_otlp(node: &Node, problems: &mut Problems) -> Option<OtlpConfig> {
    let mut map = MapReader::open(node, "`telemetry.otlp`, if not `none`,", problems)?;
    let endpoint = map
        .require("endpoint", problems)
        .and_then(|node| parse_scalar(node, parse_endpoint, problems));
    let share = map
        .take("share")
        .and_then(|node| read::decimal(node, 0.0..=1.0, problems));
    let service = map
        .take("service")
        .and_then(|node| read::spelling(node, problems));
    let headers = map.take("headers").map(|node| read_headers(node, problems));
    let timeout = map
        .take("timeout")
        .and_then(|node| read_timeout(node, problems));
    let queue = map
        .take("queue")
        .and_then(|node| read::integer(node, QUEUE_RANGE, problems));
    map.finish(problems);
    let mut otlp = OtlpConfig::new(endpoint?);
    set_if_some(&mut otlp.share, share);
    set_if_some(&mut otlp.service, service.map(Into::into));
    set_if_some(&mut otlp.headers, headers);
    set_if_some(&mut otlp.timeout, timeout);
    set_if_some(
        &mut otlp.queue,
        queue.and_then(|queue| usize::try_from(queue).ok()),
    );
    Some(otlp)
}

fn parse_endpoint(text: &str) -> Result<UrlTarget, String> {
    let wrong = || "the URL of an OTLP collector is needed here: http://127.0.0.1:4318".to_owned();
    let target = UrlTarget::parse(text).map_err(|_| wrong())?;
    if target.query().is_empty() {
        Ok(target)
    } else {
        Err(wrong())
    }
}

fn read_timeout(node: &Node, problems: &mut Problems) -> Option<Duration> {
    let time = read::duration(node, problems)?;
    if TIMEOUT_RANGE.contains(&time) {
        return Some(time);
    }
    problems.push(read::wrong_type(
        node,
        "a duration from 1ms to 60s is needed here",
    ));
    None
}

/// Names and values; the values may be secrets, so no mistake shows one.
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
                    "this field is set by the export itself",
                ));
            }
            (Ok(name), Some(mut value)) => {
                value.set_sensitive(true);
                headers.push((name, value));
            }
            (Err(_), _) => {
                let problem = Problem::error(&entry.key.place, "this is no name of a header field");
                problems.push(problem.with_found(&*entry.key.text));
            }
            (Ok(_), None) => {
                let problem =
                    Problem::error(&entry.value.place, "this is no value of a header field");
                problems.push(problem);
            }
        }
    }
    headers
}

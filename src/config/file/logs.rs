//! `logs` of the configuration file.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::config::settings::Settings;
use crate::diagnostics::problem::Problem;
use crate::metrics::log::{LogDestination, LogFileRotation, QueryVisibility};
use crate::model::units::format_size;
use crate::yaml::Node;
use crate::yaml::read::{self, MapReader};

use super::ReadContext;
use super::json_schema::{duration_schema, size_schema, text_schema, variable_schema};
use super::key::{
    ConfigKey, ConfigValue as _, CountValue, CustomValue, ShareValue, TimeValue, WordValue,
    object_schema, read_keys, read_size,
};

/// The size at which a file is rotated. A smaller file would hold only a handful of lines.
const ROTATE_SIZE_RANGE: RangeInclusive<u64> = 64 << 10..=1 << 40;

/// The time after which files are removed. As files are rotated each day, it is no less.
const MAX_AGE_RANGE: RangeInclusive<Duration> =
    Duration::from_secs(86_400)..=Duration::from_secs(3650 * 86_400);

pub(super) const KEYS: &[ConfigKey<Settings>] = &[
    ConfigKey::new(
        "decisions",
        "auto (text for people on a terminal, else JSON, on standard error), stderr, stdout, none, or the path of a file.",
        &CustomValue(read_destination, |_| text_schema()),
    ),
    ConfigKey::new(
        "format",
        "The format of a line: JSON, or that of Squid's access.log.",
        &WordValue(|s: &mut Settings| &mut s.logs.format),
    ),
    ConfigKey::new(
        "allows",
        "The share of allowed requests that is logged; refusals and lost requests always are.",
        &ShareValue(|s: &mut Settings| &mut s.logs.allow_sample),
    ),
    ConfigKey::new(
        "on_full",
        "When the log cannot keep up: drop the line and count it, or wait.",
        &WordValue(|s: &mut Settings| &mut s.logs.on_full),
    ),
    // Before `query`, which wins if both are set.
    ConfigKey::new(
        "redact_query",
        "Deprecated: true is `query: none`, false is `query: full`.",
        &CustomValue(
            read_redact_query,
            |_| json!({ "type": "boolean", "deprecated": true }),
        ),
    ),
    ConfigKey::new(
        "query",
        "The part of a logged URL's query that is shown: full, names (values are masked), or none.",
        &WordValue(|s: &mut Settings| &mut s.logs.query),
    ),
    ConfigKey::new(
        "rotate",
        "When the log's file is rotated.",
        &CustomValue(read_rotation, |s: &mut Settings| {
            object_schema("", ROTATION_KEYS, &mut RotationDraft::new(s))
        }),
    ),
];

fn read_redact_query(node: &Node, settings: &mut Settings, context: &mut ReadContext<'_>) {
    let Some(redact) = read::boolean(node, context.problems) else {
        return;
    };
    let (query, word) = if redact {
        (QueryVisibility::Redacted, "none")
    } else {
        (QueryVisibility::Shown, "full")
    };
    settings.logs.query = query;
    let message = format!("`redact_query` is deprecated: write `query: {word}`");
    context
        .problems
        .push(Problem::warning(&node.place, message));
}

fn read_destination(node: &Node, settings: &mut Settings, context: &mut ReadContext<'_>) {
    let Some(text) = read::spelling(node, context.problems) else {
        return;
    };
    settings.logs.destination = match text {
        "auto" => LogDestination::Auto,
        "stderr" => LogDestination::Stderr,
        "stdout" => LogDestination::Stdout,
        "none" => LogDestination::None,
        path => LogDestination::Path(context.base.resolve(path)),
    };
}

/// The keys of `logs.rotate`, before it is known whether files are rotated.
struct RotationDraft {
    size: Option<u64>,
    keep: u32,
    max_age: Option<Duration>,
}

const ROTATION_KEYS: &[ConfigKey<RotationDraft>] = &[
    ConfigKey::new(
        "size",
        "The size at which a file is rotated; none: it only grows.",
        &CustomValue(read_rotation_size, rotation_size_schema),
    ),
    ConfigKey::new(
        "keep",
        "The number of older files that are kept; PATH.1 is the latest.",
        &CountValue(0..=1_000, |r: &mut RotationDraft| &mut r.keep),
    ),
    ConfigKey::new(
        "max_age",
        "A file is also rotated each day (UTC), and older files are removed after this time; none: only by size and number.",
        &CustomValue(
            read_max_age,
            |_| json!({ "anyOf": [{ "const": "none" }, duration_schema(), variable_schema()], "default": "none" }),
        ),
    ),
];

impl RotationDraft {
    fn new(settings: &Settings) -> Self {
        let rotation = settings.logs.rotate;
        Self {
            size: rotation
                .map(|rotation| rotation.size)
                .filter(|size| *size != LogFileRotation::NO_SIZE),
            keep: rotation.unwrap_or(LogFileRotation::DEFAULT).keep,
            max_age: rotation.and_then(|rotation| rotation.max_age),
        }
    }
}

fn read_rotation(node: &Node, settings: &mut Settings, context: &mut ReadContext<'_>) {
    let Some(map) = MapReader::open(node, "`logs.rotate`", context.problems) else {
        return;
    };
    let mut draft = RotationDraft::new(settings);
    read_keys(ROTATION_KEYS, map, &mut draft, context);
    let rotates = draft.size.is_some() || draft.max_age.is_some();
    settings.logs.rotate = rotates.then(|| LogFileRotation {
        size: draft.size.unwrap_or(LogFileRotation::NO_SIZE),
        keep: draft.keep,
        max_age: draft.max_age,
    });
}

fn read_rotation_size(node: &Node, draft: &mut RotationDraft, context: &mut ReadContext<'_>) {
    if node.spelling() == Some("none") {
        draft.size = None;
    } else if let Some(size) = read_size(node, &ROTATE_SIZE_RANGE, ", or none,", context.problems) {
        draft.size = Some(size);
    }
}

fn read_max_age(node: &Node, draft: &mut RotationDraft, context: &mut ReadContext<'_>) {
    if node.spelling() == Some("none") {
        draft.max_age = None;
        return;
    }
    let mut age = Duration::ZERO;
    let value = TimeValue(MAX_AGE_RANGE, |age: &mut Duration| vec![age]);
    value.read(node, &mut age, context);
    draft.max_age = (!age.is_zero()).then_some(age);
}

fn rotation_size_schema(draft: &mut RotationDraft) -> Json {
    json!({
        "anyOf": [{ "const": "none" }, size_schema(), variable_schema()],
        "default": draft.size.map(format_size),
    })
}

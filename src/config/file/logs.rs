//! `logs` of the configuration file.

use std::ops::RangeInclusive;

use crate::config::settings::{LogFormat, LogsConfig, OnFullSetting, RotateConfig};
use crate::diagnostics::problems::Problems;
use crate::model::units;
use crate::yaml::Node;
use crate::yaml::read::{self, MapReader};

use super::{set_if_some, unsupported};

/// Below this a file would hold a handful of lines only.
const ROTATE_SIZE_RANGE: RangeInclusive<u64> = 64 << 10..=1 << 40;
/// Files that are kept.
pub(super) const ROTATE_KEEP_RANGE: RangeInclusive<i64> = 0..=1_000;

/// What the file says of the decision log; its target is as written.
#[derive(Clone, Debug, PartialEq)]
pub struct LogsSection {
    /// `stderr`, `stdout`, `none` or a path.
    pub decisions: String,
    /// How a line is written.
    pub format: LogFormat,
    /// When a file is rotated; `None` is never.
    pub rotate_size: Option<u64>,
    /// How many older files are kept.
    pub rotate_keep: u32,
    /// The share of allowed requests that is logged.
    pub allows: f64,
    /// What happens when the log cannot keep up.
    pub on_full: OnFullSetting,
    /// Whether queries are left out.
    pub redact_query: bool,
}

impl Default for LogsSection {
    fn default() -> Self {
        let LogsConfig {
            format,
            allows,
            on_full,
            redact_query,
            ..
        } = LogsConfig::default();
        let RotateConfig { size, keep } = RotateConfig::default();
        Self {
            decisions: "stderr".into(),
            format,
            rotate_size: Some(size),
            rotate_keep: keep,
            allows,
            on_full,
            redact_query,
        }
    }
}

pub(super) fn read(logs: &mut LogsSection, mut map: MapReader<'_>, problems: &mut Problems) {
    let decisions = map
        .take("decisions")
        .and_then(|n| read::spelling(n, problems));
    set_if_some(&mut logs.decisions, decisions.map(Into::into));
    let words = LogFormat::ALL.map(LogFormat::as_str);
    let format = |word: &str| LogFormat::ALL.into_iter().find(|f| f.as_str() == word);
    set_if_some(
        &mut logs.format,
        map.take("format")
            .and_then(|n| read::word(n, &words, format, problems)),
    );
    set_if_some(
        &mut logs.allows,
        map.take("allows")
            .and_then(|n| read::decimal(n, 0.0..=1.0, problems)),
    );
    let words = OnFullSetting::ALL.map(OnFullSetting::as_str);
    let on_full = |word: &str| OnFullSetting::ALL.into_iter().find(|o| o.as_str() == word);
    set_if_some(
        &mut logs.on_full,
        map.take("on_full")
            .and_then(|n| read::word(n, &words, on_full, problems)),
    );
    set_if_some(
        &mut logs.redact_query,
        map.take("redact_query")
            .and_then(|n| read::boolean(n, problems)),
    );
    let rotate = map
        .take("rotate")
        .and_then(|n| MapReader::open(n, "`logs.rotate`", problems));
    if let Some(rotate) = rotate {
        read_rotate(logs, rotate, problems);
    }
    unsupported::check(&mut map, "logs", problems);
    map.finish(problems);
}

fn read_rotate(logs: &mut LogsSection, mut map: MapReader<'_>, problems: &mut Problems) {
    set_if_some(
        &mut logs.rotate_size,
        map.take("size").and_then(|n| read_rotate_size(n, problems)),
    );
    let keep = map
        .take("keep")
        .and_then(|n| read::integer(n, ROTATE_KEEP_RANGE, problems));
    set_if_some(
        &mut logs.rotate_keep,
        keep.and_then(|keep| u32::try_from(keep).ok()),
    );
    map.finish(problems);
}

/// A size, or `none`: the outer `None` is a mistake.
fn read_rotate_size(node: &Node, problems: &mut Problems) -> Option<Option<u64>> {
    if node.spelling() == Some("none") {
        return Some(None);
    }
    let size = read::size(node, problems)?;
    if ROTATE_SIZE_RANGE.contains(&size) {
        return Some(Some(size));
    }
    let (least, most) = (
        units::format_size(*ROTATE_SIZE_RANGE.start()),
        units::format_size(*ROTATE_SIZE_RANGE.end()),
    );
    problems.push(read::wrong_type(
        node,
        &format!("a size from {least} to {most}, or none, is needed here"),
    ));
    None
}

//! brozzler: the YAML of a job, or the JSON of a `Warcprox-Meta` header.

mod condition;
mod convert;
mod read;

use crate::conversion::Conversion;
use crate::draft::{PolicyDraft, to_slug};
use crate::input::{ImportError, ImportInput};
use crate::reference::brozzler::BrozzlerEvaluator;
use crate::report::{PartId, Report};
use crate::settings::SettingsDraft;

/// A job with its seeds.
#[derive(Clone, Debug, Default)]
pub struct BrozzlerJob {
    /// It has seeds; without them the source is the JSON of `Warcprox-Meta`.
    pub has_seeds: bool,
    pub scope: BrozzlerScope,
    pub seeds: Vec<BrozzlerSeed>,
    /// `blocks` of `warcprox_meta`: for every request.
    pub warcprox_blocks: Vec<MatchRule>,
    pub options: Vec<(PartId, &'static str, bool)>,
}

/// A seed with the scope that it adds.
#[derive(Clone, Debug)]
pub struct BrozzlerSeed {
    pub part: PartId,
    pub url: String,
    pub scope: BrozzlerScope,
}

/// `scope`.
#[derive(Clone, Debug, Default)]
pub struct BrozzlerScope {
    pub accepts: Vec<MatchRule>,
    pub blocks: Vec<MatchRule>,
    pub max_hops: Option<(PartId, i64)>,
}

/// A rule; all its conditions must hold.
#[derive(Clone, Debug)]
pub struct MatchRule {
    pub line: u32,
    pub conditions: Vec<MatchCondition>,
    /// A key that is not known.
    pub problem: Option<String>,
}

/// A condition, by its key.
#[derive(Clone, Debug)]
pub struct MatchCondition {
    pub part: PartId,
    pub key: String,
    pub value: String,
}

pub(crate) fn recognize(beginning: &[u8]) -> bool {
    let text = String::from_utf8_lossy(beginning);
    if crate::systems::browsertrix::has_own_keys(&text) {
        return false;
    }
    let has = |start: &str| text.lines().any(|line| line.starts_with(start));
    has("seeds:")
        && (text.contains("warcprox_meta:") || text.contains("accepts:") || text.contains("- url:"))
        || text.trim_start().starts_with('{') && text.contains("\"warc-prefix\"")
}

pub(crate) fn convert(input: &ImportInput<'_>) -> Result<Conversion, ImportError> {
    let mut report = Report::default();
    let job = read::read(input, &mut report)?;
    let mut policy = PolicyDraft {
        name: to_slug(input.name.as_deref().unwrap_or("brozzler")),
        ..PolicyDraft::default()
    };
    convert::convert(&job, &mut policy, &mut report);
    let evaluator = BrozzlerEvaluator::new(&job, &report);
    Ok(Conversion {
        policy,
        report,
        settings: SettingsDraft::default(),
        evaluator: Box::new(evaluator),
    })
}

//! Apache StormCrawler: `urlfilters.json` with the files that it names, `fast.urlfilter.json`, and
//! `crawler-conf.yaml`.

mod conf;
mod filters;
mod json;
mod keys;
pub mod source;

use crate::conversion::Conversion;
use crate::draft::{PolicyDraft, RuleIds, to_slug};
use crate::input::{ImportError, ImportInput, MAX_DOCUMENT};
use crate::reference::stormcrawler::StormEvaluator;
use crate::report::{MissingPart, Report};
use crate::settings::SettingsDraft;

use conf::{ConfConverter, ConfKey};
use filters::StormConverter;
use source::StormFilter;

pub(crate) fn recognize(beginning: &[u8]) -> bool {
    let text = String::from_utf8_lossy(beginning);
    let text = text.trim_start();
    let is_filters = text.starts_with('{')
        && (text.contains("stormcrawler.filtering")
            || text.contains("digitalpebble.stormcrawler")
            || text.contains("\"scope\"") && text.contains("\"patterns\""));
    let keys = ["fetcher.", "http.agent.", "fetchInterval.", "topology."];
    let has_key = |line: &str| keys.iter().any(|key| line.trim_start().starts_with(key));
    is_filters || text.lines().any(|line| line.starts_with("config:")) && text.lines().any(has_key)
}

pub(crate) fn convert(input: &ImportInput<'_>) -> Result<Conversion, ImportError> {
    let mut report = Report::default();
    let mut filters: Vec<StormFilter> = Vec::new();
    let mut keys: Vec<ConfKey> = Vec::new();
    let mut has_filters = false;
    for path in &input.paths {
        let text = input.read_text(&path.path, MAX_DOCUMENT)?;
        if text.text.trim_start().starts_with(['{', '[']) {
            has_filters = true;
            let root = json::read(&text, &mut report)?;
            source::read(&root, &path.path, input, &mut report, &mut filters)?;
        } else {
            conf::read_conf(&text, &mut report, &mut keys)?;
        }
    }
    if let Some(key) = keys.iter().find(|key| key.name == FILTERS_KEY) {
        read_named_filters(key, has_filters, input, &mut report, &mut filters)?;
    }
    let name = input.name.as_deref().unwrap_or("stormcrawler");
    let mut policy = PolicyDraft {
        name: to_slug(name),
        ..PolicyDraft::default()
    };
    policy.options.set("disposition", "allow");
    let mut settings = SettingsDraft::default();
    if !keys.is_empty() {
        let mut converter = ConfConverter {
            policy: &mut policy,
            report: &mut report,
            settings: &mut settings,
            keys: &keys,
            input,
        };
        converter.convert();
    }
    let mut converter = StormConverter {
        policy: &mut policy,
        report: &mut report,
        ids: RuleIds::default(),
    };
    converter.convert(&filters);
    let evaluator = StormEvaluator::new(&filters, &report);
    Ok(Conversion {
        policy,
        report,
        settings,
        evaluator: Box::new(evaluator),
    })
}

/// The key that names the file of filters.
const FILTERS_KEY: &str = "urlfilters.config.file";

/// Reads the filters that a configuration names, unless filters are given.
fn read_named_filters(
    key: &ConfKey,
    has_filters: bool,
    input: &ImportInput<'_>,
    report: &mut Report,
    filters: &mut Vec<StormFilter>,
) -> Result<(), ImportError> {
    let path = source::beside(&key.file, key.text());
    let text = match has_filters {
        true => None,
        false => input.read_text(&path, MAX_DOCUMENT).ok(),
    };
    if let Some(text) = &text {
        let root = json::read(text, report)?;
        source::read(&root, &path, input, report, filters)?;
    }
    for part in &key.parts {
        if has_filters || text.is_some() {
            report.unrelated(*part, "names the filters that are imported");
            continue;
        }
        report.not_converted(
            *part,
            "the file of filters is not beside this one",
            MissingPart::LetsThrough,
            Some("name it in the command, too"),
        );
    }
    Ok(())
}

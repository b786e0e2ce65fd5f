//! Apache StormCrawler: `urlfilters.json` with the files that it names, and `fast.urlfilter.json`.

mod filters;
mod json;
pub mod source;

use crate::conversion::Conversion;
use crate::draft::{PolicyDraft, RuleIds, to_slug};
use crate::input::{ImportError, ImportInput, MAX_DOCUMENT};
use crate::reference::stormcrawler::StormEvaluator;
use crate::report::Report;
use crate::settings::SettingsDraft;

use filters::StormConverter;
use source::StormFilter;

pub(crate) fn recognize(beginning: &[u8]) -> bool {
    let text = String::from_utf8_lossy(beginning);
    let text = text.trim_start();
    text.starts_with('{')
        && (text.contains("stormcrawler.filtering")
            || text.contains("digitalpebble.stormcrawler")
            || text.contains("\"scope\"") && text.contains("\"patterns\""))
}

pub(crate) fn convert(input: &ImportInput<'_>) -> Result<Conversion, ImportError> {
    let mut report = Report::default();
    let mut filters: Vec<StormFilter> = Vec::new();
    for path in &input.paths {
        let text = input.read_text(&path.path, MAX_DOCUMENT)?;
        let root = json::read(&text, &mut report)?;
        source::read(&root, &path.path, input, &mut report, &mut filters)?;
    }
    let name = input.name.as_deref().unwrap_or("stormcrawler");
    let mut policy = PolicyDraft {
        name: to_slug(name),
        ..PolicyDraft::default()
    };
    policy.options.set("disposition", "allow");
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
        settings: SettingsDraft::default(),
        evaluator: Box::new(evaluator),
    })
}

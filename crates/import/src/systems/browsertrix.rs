//! Browsertrix Crawler: the YAML or JSON of a crawl.

mod convert;
mod options;
mod pages;
mod read;
mod resources;
mod scope;
pub mod source;

use crate::conversion::Conversion;
use crate::draft::{PolicyDraft, to_slug};
use crate::input::{ImportError, ImportInput};
use crate::reference::browsertrix::BrowsertrixEvaluator;
use crate::report::Report;
use crate::settings::{CrawlerProposal, SettingsDraft};

/// Options that no other system's YAML has.
const OWN_KEYS: &[&str] = &[
    "allowHashUrls",
    "behaviors",
    "blockAds",
    "blockRules",
    "combineWARC",
    "extraHops",
    "generateWACZ",
    "pageLimit",
    "scopeExcludeRx",
    "scopeIncludeRx",
    "scopeType",
    "seedFile",
    "useSitemap",
];

/// Returns `true` if a text has an option that no other system's YAML has.
pub(crate) fn has_own_keys(text: &str) -> bool {
    OWN_KEYS
        .iter()
        .any(|key| text.contains(&format!("{key}:")) || text.contains(&format!("\"{key}\":")))
}

pub(crate) fn recognize(beginning: &[u8]) -> bool {
    let text = String::from_utf8_lossy(beginning);
    let is_seeds = |line: &str| {
        let key = line.trim_start_matches(['"', '{', ' ', '\t']);
        ["seeds", "url", "seedFile"].iter().any(|name| {
            let rest = key.strip_prefix(name);
            rest.is_some_and(|rest| rest.trim_start_matches('"').starts_with(':'))
        })
    };
    text.lines().any(is_seeds) && has_own_keys(&text)
}

pub(crate) fn convert(input: &ImportInput<'_>) -> Result<Conversion, ImportError> {
    let mut report = Report::default();
    let crawl = read::read(input, &mut report)?;
    let mut policy = PolicyDraft {
        name: to_slug(input.name.as_deref().unwrap_or("browsertrix")),
        ..PolicyDraft::default()
    };
    convert::convert(&crawl, &mut policy, &mut report);
    let evaluator = BrowsertrixEvaluator::new(&crawl, &report);
    let mut settings = SettingsDraft::default();
    settings.crawlers.push(CrawlerProposal {
        name: "browsertrix".to_owned(),
        notes: vec![
            "Browsertrix sends a browser's User-Agent, so its profile is named here.".to_owned(),
        ],
        keys: vec![("profile".to_owned(), "browsertrix".into())],
    });
    Ok(Conversion {
        policy,
        report,
        settings,
        evaluator: Box::new(evaluator),
    })
}

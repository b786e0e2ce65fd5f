//! Exalead CloudView: `CrawlConfig.xml`.
//!
//! All rules are evaluated. Accept, index and follow are three settings; the last rule that sets one counts.

mod actions;
mod conditions;
mod crawler;
pub mod pattern;
mod reading;
pub mod source;

use crate::conversion::Conversion;
use crate::draft::{PolicyDraft, SpaceDraft, to_slug};
use crate::input::{ImportError, ImportInput, MAX_DOCUMENT, Place};
use crate::reference::exalead::CloudViewEvaluator;
use crate::report::Report;
use crate::settings::{CrawlerProposal, SettingsDraft};
use crate::xml::XmlSource;

use crawler::{ConvertedCrawler, CrawlerConversion};

pub(crate) fn recognize(beginning: &[u8]) -> bool {
    let text = String::from_utf8_lossy(beginning);
    text.contains("<CrawlConfig") || text.contains(":CrawlConfig")
}

pub(crate) fn convert(input: &ImportInput<'_>) -> Result<Conversion, ImportError> {
    let mut report = Report::default();
    let mut policy = PolicyDraft {
        name: to_slug(input.name.as_deref().unwrap_or("cloudview")),
        ..PolicyDraft::default()
    };
    let mut crawlers = Vec::new();
    for path in &input.paths {
        let source = input.read_text(&path.path, MAX_DOCUMENT)?;
        let xml = XmlSource::parse(&source, &mut report, is_secret)?;
        if xml.root().tag_name().name() != "CrawlConfig" {
            let message = "not a configuration of CloudView: the root element is not `CrawlConfig`";
            return Err(ImportError::invalid(&Place::start(&source.file), message));
        }
        reading::add_outer_outcomes(&xml, &mut report);
        let elements = reading::crawlers(&xml);
        let mut conversion = CrawlerConversion::new(&xml, &mut report, input.escape);
        for element in elements {
            crawlers.push(conversion.convert(element));
        }
    }
    let settings = SettingsDraft {
        crawlers: crawlers.iter().map(crawler_settings).collect(),
        ..SettingsDraft::default()
    };
    let evaluator =
        CloudViewEvaluator::new(crawlers.iter().map(|crawler| &crawler.source), &report);
    let is_divided = crawlers.len() > 1;
    if is_divided || crawlers.is_empty() {
        policy.options.set("disposition", "disallow");
    }
    for crawler in crawlers {
        if is_divided {
            let name = to_slug(&crawler.source.name);
            policy.spaces.push(SpaceDraft {
                crawlers: vec![name.clone()],
                name,
                notes: Vec::new(),
                seeds: Vec::new(),
                options: crawler.options,
                rules: crawler.rules,
            });
        } else {
            policy.options = crawler.options;
            policy.rules = crawler.rules;
        }
    }
    Ok(Conversion {
        policy,
        report,
        settings,
        evaluator: Box::new(evaluator),
    })
}

fn crawler_settings(crawler: &ConvertedCrawler) -> CrawlerProposal {
    CrawlerProposal {
        name: to_slug(&crawler.source.name),
        notes: Vec::new(),
        keys: vec![("profile".to_owned(), "cloudview".into())],
    }
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.contains("password") || name.contains("secret") || name.contains("token")
}

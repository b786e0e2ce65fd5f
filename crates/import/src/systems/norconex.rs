//! Norconex HTTP Collector and Norconex Web Crawler: configurations of the versions 1 to 4, as XML, YAML and JSON.

mod convert;
mod duration;
mod examples;
mod filters;
mod index;
mod matcher;
pub mod model;
mod others;
mod pace;
mod read;
mod recrawl;
mod scope;
mod session;
mod syntax;
mod tree;
mod variables;
mod velocity;

use crate::conversion::Conversion;
use crate::input::{ImportError, ImportInput, Place};
use crate::reference::norconex::NorconexEvaluator;
use crate::report::Report;

pub(crate) fn recognize(beginning: &[u8]) -> bool {
    let text = String::from_utf8_lossy(beginning);
    let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
    has(&["<httpcollector", "<crawlSession"])
        || (has(&["<crawler"]) && has(&["<startReferences", "<startURLs", "<referenceFilters"]))
        || has(&["startReferences:", "\"startReferences\""])
}

pub(crate) fn convert(input: &ImportInput<'_>) -> Result<Conversion, ImportError> {
    let Some(path) = input.paths.first() else {
        let place = Place::start("norconex");
        return Err(ImportError::invalid(&place, "no file is named"));
    };
    let mut report = Report::default();
    let rendered = velocity::render(input, &path.path, &mut report)?;
    let root = tree::parse(&rendered, &mut report)?;
    let session = session::Session::new(&root, &Place::start(&path.path))?;
    let mut config = read::read_config(&session, input);
    let (mut policy, settings) = convert::convert_session(&session, input, &mut report);
    keep_converted(&mut config, &policy, &report);
    let evaluator = NorconexEvaluator::new(config.clone());
    examples::add_examples(&mut policy, &config, &evaluator);
    Ok(Conversion {
        policy,
        settings,
        evaluator: Box::new(evaluator),
        report,
    })
}

/// Takes the parts that are not converted out of what is evaluated, and names the crawlers as their spaces.
fn keep_converted(
    config: &mut model::NorconexConfig,
    policy: &crate::draft::PolicyDraft,
    report: &Report,
) {
    let is_alone = config.crawlers.len() == 1;
    for (crawler, space) in config.crawlers.iter_mut().zip(&policy.spaces) {
        crawler.name = if is_alone {
            String::new()
        } else {
            space.name.clone()
        };
        for filters in [
            &mut crawler.reference_filters,
            &mut crawler.metadata_filters,
            &mut crawler.document_filters,
        ] {
            filters.retain(|filter| report.is_converted(filter.part));
        }
        let scope = &mut crawler.scope;
        for flag in [
            &mut scope.stay_on_domain,
            &mut scope.include_subdomains,
            &mut scope.stay_on_port,
            &mut scope.stay_on_protocol,
        ] {
            *flag = flag.filter(|part| report.is_converted(*part));
        }
    }
}

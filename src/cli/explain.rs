//! `crawlgate explain`: why one request is allowed or refused, rule by rule.

mod text_report;

use serde_json::{Map, Value as Json, json};

use crate::clock::{Clock, utc_year};
use crate::config::load::Overrides;
use crate::model::crawler::Crawler;
use crate::model::profile::Profile;
use crate::pipeline::offline_evaluation::OfflineEvaluation;
use crate::policy::Policy;
use crate::policy::cases::CaseFacts;
use crate::policy::decide::Verdict;
use crate::report::explanation;
use crate::report::response::ProfileResponses;

use super::Exit;
use super::args::{ExplainArgs, OutputFormat};
use super::color::{self, ConsoleColors};
use super::console::{self, report_invalid, warn};
use super::inputs;
use text_report::{ExplanationText, OptionDetail};

/// Runs the command.
pub(super) fn run(args: &ExplainArgs) -> Exit {
    let facts = match CaseFacts::from_json(&build_facts(args)) {
        Ok(facts) => facts.with_default_year(utc_year(Clock::system().wall_time())),
        Err(mistake) => return report_invalid(&format!("{}: {mistake}", args.url)),
    };
    let (policy, crawler) = match load(args) {
        Ok(opened) => opened,
        Err(exit) => return exit,
    };
    let profile = args
        .profile
        .or_else(|| crawler?.profile())
        .unwrap_or(Profile::Generic);
    let trial = OfflineEvaluation::new(&policy, &facts, profile);
    let text = match args.format {
        OutputFormat::Text => {
            let depth = if args.all {
                OptionDetail::All
            } else {
                OptionDetail::SetOnly
            };
            ExplanationText::new(ConsoleColors::for_stdout(), color::output_width(), depth)
                .render(&trial, &facts)
        }
        OutputFormat::Json => format!(
            "{:#}\n",
            explanation::to_json(&trial, &facts, &ProfileResponses::for_trial(&trial, &facts))
        ),
    };
    let refused = trial.decision.verdict != Verdict::Admit;
    let exit = if args.exit_code && refused {
        Exit::Negative
    } else {
        Exit::Success
    };
    console::print(&text, exit)
}

/// The policy, and what the configuration says of the crawler, if it is the configuration that names the policy.
fn load(args: &ExplainArgs) -> Result<(Policy, Option<Crawler>), Exit> {
    let loaded = match &args.policy {
        Some(path) => return Ok((inputs::load_policy(Some(path))?, None)),
        None => inputs::load_settings(&Overrides::default())?,
    };
    let known = loaded
        .settings
        .crawlers
        .into_iter()
        .map(|known| known.crawler);
    let name = args.crawler.as_deref().unwrap_or(Crawler::ANONYMOUS);
    let crawler = known.into_iter().find(|known| known.as_str() == name);
    if crawler.is_none() && name != Crawler::ANONYMOUS && loaded.file.is_some() {
        warn(&format!("the configuration knows no crawler {name}"));
    }
    Ok((
        inputs::compile_policy(&loaded.settings.policy.origin)?.policy,
        crawler,
    ))
}

/// The arguments as the facts of `decide`, so that both mean the same.
fn build_facts(args: &ExplainArgs) -> Map<String, Json> {
    let mut headers = Map::new();
    for (name, value) in &args.headers {
        let values = headers.entry(name).or_insert_with(|| json!([]));
        if let Some(values) = values.as_array_mut() {
            values.push(json!(value));
        }
    }
    let usage = args
        .usage
        .iter()
        .map(|(name, word)| (name.clone(), json!(word)))
        .collect();
    let facts = [
        ("url", json!(args.url)),
        ("tunnel", json!(args.tunnel)),
        ("method", json!(args.method)),
        ("crawler", json!(args.crawler)),
        ("referer", json!(args.referer)),
        ("depth", json!(args.depth)),
        ("address", json!(args.address)),
        ("status", json!(args.status)),
        ("content_type", json!(args.content_type)),
        ("size", json!(args.size)),
        ("headers", unless_empty(headers)),
        ("usage", unless_empty(usage)),
        ("title", json!(args.title)),
        ("body_prefix", json!(args.body_prefix)),
        ("meta_robots", json!(args.meta_robots)),
        ("canonical", json!(args.canonical)),
        ("dest", json!(args.dest)),
        ("known", json!(args.known)),
        ("year", json!(args.year)),
    ];
    facts
        .map(|(key, value)| (key.to_owned(), value))
        .into_iter()
        .collect()
}

fn unless_empty(object: Map<String, Json>) -> Json {
    if object.is_empty() {
        Json::Null
    } else {
        object.into()
    }
}

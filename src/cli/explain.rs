//! `crawlgate explain`: why one request is allowed or refused, rule by rule.

mod in_text;

use serde_json::{Map, Value as Json, json};

use crate::clock::{Clock, year};
use crate::config::load::Overrides;
use crate::gate::trial::Trial;
use crate::policy::Policy;
use crate::policy::cases::CaseFacts;
use crate::policy::decide::Verdict;
use crate::report::explanation;
use crate::report::wire::Answers;
use crate::vocab::crawler::Crawler;
use crate::vocab::profile::Profile;

use super::Exit;
use super::args::{ExplainArgs, Format};
use super::open;
use super::out::{self, complain, warn};
use super::paint::{self, Paint};
use in_text::{Depth, Page};

/// Runs the command.
pub(super) fn run(args: &ExplainArgs) -> Exit {
    let facts = match CaseFacts::from_json(&facts(args)) {
        Ok(facts) => facts.in_year(year(Clock::system().wall())),
        Err(mistake) => return complain(&format!("{}: {mistake}", args.url)),
    };
    let (policy, crawler) = match open(args) {
        Ok(opened) => opened,
        Err(exit) => return exit,
    };
    let profile = args
        .profile
        .or_else(|| crawler?.profile())
        .unwrap_or(Profile::Generic);
    let trial = Trial::new(&policy, &facts, profile);
    let text = match args.format {
        Format::Text => {
            let depth = if args.all {
                Depth::All
            } else {
                Depth::WhatIsSet
            };
            Page::new(Paint::for_stdout(), paint::width(), depth).of(&trial, &facts)
        }
        Format::Json => format!(
            "{:#}\n",
            explanation::of(&trial, &facts, &Answers::of(&trial, &facts))
        ),
    };
    let refused = trial.decision.verdict != Verdict::Admit;
    let exit = if args.exit_code && refused {
        Exit::Negative
    } else {
        Exit::Success
    };
    out::write(&text, exit)
}

/// The policy, and what the configuration says of the crawler, if it is the configuration that names the policy.
fn open(args: &ExplainArgs) -> Result<(Policy, Option<Crawler>), Exit> {
    let loaded = match &args.policy {
        Some(path) => return Ok((open::policy(Some(path))?, None)),
        None => open::settings(&Overrides::default())?,
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
        open::compiled(&loaded.settings.policy.origin)?.policy,
        crawler,
    ))
}

/// The arguments as the facts of `decide`, so that both mean the same.
fn facts(args: &ExplainArgs) -> Map<String, Json> {
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

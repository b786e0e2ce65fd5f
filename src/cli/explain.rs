//! `crawlgate explain`: explains why a request is allowed or refused, rule by rule.

mod decision;
mod text_report;

use serde_json::{Map, Value as Json, json};

use crate::clock::{Clock, utc_year};
use crate::model::crawler::Crawler;
use crate::model::profile::Profile;
use crate::pipeline::offline_evaluation::{ExplanationScope, OfflineEvaluation};
use crate::policy::Policy;
use crate::policy::cases::CaseFacts;
use crate::policy::decide::Verdict;
use crate::report::explanation;
use crate::report::response::ProfileResponses;
use crate::robots::agent::{RobotsAgent, RobotsTokenSource};

use super::Exit;
use super::args::{ExplainArgs, OutputFormat};
use super::console::{self, report_invalid, warn};
use super::{inputs, text};
use crate::console::ConsoleColors;
use text_report::OptionDetail;

pub(super) fn run(args: &ExplainArgs) -> Exit {
    if let Some(id) = &args.decision {
        return decision::run(args, id);
    }
    let request = match ExplainedRequest::load(args, &build_facts(args), args.crawler.as_deref()) {
        Ok(request) => request,
        Err(exit) => return exit,
    };
    let text = match args.format {
        OutputFormat::Text => request.to_text(args, ConsoleColors::for_stdout()),
        OutputFormat::Json => format!("{:#}\n", request.to_json(args)),
    };
    let refused = request.evaluate(args).decision.verdict != Verdict::Admit;
    let exit = if args.exit_code && refused {
        Exit::Negative
    } else {
        Exit::Success
    };
    console::print(&text, exit)
}

/// A request, and the policy that it is evaluated under.
struct ExplainedRequest {
    facts: CaseFacts,
    policy: Policy,
    crawler: Crawler,
    profile: Profile,
}

impl ExplainedRequest {
    /// Reads the facts, and loads the policy with the settings of the crawler.
    fn load(
        args: &ExplainArgs,
        facts: &Map<String, Json>,
        crawler: Option<&str>,
    ) -> Result<Self, Exit> {
        let facts = CaseFacts::from_json(facts)
            .map_err(|error| {
                let url = args.url.as_deref().unwrap_or_default();
                report_invalid(&format!("{url}: {error}"))
            })?
            .with_default_year(utc_year(Clock::system().wall_time()));
        let (policy, crawler) = load_policy(args, crawler)?;
        let profile = args
            .profile
            .or_else(|| crawler.as_ref()?.profile())
            .unwrap_or(Profile::Generic);
        Ok(Self {
            facts,
            policy,
            crawler: crawler.unwrap_or(Crawler::anonymous()),
            profile,
        })
    }

    fn policy(&self) -> &Policy {
        &self.policy
    }

    fn evaluate(&self, args: &ExplainArgs) -> OfflineEvaluation<'_> {
        let scope = if args.all {
            ExplanationScope::All
        } else {
            ExplanationScope::Relevant
        };
        OfflineEvaluation::for_explanation(&self.policy, &self.facts, self.profile, scope)
    }

    /// Returns the crawler's product token. Without a User-Agent, it is known only if the policy or the crawler's
    /// settings have it.
    fn agent<'a>(
        &'a self,
        args: &'a ExplainArgs,
        evaluation: &'a OfflineEvaluation<'a>,
    ) -> Option<RobotsAgent<'a>> {
        let user_agent = args.user_agent.as_deref();
        Some(evaluation.robots_agent(&self.crawler, user_agent.unwrap_or("")))
            .filter(|agent| user_agent.is_some() || agent.source() != RobotsTokenSource::Default)
    }

    fn to_text(&self, args: &ExplainArgs, colors: ConsoleColors) -> String {
        let detail = if args.all {
            OptionDetail::All
        } else {
            OptionDetail::SetOnly
        };
        let evaluation = self.evaluate(args);
        let agent = self.agent(args, &evaluation);
        let width = text::output_width();
        text_report::render(&evaluation, &self.facts, agent, detail, colors, width)
    }

    fn to_json(&self, args: &ExplainArgs) -> Json {
        let evaluation = self.evaluate(args);
        let answers = ProfileResponses::for_evaluation(&evaluation, &self.facts);
        let mut document = explanation::to_json(&evaluation, &self.facts, &answers);
        let agent = self.agent(args, &evaluation);
        if let (Some(agent), Some(document)) = (agent, document.as_object_mut()) {
            document.insert("robots_agent".to_owned(), agent_to_json(agent));
        }
        document
    }
}

fn agent_to_json(agent: RobotsAgent<'_>) -> Json {
    json!({
        "token": agent.token(),
        "first_product": agent.first_product(),
        "source": agent.source().as_str(),
    })
}

/// Loads the policy, and the settings of the crawler if the policy is that of the configuration.
fn load_policy(
    args: &ExplainArgs,
    crawler: Option<&str>,
) -> Result<(Policy, Option<Crawler>), Exit> {
    let loaded = match &args.policy {
        Some(path) => return Ok((inputs::load_policy(Some(path))?, None)),
        None => inputs::load_settings(&args.proxy.overrides())?,
    };
    let name = crawler.unwrap_or(Crawler::ANONYMOUS);
    let crawler = loaded
        .settings
        .crawlers
        .into_iter()
        .map(|registration| registration.crawler)
        .find(|crawler| crawler.as_str() == name);
    if crawler.is_none() && name != Crawler::ANONYMOUS && loaded.file.is_some() {
        warn(&format!("the configuration has no crawler {name}"));
    }
    Ok((
        inputs::compile_policy(&loaded.settings.policy.origin)?.policy,
        crawler,
    ))
}

/// Converts the arguments to the JSON facts of `decide`, so that both commands read them in the same way.
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

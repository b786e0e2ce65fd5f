//! `crawlgate explain`: explains why a request is allowed or refused, rule by rule.

mod decision;
mod remote_report;
mod text_report;
mod wire_report;

use serde_json::{Map, Value as Json, json};

use crate::clock::{Clock, utc_year};
use crate::config::load::{self, Environment};
use crate::config::policy;
use crate::model::crawler::Crawler;
use crate::model::profile::Profile;
use crate::pipeline::crawlers::CrawlerRegistration;
use crate::pipeline::offline_evaluation::{ExplanationScope, OfflineEvaluation};
use crate::pipeline::request::dry_run::NotAskedSubject;
use crate::policy::Policy;
use crate::policy::cases::CaseFacts;
use crate::policy::decide::Verdict;
use crate::report::response::ProfileResponses;
use crate::report::{dry_run, explanation};
use crate::robots::agent::{RobotsAgent, RobotsTokenSource};

use super::Exit;
use super::admin_client::{AdminClientError, AdminClientRequest, get_or_null, get_str};
use super::args::{ExplainArgs, OutputFormat};
use super::console::{self, note, report_cannot_run, report_invalid, warn};
use super::running_proxy::RunningProxy;
use super::text::ReportText;
use super::{inputs, text};
use crate::console::ConsoleColors;
use text_report::OptionDetail;

pub(super) fn run(args: &ExplainArgs) -> Result<Exit, Exit> {
    if let Some(id) = &args.decision {
        return decision::run(args, id);
    }
    let explanation = RequestExplanation::find(args, &build_facts(args))?;
    let text = match args.format {
        OutputFormat::Text => explanation.to_text(args, ConsoleColors::for_stdout()),
        OutputFormat::Json => format!("{:#}\n", explanation.to_json(args)),
    };
    let exit = if args.exit_code && explanation.refuses(args) {
        Exit::Negative
    } else {
        Exit::Success
    };
    Ok(console::print(&text, exit))
}

/// An explanation: by the running proxy, or by a policy file alone.
enum RequestExplanation {
    Running {
        /// The response of `POST /api/v1/explain`.
        document: Json,
        /// The request under the policy of the configuration, if that is the one in force.
        request: Option<Box<ExplainedRequest>>,
    },
    Offline(Box<ExplainedRequest>),
}

impl RequestExplanation {
    /// Asks the running proxy, unless a policy is named. Without an answer the policy of the configuration is explained.
    fn find(args: &ExplainArgs, facts: &Map<String, Json>) -> Result<Self, Exit> {
        let crawler = facts.get("crawler").and_then(Json::as_str);
        let document = match args.policy {
            None => ask_running_proxy(args, facts)?,
            Some(_) => None,
        };
        let Some(document) = document else {
            let request = ExplainedRequest::load(args, facts, crawler)?;
            return Ok(Self::Offline(Box::new(request)));
        };
        let in_force = get_str(get_or_null(&document, "decision"), "policy");
        let mut facts = facts.clone();
        dry_run::add_ledger_facts(&mut facts, get_or_null(&document, "wire"));
        let request = ExplainedRequest::load_quietly(args, &facts, crawler)
            .filter(|request| request.policy.name_and_revision() == in_force)
            .map(Box::new);
        Ok(Self::Running { document, request })
    }

    /// Returns `true` if the request is refused, as far as it was asked.
    fn refuses(&self, args: &ExplainArgs) -> bool {
        match self {
            Self::Offline(request) => request.evaluate(args).decision.verdict != Verdict::Admit,
            Self::Running { document, .. } => {
                let is_admitted =
                    |member| get_str(get_or_null(document, member), "verdict") == "allow";
                let wire = get_or_null(document, "wire");
                !is_admitted("decision") || !wire.is_null() && !is_admitted("wire")
            }
        }
    }

    /// Returns the revision of the policy that is explained.
    fn revision(&self) -> &str {
        match self {
            Self::Offline(request) => request.policy.revision(),
            Self::Running { document, .. } => {
                let policy = get_str(get_or_null(document, "decision"), "policy");
                policy.rsplit_once('@').map_or("", |(_, revision)| revision)
            }
        }
    }

    fn to_text(&self, args: &ExplainArgs, colors: ConsoleColors) -> String {
        match self {
            Self::Offline(request) => request.to_text(args, None, colors),
            Self::Running { document, request } => {
                let wire = get_or_null(document, "wire");
                match request {
                    Some(request) => request.to_text(args, Some(wire), colors),
                    None => remote_report::render(document, colors, text::output_width()),
                }
            }
        }
    }

    fn to_json(&self, args: &ExplainArgs) -> Json {
        match self {
            Self::Offline(request) => request.to_json(args),
            Self::Running { document, .. } => document.clone(),
        }
    }
}

/// Returns the explanation of the running proxy; `None` if it does not answer.
fn ask_running_proxy(args: &ExplainArgs, facts: &Map<String, Json>) -> Result<Option<Json>, Exit> {
    let proxy = RunningProxy::find(&args.proxy)?;
    let given = facts.iter().filter(|(_, value)| !value.is_null());
    let mut body: Map<String, Json> = given
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let options = [
        (
            "profile",
            args.profile.map(|profile| json!(profile.as_str())),
        ),
        (
            "user_agent",
            args.user_agent.as_ref().map(|agent| json!(agent)),
        ),
        ("all_rules", args.all.then_some(json!(true))),
        ("fetch", args.fetch.then_some(json!(true))),
    ];
    for (key, value) in options {
        body.extend(value.map(|value| (key.to_owned(), value)));
    }
    let body = Json::Object(body).to_string();
    let request = AdminClientRequest::post("/api/v1/explain", Some(body));
    match proxy.send(&request) {
        Ok(document) => Ok(Some(document)),
        Err(AdminClientError::Status(400, detail)) => Err(report_invalid(&detail)),
        Err(error) if args.fetch || args.proxy.admin.is_some() => Err(report_cannot_run(&error)),
        Err(error) => {
            note(&format!(
                "{error}. The policy of the configuration is explained, without the state of a proxy"
            ));
            Ok(None)
        }
    }
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
        let facts = CaseFacts::from_json(facts).map_err(|error| {
            let url = args.url.as_deref().unwrap_or_default();
            report_invalid(&format!("{url}: {error}"))
        })?;
        let (policy, crawler) = load_policy(args, crawler)?;
        Ok(Self::new(args, facts, policy, crawler))
    }

    /// Loads the policy of the configuration, without a report of its problems.
    fn load_quietly(
        args: &ExplainArgs,
        facts: &Map<String, Json>,
        crawler: Option<&str>,
    ) -> Option<Self> {
        let facts = CaseFacts::from_json(facts).ok()?;
        let settings = load::load(&args.proxy.overrides(), &Environment::from_process())
            .ok()?
            .settings;
        let policy = policy::open(&settings.policy.origin).ok()?.policy;
        let crawler = find_crawler(settings.crawlers, crawler);
        Some(Self::new(args, facts, policy, crawler))
    }

    fn new(args: &ExplainArgs, facts: CaseFacts, policy: Policy, crawler: Option<Crawler>) -> Self {
        let profile = args
            .profile
            .or_else(|| crawler.as_ref()?.profile())
            .unwrap_or(Profile::Generic);
        Self {
            facts: facts.with_default_year(utc_year(Clock::system().wall_time())),
            policy,
            crawler: crawler.unwrap_or(Crawler::anonymous()),
            profile,
        }
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

    /// Returns the explanation as text, with what the running proxy would do (`wire`), if it was asked.
    fn to_text(&self, args: &ExplainArgs, wire: Option<&Json>, colors: ConsoleColors) -> String {
        let detail = if args.all {
            OptionDetail::All
        } else {
            OptionDetail::SetOnly
        };
        let evaluation = self.evaluate(args);
        let agent = self.agent(args, &evaluation);
        let width = text::output_width();
        let mut report = text_report::render(
            &evaluation,
            &self.facts,
            text_report::Additions { agent, wire },
            detail,
            ReportText::new(colors, width),
        );
        wire_report::write(&mut report, wire);
        report.into_string()
    }

    fn to_json(&self, args: &ExplainArgs) -> Json {
        let evaluation = self.evaluate(args);
        let answers = ProfileResponses::for_evaluation(&evaluation, &self.facts);
        let mut document = explanation::to_json(&evaluation, &self.facts, &answers);
        let agent = self.agent(args, &evaluation);
        if let Some(document) = document.as_object_mut() {
            if let Some(agent) = agent {
                let agent = explanation::robots_agent_to_json(agent);
                document.insert("robots_agent".to_owned(), agent);
            }
            document.insert("wire".to_owned(), Json::Null);
            let not_asked = NotAskedSubject::ALL.map(NotAskedSubject::as_str);
            document.insert("not_asked".to_owned(), json!(not_asked));
        }
        document
    }
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
    let crawler = find_crawler(loaded.settings.crawlers, crawler);
    if crawler.is_none() && name != Crawler::ANONYMOUS && loaded.file.is_some() {
        warn(&format!("the configuration has no crawler {name}"));
    }
    Ok((
        inputs::compile_policy(&loaded.settings.policy.origin)?.policy,
        crawler,
    ))
}

/// Returns the crawler of a name, if the configuration has it.
fn find_crawler(known: Vec<CrawlerRegistration>, name: Option<&str>) -> Option<Crawler> {
    let name = name.unwrap_or(Crawler::ANONYMOUS);
    known
        .into_iter()
        .map(|registration| registration.crawler)
        .find(|crawler| crawler.as_str() == name)
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
        ("license", json!(args.license)),
        ("title", json!(args.title)),
        ("body_prefix", json!(args.body_prefix)),
        ("meta_robots", json!(args.meta_robots)),
        ("canonical", json!(args.canonical)),
        ("dest", json!(args.dest)),
        ("known", json!(args.known.then_some(true))),
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

//! `POST /api/v1/explain`: the reason why the active policy allows or refuses a request with the given facts.

use http::StatusCode;
use serde_json::{Map, Value as Json, json};

use crate::clock::{Clock, utc_year};
use crate::diagnostics::nearest::nearest;
use crate::model::crawler::Crawler;
use crate::model::profile::Profile;
use crate::model::rule_id::Slug;
use crate::pipeline::offline_evaluation::{ExplanationScope, OfflineEvaluation};
use crate::pipeline::request::dry_run::{DryRunRequest, LookupPermission};
use crate::policy::Policy;
use crate::policy::cases::CaseFacts;
use crate::report::response::ProfileResponses;
use crate::report::{case, dry_run, explanation};

use super::api_request::{
    ApiError, ApiResult, RequestBody, read_object, run_blocking, shorten_message,
};
use super::fleet::{FleetApi, HostOwner};
use super::policy_api::PolicyApi;
use super::response;

/// The longest body.
const MAX_BODY_BYTES: usize = 64 << 10;

/// The facts of a request, as given and parsed, and the profile of the response, if it is given.
struct ExplainRequest {
    given: Map<String, Json>,
    facts: CaseFacts,
    profile: Option<Profile>,
    scope: ExplanationScope,
    /// The `User-Agent`, by which robots.txt is read.
    user_agent: Option<String>,
    lookups: LookupPermission,
}

impl PolicyApi {
    /// Returns the explanation that `crawlgate explain` prints, the response for each profile (`answers`), the facts
    /// and decision as a test case (`case`), and what the proxy would do with the request now (`wire`); or 400 for invalid
    /// facts. Nothing is counted, and nothing is sent but what `fetch` allows.
    pub(super) async fn explain(&self, body: RequestBody, fleet: Option<&FleetApi>) -> ApiResult {
        let given = read_object(body, MAX_BODY_BYTES, "of facts").await?;
        let mut request = ExplainRequest::new(given)?;
        let snapshot = self.active_policy.load();
        let crawler = self.find_crawler(request.crawler());
        let profile = request
            .profile
            .or(crawler.profile())
            .unwrap_or(self.default_profile);
        let wire = match request.to_dry_run(crawler.clone(), profile) {
            Some(run) => self.run_dry(run, profile, fleet).await,
            None => Json::Null,
        };
        request.add_ledger_facts(&wire)?;
        // Thousands of rules take milliseconds, which would delay other requests of this thread.
        let document = move || explanation_document(&snapshot.policy, &request, &crawler, profile);
        let mut document = run_blocking(document).await?;
        response::extend(&mut document, &json!({ "wire": wire }));
        Ok(response::json(StatusCode::OK, &document))
    }

    /// Returns what the proxy would do with a request, and in a fleet the owner of its host, which would do it.
    async fn run_dry(
        &self,
        run: DryRunRequest,
        profile: Profile,
        fleet: Option<&FleetApi>,
    ) -> Json {
        let owner = fleet.and_then(|fleet| fleet.owner(run.host()));
        let is_owner = fleet.is_none() || owner.as_ref().is_some_and(|owner| owner.is_here);
        // Only the owner of a host sends requests to it.
        let run = if is_owner { run } else { run.at_other_node() };
        let mut wire = dry_run::to_json(&self.dry_runner.dry_run(run).await, profile);
        let owner = owner.as_ref().map(HostOwner::to_json);
        response::extend(&mut wire, &json!({ "owner": owner }));
        wire
    }

    /// Returns the crawler of a name: with its settings, if the configuration has it.
    fn find_crawler(&self, name: &str) -> Crawler {
        let known = self.crawlers.iter().find(|known| known.as_str() == name);
        known
            .cloned()
            .or_else(|| Some(Crawler::new(&Slug::new(name)?)))
            .unwrap_or(Crawler::anonymous())
    }
}

impl ExplainRequest {
    fn new(mut given: Map<String, Json>) -> Result<Self, ApiError> {
        let profile = match given.shift_remove("profile") {
            None | Some(Json::Null) => None,
            Some(word) => Some(parse_profile(&word)?),
        };
        let scope = if take_flag(&mut given, "all_rules")? {
            ExplanationScope::All
        } else {
            ExplanationScope::Relevant
        };
        let lookups = if take_flag(&mut given, "fetch")? {
            LookupPermission::Fetch
        } else {
            LookupPermission::CacheOnly
        };
        let user_agent = take_text(&mut given, "user_agent")?;
        Ok(Self {
            facts: parse_facts(&given)?,
            given,
            profile,
            scope,
            user_agent,
            lookups,
        })
    }

    /// Adds what the ledger has of the URL, so that the explanation is that of the request that would be sent.
    fn add_ledger_facts(&mut self, wire: &Json) -> Result<(), ApiError> {
        dry_run::add_ledger_facts(&mut self.given, wire);
        self.facts = parse_facts(&self.given)?;
        Ok(())
    }

    /// Returns the request for the stages; `None` if it does not go through them.
    fn to_dry_run(&self, crawler: Crawler, profile: Profile) -> Option<DryRunRequest> {
        let user_agent = self.user_agent.as_deref();
        DryRunRequest::new(&self.facts, crawler, user_agent, profile, self.lookups)
    }

    fn crawler(&self) -> &str {
        self.given
            .get("crawler")
            .and_then(Json::as_str)
            .unwrap_or(Crawler::ANONYMOUS)
    }
}

fn parse_facts(given: &Map<String, Json>) -> Result<CaseFacts, ApiError> {
    let facts = CaseFacts::from_json(given).map_err(|error| {
        ApiError::Invalid(format!(
            "the facts are invalid: {}",
            shorten_message(&error)
        ))
    })?;
    Ok(facts.with_default_year(utc_year(Clock::system().wall_time())))
}

/// Removes a member that is `true` or `false`; `false` if it is missing.
fn take_flag(given: &mut Map<String, Json>, key: &str) -> Result<bool, ApiError> {
    match given.shift_remove(key) {
        None | Some(Json::Null) => Ok(false),
        Some(Json::Bool(value)) => Ok(value),
        Some(_) => Err(ApiError::Invalid(format!("`{key}` must be true or false"))),
    }
}

/// Removes a member that is text.
fn take_text(given: &mut Map<String, Json>, key: &str) -> Result<Option<String>, ApiError> {
    match given.shift_remove(key) {
        None | Some(Json::Null) => Ok(None),
        Some(Json::String(text)) => Ok(Some(text)),
        Some(_) => Err(ApiError::Invalid(format!("`{key}` must be text"))),
    }
}

fn parse_profile(word: &Json) -> Result<Profile, ApiError> {
    let profile = word.as_str().and_then(Profile::from_word);
    profile.ok_or_else(|| {
        let names = Profile::ALL.map(Profile::as_str);
        let hint = match word.as_str().and_then(|word| nearest(word, names)) {
            Some(near) => format!(" (did you mean `{near}`?)"),
            None => String::new(),
        };
        ApiError::Invalid(format!(
            "`profile` must be one of {}{hint}",
            names.join(", ")
        ))
    })
}

fn explanation_document(
    policy: &Policy,
    request: &ExplainRequest,
    crawler: &Crawler,
    profile: Profile,
) -> Json {
    let facts = &request.facts;
    let evaluation = OfflineEvaluation::for_explanation(policy, facts, profile, request.scope);
    let answers = ProfileResponses::for_evaluation(&evaluation, facts);
    let mut document = explanation::to_json(&evaluation, facts, &answers);
    let members = json!({
        "answers": explanation::answers_to_json(&answers),
        "case": case::to_yaml(&evaluation, &request.given, request.profile),
    });
    response::extend(&mut document, &members);
    if let Some(user_agent) = &request.user_agent {
        let agent = evaluation.robots_agent(crawler, user_agent);
        let agent = explanation::robots_agent_to_json(agent);
        response::extend(&mut document, &json!({ "robots_agent": agent }));
    }
    document
}

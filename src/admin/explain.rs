//! `POST /api/v1/explain`: the reason why the active policy allows or refuses a request with the given facts.

use std::error::Error;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::Body;
use http_body_util::Full;
use serde_json::{Map, Value as Json, json};

use crate::clock::{Clock, utc_year};
use crate::diagnostics::nearest::nearest;
use crate::model::crawler::Crawler;
use crate::model::profile::Profile;
use crate::pipeline::offline_evaluation::{ExplanationScope, OfflineEvaluation};
use crate::policy::Policy;
use crate::policy::cases::CaseFacts;
use crate::report::response::ProfileResponses;
use crate::report::{case, explanation};

use super::api_request::{ApiRequestError, read_body, run_blocking, shorten_message};
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
}

impl PolicyApi {
    /// Returns the explanation that `crawlgate explain` prints, the response for each profile (`answers`), and the facts
    /// and decision as a test case (`case`); or 400 for invalid facts. Nothing is counted and nothing is sent.
    pub(super) async fn explain<B>(&self, body: B) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let request = match read_body(body, MAX_BODY_BYTES)
            .await
            .and_then(|bytes| ExplainRequest::parse(&bytes))
        {
            Ok(request) => request,
            Err(error) => return error.into_response(),
        };
        let snapshot = self.active_policy.load();
        let profile = request
            .profile
            .unwrap_or_else(|| self.profile_of(request.crawler()));
        // Thousands of rules take milliseconds, which would delay other requests of this thread.
        match run_blocking(move || explanation_document(&snapshot.policy, &request, profile)).await
        {
            Some(document) => response::json(StatusCode::OK, &document),
            None => response::internal_error(),
        }
    }

    /// Returns the profile of a crawler whose `User-Agent` is not known.
    fn profile_of(&self, crawler: &str) -> Profile {
        let known = self.crawlers.iter().find(|known| known.as_str() == crawler);
        known
            .and_then(Crawler::profile)
            .unwrap_or(self.default_profile)
    }
}

impl ExplainRequest {
    fn parse(body: &[u8]) -> Result<Self, ApiRequestError> {
        let mut given: Map<String, Json> = serde_json::from_slice(body).map_err(|error| {
            ApiRequestError::Invalid(format!(
                "the body is not a JSON object of facts: {}",
                shorten_message(&error)
            ))
        })?;
        let profile = match given.shift_remove("profile") {
            None | Some(Json::Null) => None,
            Some(word) => Some(parse_profile(&word)?),
        };
        let scope = match given.shift_remove("all_rules") {
            None | Some(Json::Null | Json::Bool(false)) => ExplanationScope::Relevant,
            Some(Json::Bool(true)) => ExplanationScope::All,
            Some(_) => {
                let message = "`all_rules` must be true or false".to_owned();
                return Err(ApiRequestError::Invalid(message));
            }
        };
        let facts = CaseFacts::from_json(&given).map_err(|error| {
            ApiRequestError::Invalid(format!(
                "the facts are invalid: {}",
                shorten_message(&error)
            ))
        })?;
        Ok(Self {
            given,
            facts: facts.with_default_year(utc_year(Clock::system().wall_time())),
            profile,
            scope,
        })
    }

    fn crawler(&self) -> &str {
        self.given
            .get("crawler")
            .and_then(Json::as_str)
            .unwrap_or(Crawler::ANONYMOUS)
    }
}

fn parse_profile(word: &Json) -> Result<Profile, ApiRequestError> {
    let profile = word.as_str().and_then(Profile::from_word);
    profile.ok_or_else(|| {
        let names = Profile::ALL.map(Profile::as_str);
        let hint = match word.as_str().and_then(|word| nearest(word, names)) {
            Some(near) => format!(" (did you mean `{near}`?)"),
            None => String::new(),
        };
        ApiRequestError::Invalid(format!(
            "`profile` must be one of {}{hint}",
            names.join(", ")
        ))
    })
}

fn explanation_document(policy: &Policy, request: &ExplainRequest, profile: Profile) -> Json {
    let facts = &request.facts;
    let evaluation = OfflineEvaluation::for_explanation(policy, facts, profile, request.scope);
    let answers = ProfileResponses::for_evaluation(&evaluation, facts);
    let mut document = explanation::to_json(&evaluation, facts, &answers);
    let members = json!({
        "answers": explanation::answers_to_json(&answers),
        "case": case::to_yaml(&evaluation, &request.given, request.profile),
    });
    response::extend(&mut document, &members);
    document
}

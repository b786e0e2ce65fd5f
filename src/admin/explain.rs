//! `POST /api/v1/explain`: why the policy in force allows or refuses a request, whose facts are given.

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
use crate::pipeline::offline_evaluation::OfflineEvaluation;
use crate::policy::Policy;
use crate::policy::cases::CaseFacts;
use crate::report::response::ProfileResponses;
use crate::report::{case, explanation};

use super::api_request::{ApiRequestError, read_body, run_blocking, shorten_message};
use super::policy_api::PolicyApi;
use super::response;

/// The longest body.
const MAX_BODY_BYTES: usize = 64 << 10;

/// What is asked: the facts, as they were given and as they were read, and by which profile the answer is.
struct ExplainRequest {
    given: Map<String, Json>,
    facts: CaseFacts,
    profile: Option<Profile>,
}

impl PolicyApi {
    /// 200 with the explanation that `crawlgate explain` prints, the answer for each profile (`answers`) and the same
    /// as a case; 400 for facts that cannot be read. Nothing is counted and nothing sent.
    pub(super) async fn explain<B>(&self, body: B) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let question = match read_body(body, MAX_BODY_BYTES)
            .await
            .and_then(|bytes| ExplainRequest::parse(&bytes))
        {
            Ok(question) => question,
            Err(mistake) => return mistake.into_response(),
        };
        let snapshot = self.active_policy.load();
        let profile = question
            .profile
            .unwrap_or_else(|| self.profile_of(question.crawler()));
        // Thousands of rules take milliseconds, for which nobody else shall wait.
        match run_blocking(move || explanation_document(&snapshot.policy, &question, profile)).await
        {
            Some(document) => response::json(StatusCode::OK, &document),
            None => response::internal_error(),
        }
    }

    /// How a crawler is answered of which no `User-Agent` is known.
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
                "the body is no JSON object of facts: {}",
                shorten_message(&error)
            ))
        })?;
        let profile = match given.shift_remove("profile") {
            None | Some(Json::Null) => None,
            Some(word) => Some(parse_profile(&word)?),
        };
        let facts = CaseFacts::from_json(&given).map_err(|mistake| {
            ApiRequestError::Invalid(format!(
                "the facts cannot be read: {}",
                shorten_message(&mistake)
            ))
        })?;
        Ok(Self {
            given,
            facts: facts.with_default_year(utc_year(Clock::system().wall_time())),
            profile,
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
    let known = word.as_str().and_then(Profile::from_word);
    known.ok_or_else(|| {
        let names = Profile::ALL.map(Profile::as_str);
        let near = word.as_str().and_then(|word| nearest(word, names));
        let near = near.map_or(String::new(), |near| format!(" (did you mean `{near}`?)"));
        ApiRequestError::Invalid(format!(
            "`profile` must be one of {}{near}",
            names.join(", ")
        ))
    })
}

fn explanation_document(policy: &Policy, question: &ExplainRequest, profile: Profile) -> Json {
    let facts = &question.facts;
    let trial = OfflineEvaluation::new(policy, facts, profile);
    let answers = ProfileResponses::for_trial(&trial, facts);
    let mut document = explanation::to_json(&trial, facts, &answers);
    let more = json!({
        "answers": explanation::answers_to_json(&answers),
        "case": case::to_yaml(&trial, &question.given, question.profile),
    });
    response::extend(&mut document, &more);
    document
}

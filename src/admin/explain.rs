//! `POST /api/v1/explain`: why the policy in force allows or refuses a request, whose facts are given.

use std::error::Error;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::Body;
use http_body_util::Full;
use serde_json::{Map, Value as Json, json};

use crate::clock::{Clock, year};
use crate::gate::trial::Trial;
use crate::policy::Policy;
use crate::policy::cases::CaseFacts;
use crate::report::wire::Answers;
use crate::report::{case, explanation};
use crate::vocab::crawler::Crawler;
use crate::vocab::nearest::nearest;
use crate::vocab::profile::Profile;

use super::api::PolicyApi;
use super::ask::{Mistake, apart, beginning, received};
use super::page;

/// The longest body.
const BODY: usize = 64 << 10;

/// What is asked: the facts, as they were given and as they were read, and by which profile the answer is.
struct Question {
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
        let question = match received(body, BODY)
            .await
            .and_then(|bytes| Question::read(&bytes))
        {
            Ok(question) => question,
            Err(mistake) => return mistake.answer(),
        };
        let snapshot = self.in_force.load();
        let profile = question
            .profile
            .unwrap_or_else(|| self.profile_of(question.crawler()));
        // Thousands of rules take milliseconds, for which nobody else shall wait.
        match apart(move || explained(&snapshot.policy, &question, profile)).await {
            Some(document) => page::json(StatusCode::OK, &document),
            None => page::broken(),
        }
    }

    /// How a crawler is answered of which no `User-Agent` is known.
    fn profile_of(&self, crawler: &str) -> Profile {
        let known = self.crawlers.iter().find(|known| known.as_str() == crawler);
        known.and_then(Crawler::profile).unwrap_or(self.profile)
    }
}

impl Question {
    fn read(body: &[u8]) -> Result<Self, Mistake> {
        let mut given: Map<String, Json> = serde_json::from_slice(body).map_err(|error| {
            Mistake::Words(format!(
                "the body is no JSON object of facts: {}",
                beginning(&error)
            ))
        })?;
        let profile = match given.shift_remove("profile") {
            None | Some(Json::Null) => None,
            Some(word) => Some(profile(&word)?),
        };
        let facts = CaseFacts::from_json(&given).map_err(|mistake| {
            Mistake::Words(format!("the facts cannot be read: {}", beginning(&mistake)))
        })?;
        Ok(Self {
            given,
            facts: facts.in_year(year(Clock::system().wall())),
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

fn profile(word: &Json) -> Result<Profile, Mistake> {
    let known = word.as_str().and_then(Profile::from_word);
    known.ok_or_else(|| {
        let names = Profile::ALL.map(Profile::as_str);
        let near = word.as_str().and_then(|word| nearest(word, names));
        let near = near.map_or(String::new(), |near| format!(" (did you mean `{near}`?)"));
        Mistake::Words(format!(
            "`profile` must be one of {}{near}",
            names.join(", ")
        ))
    })
}

fn explained(policy: &Policy, question: &Question, profile: Profile) -> Json {
    let facts = &question.facts;
    let trial = Trial::new(policy, facts, profile);
    let answers = Answers::of(&trial, facts);
    let mut document = explanation::of(&trial, facts, &answers);
    let more = json!({
        "answers": explanation::to_all(&answers),
        "case": case::of(&trial, &question.given, question.profile),
    });
    page::extend(&mut document, &more);
    document
}

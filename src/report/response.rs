//! What the proxy would write to the crawler: the status line and headers of a refusal, or what an origin's answer gets.
//!
//! It is made by the code that answers requests. What no two answers share is left out: `Crawl-Decision`, and the
//! length of a body that holds it.

use http::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};

use crate::model::profile::{Conditional, Profile};
use crate::pipeline::header_effects::{HeaderEffects, RequestEffects};
use crate::pipeline::offline_evaluation::OfflineEvaluation;
use crate::pipeline::refusal::Refusal;
use crate::policy::cases::{CaseFacts, CaseTarget};
use crate::proxy::local_reply::{self, CRAWL_DECISION, PolicyLabel, RefusalFormat, RefusalStyle};
use crate::proxy::robots_tag;

use super::decision::crawl_status;

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PredictedResponse {
    /// The proxy's own.
    Refused {
        /// `HTTP/1.1 451 Unavailable For Legal Reasons`.
        status_line: String,
        /// In the order in which they are written.
        headers: Vec<(String, String)>,
    },
    /// None: the connection is closed, which this kind of crawler takes for "later".
    Closed,
    /// The origin's, with these headers of ours, `Crawl-Status` first.
    Forwarded {
        /// In the order in which they are written.
        headers: Vec<(String, String)>,
    },
    /// 200, and what the client and the host send each other from there on.
    Tunnel,
}

/// The answers of one trial, one for each profile: what they share is made once.
#[derive(Debug)]
pub enum ProfileResponses<'t> {
    /// The request is refused, each profile in its way.
    Refused(&'t Refusal, PolicyLabel<'t>),
    /// It passes, and the answer is the same for all.
    Forwarded(PredictedResponse),
}

impl<'t> ProfileResponses<'t> {
    /// Of a request without validators.
    pub fn for_trial(trial: &'t OfflineEvaluation<'_>, facts: &CaseFacts) -> Self {
        let policy = trial.policy;
        match (&trial.refusal, facts.target()) {
            (Some(refusal), _) => Self::Refused(
                refusal,
                PolicyLabel {
                    name: policy.name(),
                    revision: policy.revision(),
                },
            ),
            (None, CaseTarget::Tunnel(..)) => Self::Forwarded(PredictedResponse::Tunnel),
            (None, CaseTarget::Url(_)) => Self::Forwarded(PredictedResponse::Forwarded {
                headers: forwarded_headers(trial, facts),
            }),
        }
    }

    /// The answer to a crawler of this profile.
    pub fn for_profile(&self, profile: Profile) -> PredictedResponse {
        match self {
            Self::Refused(refusal, in_force) => refusal_response(refusal, *in_force, profile),
            Self::Forwarded(wire) => wire.clone(),
        }
    }
}

fn refusal_response(
    refusal: &Refusal,
    in_force: PolicyLabel<'_>,
    profile: Profile,
) -> PredictedResponse {
    let manner = RefusalStyle {
        profile,
        conditional: Conditional::No,
        format: RefusalFormat::Problem,
    };
    let Some(response) = local_reply::refusal_response(refusal, manner, in_force, "") else {
        return PredictedResponse::Closed;
    };
    let status = response.status();
    let words = status.canonical_reason().unwrap_or("");
    let shared = response
        .headers()
        .iter()
        .filter(|(name, _)| **name != CRAWL_DECISION && **name != CONTENT_LENGTH);
    PredictedResponse::Refused {
        status_line: format!("HTTP/1.1 {} {words}", status.as_u16())
            .trim_end()
            .to_owned(),
        headers: shared.map(header_text).collect(),
    }
}

/// What an origin's answer gets from us: looks through the whole policy. `X-Robots-Tag` is ours alone here: the origin's own is merged with it.
fn forwarded_headers(trial: &OfflineEvaluation<'_>, facts: &CaseFacts) -> Vec<(String, String)> {
    let made = HeaderEffects::from_policy(trial.policy);
    let effects = RequestEffects {
        effects: &made,
        policy: trial.policy,
        trail: &trial.trail,
    };
    let mut headers = HeaderMap::new();
    effects.apply_to_response(&mut headers);
    if let Some(tag) = effects.robots_tag() {
        robots_tag::merge(&mut headers, tag);
    }
    let status = (
        "crawl-status".to_owned(),
        crawl_status(trial, facts).to_owned(),
    );
    std::iter::once(status)
        .chain(headers.iter().map(header_text))
        .collect()
}

fn header_text((name, value): (&HeaderName, &HeaderValue)) -> (String, String) {
    (
        name.as_str().to_owned(),
        String::from_utf8_lossy(value.as_bytes()).into_owned(),
    )
}

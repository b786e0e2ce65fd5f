//! The predicted response to the crawler: the status line and headers of a refusal, or the headers added to an
//! origin's response.
//!
//! It is built by the code that responds to requests. `Crawl-Decision`, and the length of a body that contains
//! it, are left out, since they differ for every response.

use http::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};

use crate::model::profile::{Conditional, Profile};
use crate::pipeline::header_effects::{HeaderEffects, RequestEffects};
use crate::pipeline::offline_evaluation::OfflineEvaluation;
use crate::pipeline::refusal::Refusal;
use crate::policy::cases::{CaseFacts, CaseTarget};
use crate::proxy::local_reply::{
    self, CRAWL_DECISION, NO_CONTACTS, PolicyLabel, RefusalFormat, RefusalStyle,
};
use crate::proxy::robots_tag;

use super::decision::crawl_status;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PredictedResponse {
    /// A response of the proxy.
    Refused {
        /// `HTTP/1.1 451 Unavailable For Legal Reasons`.
        status_line: String,
        /// The headers in the order in which they are written.
        headers: Vec<(String, String)>,
    },
    /// No response: the connection is closed, which this kind of crawler treats as temporary.
    Closed,
    /// The origin's response with these additional headers, `Crawl-Status` first.
    Forwarded {
        /// The headers in the order in which they are written.
        headers: Vec<(String, String)>,
    },
    /// 200, followed by the bytes that the client and the host exchange.
    Tunnel,
}

/// The predicted responses of an offline evaluation for each profile; common parts are built once.
#[derive(Debug)]
pub enum ProfileResponses<'t> {
    /// A refusal, which depends on the profile.
    Refused(&'t Refusal, PolicyLabel<'t>),
    /// A forwarded response, equal for all profiles.
    Forwarded(PredictedResponse),
}

impl<'t> ProfileResponses<'t> {
    /// Predicts the responses to a request without validators.
    pub fn for_evaluation(evaluation: &'t OfflineEvaluation<'_>, facts: &CaseFacts) -> Self {
        let policy = evaluation.policy;
        match (&evaluation.refusal, facts.target()) {
            (Some(refusal), _) => Self::Refused(
                refusal,
                PolicyLabel {
                    name: policy.name(),
                    revision: policy.revision(),
                    contacts: &NO_CONTACTS,
                },
            ),
            (None, CaseTarget::Tunnel(..)) => Self::Forwarded(PredictedResponse::Tunnel),
            (None, CaseTarget::Url(_)) => Self::Forwarded(PredictedResponse::Forwarded {
                headers: forwarded_headers(evaluation, facts),
            }),
        }
    }

    /// Returns the response for a profile.
    pub fn for_profile(&self, profile: Profile) -> PredictedResponse {
        match self {
            Self::Refused(refusal, policy) => refusal_response(refusal, *policy, profile),
            Self::Forwarded(response) => response.clone(),
        }
    }
}

fn refusal_response(
    refusal: &Refusal,
    policy: PolicyLabel<'_>,
    profile: Profile,
) -> PredictedResponse {
    let style = RefusalStyle {
        profile,
        conditional: Conditional::No,
        format: RefusalFormat::Problem,
    };
    let Some(response) = local_reply::refusal_response(refusal, style, policy, "") else {
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

/// Returns the headers added to an origin's response, from an evaluation of the whole policy. The origin's
/// own `X-Robots-Tag`, which would be merged, is not known here.
fn forwarded_headers(
    evaluation: &OfflineEvaluation<'_>,
    facts: &CaseFacts,
) -> Vec<(String, String)> {
    let header_effects = HeaderEffects::from_policy(evaluation.policy);
    let effects = RequestEffects {
        effects: &header_effects,
        policy: evaluation.policy,
        trail: &evaluation.trail,
    };
    let mut headers = HeaderMap::new();
    effects.apply_to_response(&mut headers);
    if let Some(tag) = effects.robots_tag() {
        robots_tag::merge(&mut headers, tag);
    }
    let status = (
        "crawl-status".to_owned(),
        crawl_status(evaluation, facts).to_owned(),
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

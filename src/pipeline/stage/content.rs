//! Content: the policy at the response stage, before a byte of the body is sent on.

use std::borrow::Cow;

use http::Method;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::response::Parts;

use crate::model::media_type::essence;
use crate::model::reason::Reason;
use crate::pipeline::evaluation::{Evaluation, JoinedHeaders};
use crate::pipeline::refusal::Refusal;
use crate::policy::fact::{ContentAvailability, Fact, Facts, ResponseFacts};
use crate::policy::options::robots::robots_agent;
use crate::policy::rule::PolicyStage;

use super::{robots, usage};

/// Judges the origin's head; its `Content-Type` is `kind`.
pub(crate) fn evaluate(
    evaluation: &mut Evaluation,
    head: &Parts,
    content_type: &str,
) -> Result<(), Box<Refusal>> {
    // The robots.txt of a host is passed on whatever the policy says of text files (decisions.md section 5).
    if evaluation.facts.reads_robots_txt() {
        return Ok(());
    }
    let method = evaluation.facts.method.clone();
    with_response_facts(&method, head, content_type, |response| {
        let agent = robots::robots_agent(
            robots_agent(&evaluation.snapshot.policy, &evaluation.trail),
            &evaluation.facts,
        );
        let usage: Vec<_> = evaluation
            .usage
            .iter()
            .map(|said| said.fact.clone())
            .collect();
        let facts = Facts {
            response: Fact::Known(response),
            agent,
            usage_preferences: &usage,
            ..evaluation.facts.policy_facts()
        };
        if let Some(beside) = &mut evaluation.shadow {
            beside.evaluate_stage(
                &evaluation.snapshot.policy,
                PolicyStage::Response,
                &facts,
                &evaluation.trail,
            );
        }
        evaluation.decision = evaluation.snapshot.policy.decide_stage(
            &mut evaluation.trail,
            PolicyStage::Response,
            &facts,
        );
        evaluation.tags = evaluation
            .snapshot
            .policy
            .content_tags(&evaluation.trail, &facts)
            .map(Box::new);
    });
    evaluation.ensure_admitted().map_err(|refusal| {
        let refusal = if refusal.reason == Reason::Usage {
            usage::with_usage_source(evaluation, *refusal)
        } else {
            *refusal
        };
        Box::new(Refusal {
            received_status: Some(head.status.as_u16()),
            ..refusal
        })
    })
}

/// The type that the head names, without parameters; empty if it names none.
pub(crate) fn media_type(head: &Parts) -> Cow<'_, str> {
    // All fields of that name, joined: a second one must not hide what a browser would go by.
    match JoinedHeaders(&head.headers).joined(CONTENT_TYPE) {
        Some(Cow::Borrowed(value)) => essence(value),
        Some(Cow::Owned(values)) => Cow::Owned(essence(&values).into_owned()),
        None => Cow::Borrowed(""),
    }
}

/// Does something with what the head of an answer says.
pub(super) fn with_response_facts<T>(
    method: &Method,
    head: &Parts,
    content_type: &str,
    then: impl FnOnce(ResponseFacts<'_>) -> T,
) -> T {
    let headers = JoinedHeaders(&head.headers);
    let length = head
        .headers
        .get(CONTENT_LENGTH)
        .and_then(|v| v.to_str().ok()?.parse().ok());
    then(ResponseFacts {
        status: head.status.as_u16(),
        content_type,
        size: length,
        headers: &headers,
        content: if *method == Method::HEAD {
            ContentAvailability::HeadOnly
        } else {
            ContentAvailability::Possible
        },
    })
}

/// What a body is, as far as its head tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyType {
    /// HTML of a 2xx answer to GET, or what HEAD says of it.
    Html,
    /// Anything else.
    Other,
}

/// What the body that goes with a head is.
pub(crate) fn body_type(method: &Method, head: &Parts) -> BodyType {
    let fetched = matches!(*method, Method::GET | Method::HEAD);
    let is_html = with_response_facts(method, head, &media_type(head), |response| {
        fetched && response.is_success_with_content() && response.is_html()
    });
    if is_html {
        BodyType::Html
    } else {
        BodyType::Other
    }
}

//! Response: the policy at the response stage, before a byte of the body is sent on.

use std::borrow::Cow;

use http::Method;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::response::Parts;

use crate::model::media_type::essence;
use crate::model::reason::Reason;
use crate::pipeline::evaluation::Evaluation;
use crate::pipeline::headers::JoinedHeaders;
use crate::pipeline::refusal::Refusal;
use crate::policy::fact::{ContentAvailability, Fact, ResponseFacts};
use crate::policy::rule::PolicyStage;

use super::usage;

/// Evaluates the origin's head, whose media type is `content_type`.
pub(crate) fn evaluate(
    evaluation: &mut Evaluation,
    head: &Parts,
    content_type: &str,
) -> Result<(), Box<Refusal>> {
    // The robots.txt of a host is passed on regardless of the policy for text files.
    if evaluation.facts().reads_robots_txt() {
        return Ok(());
    }
    let method = evaluation.facts().method.clone();
    with_response_facts(&method, head, content_type, |response| {
        evaluation.evaluate_response(PolicyStage::Response, response, Fact::Unknown);
    });
    evaluation.ensure_admitted().map_err(|refusal| {
        let refusal = if refusal.reason == Reason::Usage {
            usage::with_usage_source(evaluation, *refusal)
        } else {
            *refusal
        };
        Box::new(refusal.with_received_status(head))
    })
}

/// Returns the media type of the head, without parameters; empty if it has none.
pub(crate) fn media_type(head: &Parts) -> Cow<'_, str> {
    // All fields of that name are joined, so that a second one cannot hide the type that a browser would use.
    match JoinedHeaders(&head.headers).joined(CONTENT_TYPE) {
        Some(Cow::Borrowed(value)) => essence(value),
        Some(Cow::Owned(values)) => Cow::Owned(essence(&values).into_owned()),
        None => Cow::Borrowed(""),
    }
}

/// Calls a function with the facts of a response's head.
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

/// The type of a body according to its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyType {
    /// HTML of a 2xx response to GET, or the response to a HEAD for it.
    Html,
    /// Any other body.
    Other,
}

/// Returns the type of the body that belongs to a head.
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

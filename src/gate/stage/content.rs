//! Content: the policy at the response stage, before a byte of the body is sent on.

use std::borrow::Cow;

use http::Method;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::response::Parts;

use crate::gate::judged::{Headers, Judged};
use crate::gate::refusal::Refusal;
use crate::policy::fact::{Content, Fact, Facts, ResponseFacts};
use crate::policy::options::robots::named_agent;
use crate::policy::rule::PolicyStage;
use crate::vocab::media_type::essence;
use crate::vocab::reason::Reason;

use super::{robots, usage};

/// Judges the origin's head; its `Content-Type` is `kind`.
pub(in crate::gate) fn judge<C>(
    judged: &mut Judged<C>,
    head: &Parts,
    kind: &str,
) -> Result<(), Box<Refusal>> {
    // The robots.txt of a host is passed on whatever the policy says of text files (decisions.md section 5).
    if judged.asked.reads_robots_txt() {
        return Ok(());
    }
    let method = judged.asked.method.clone();
    answered(&method, head, kind, |response| {
        let agent = robots::agent(
            named_agent(&judged.snapshot.policy, &judged.trail),
            &judged.asked,
        );
        let usage: Vec<_> = judged.usage.iter().map(|said| said.fact.clone()).collect();
        let facts = Facts {
            response: Fact::Known(response),
            agent,
            usage: &usage,
            ..judged.asked.facts()
        };
        if let Some(beside) = &mut judged.beside {
            beside.stage(
                &judged.snapshot.policy,
                PolicyStage::Response,
                &facts,
                &judged.trail,
            );
        }
        judged.decision =
            judged
                .snapshot
                .policy
                .stage(&mut judged.trail, PolicyStage::Response, &facts);
        judged.tags = judged
            .snapshot
            .policy
            .tags(&judged.trail, &facts)
            .map(Box::new);
    });
    judged.verdict().map_err(|refusal| {
        let refusal = if refusal.reason == Reason::Usage {
            usage::source_told(judged, *refusal)
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
pub(in crate::gate) fn kind_of(head: &Parts) -> Cow<'_, str> {
    // All fields of that name, joined: a second one must not hide what a browser would go by.
    match Headers(&head.headers).joined(CONTENT_TYPE) {
        Some(Cow::Borrowed(value)) => essence(value),
        Some(Cow::Owned(values)) => Cow::Owned(essence(&values).into_owned()),
        None => Cow::Borrowed(""),
    }
}

/// Does something with what the head of an answer says.
pub(super) fn answered<T>(
    method: &Method,
    head: &Parts,
    kind: &str,
    then: impl FnOnce(ResponseFacts<'_>) -> T,
) -> T {
    let headers = Headers(&head.headers);
    let length = head
        .headers
        .get(CONTENT_LENGTH)
        .and_then(|v| v.to_str().ok()?.parse().ok());
    then(ResponseFacts {
        status: head.status.as_u16(),
        content_type: kind,
        size: length,
        headers: &headers,
        content: if *method == Method::HEAD {
            Content::HeadOnly
        } else {
            Content::Possible
        },
    })
}

/// What a body is, as far as its head tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gate) enum Type {
    /// HTML of a 2xx answer to GET, or what HEAD says of it.
    Html,
    /// Anything else.
    Other,
}

/// What the body that goes with a head is.
pub(in crate::gate) fn type_of(method: &Method, head: &Parts) -> Type {
    let fetched = matches!(*method, Method::GET | Method::HEAD);
    let is_html = answered(method, head, &kind_of(head), |response| {
        fetched && response.is_success_with_content() && response.is_html()
    });
    if is_html { Type::Html } else { Type::Other }
}

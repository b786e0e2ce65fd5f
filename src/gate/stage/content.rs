//! Content: the policy at the response stage, before a byte of the body is sent on.

use std::borrow::Cow;

use http::Method;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::response::Parts;

use crate::gate::judged::{Headers, Judged};
use crate::gate::refusal::Refusal;
use crate::policy::fact::{Content, Fact, Facts, HeaderView, ResponseFacts};
use crate::policy::rule::PolicyStage;
use crate::vocab::media_type::essence;

/// Judges the origin's head.
pub(in crate::gate) fn judge<C>(judged: &mut Judged<C>, head: &Parts) -> Result<(), Box<Refusal>> {
    // The robots.txt of a host is passed on whatever the policy says of text files (decisions.md section 5).
    if judged.asked.reads_robots_txt() {
        return Ok(());
    }
    // All fields of that name, joined: a second one must not hide what a browser would go by.
    let headers = Headers(&head.headers);
    let content_type = headers.header(CONTENT_TYPE.as_str()).unwrap_or(Cow::Borrowed(""));
    let content_type = essence(&content_type);
    let length = head.headers.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse().ok());
    let response = ResponseFacts {
        status: head.status.as_u16(),
        content_type: &content_type,
        size: length,
        headers: &headers,
        content: if judged.asked.method == Method::HEAD { Content::HeadOnly } else { Content::Possible },
    };
    let facts = Facts { response: Fact::Known(response), ..judged.asked.facts() };
    if let Some(beside) = &mut judged.beside {
        beside.stage(&judged.snapshot.policy, PolicyStage::Response, &facts, &judged.trail);
    }
    judged.decision = judged.snapshot.policy.stage(&mut judged.trail, PolicyStage::Response, &facts);
    judged
        .verdict()
        .map_err(|refusal| Box::new(Refusal { received_status: Some(head.status.as_u16()), ..*refusal }))
}

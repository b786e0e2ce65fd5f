//! Content: the policy at the response stage, before a byte of the body is sent on.

use http::Method;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::response::Parts;

use crate::gate::judged::{Headers, Judged};
use crate::gate::refusal::Refusal;
use crate::policy::fact::{Content, Fact, Facts, ResponseFacts};
use crate::policy::rule::PolicyStage;
use crate::vocab::media_type::essence;

/// Judges the origin's head.
pub(in crate::gate) fn judge<C>(judged: &mut Judged<C>, head: &Parts) -> Result<(), Box<Refusal>> {
    // The robots.txt of a host is passed on whatever the policy says of text files (decisions.md section 5).
    if judged.asked.target.path_and_query() == "/robots.txt" {
        return Ok(());
    }
    let text = |name| head.headers.get(name).and_then(|v: &http::HeaderValue| v.to_str().ok());
    let content_type = essence(text(CONTENT_TYPE).unwrap_or(""));
    let response = ResponseFacts {
        status: head.status.as_u16(),
        content_type: &content_type,
        size: text(CONTENT_LENGTH).and_then(|length| length.parse().ok()),
        headers: &Headers(&head.headers),
        content: if judged.asked.method == Method::HEAD { Content::HeadOnly } else { Content::Possible },
    };
    let facts = Facts { response: Fact::Known(response), ..judged.asked.facts() };
    judged.decision = judged.snapshot.policy.stage(&mut judged.trail, PolicyStage::Response, &facts);
    judged
        .verdict()
        .map_err(|refusal| Box::new(Refusal { received_status: Some(head.status.as_u16()), ..*refusal }))
}

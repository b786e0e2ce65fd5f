//! Document: the policy at the last stage, on the first bytes of a body, before any of them is sent on.
//!
//! The proxy reads the bytes. The head is that of the origin, unchanged, since options that check responses look at
//! both.

use http::response::Parts;

use crate::pipeline::evaluation::Evaluation;
use crate::pipeline::refusal::Refusal;
use crate::policy::fact::{DocumentFacts, Fact};
use crate::policy::rule::PolicyStage;

use super::response::{media_type, with_response_facts};

/// The part of a document that has to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DocumentRequirements<'j> {
    /// If set, the first bytes are needed as text, and not only the head of the document.
    pub body_prefix: bool,
    /// The crawler's product token, by which a document may address it.
    pub agent: &'j str,
}

/// Returns the part of the body that must be read after the response stage; `None` if no part.
pub(crate) fn document_requirements<'j>(
    evaluation: &'j Evaluation,
    head: &Parts,
) -> Option<DocumentRequirements<'j>> {
    let snapshot = evaluation.snapshot();
    let facts = evaluation.facts();
    if !snapshot.reads_documents() || facts.reads_robots_txt() {
        return None;
    }
    let awaits = with_response_facts(&facts.method, head, &media_type(head), |response| {
        evaluation.awaits_document(response)
    });
    awaits.then(|| DocumentRequirements {
        body_prefix: snapshot.reads_text(),
        agent: evaluation.robots_agent().token(),
    })
}

/// Evaluates the document.
pub(crate) fn evaluate(
    evaluation: &mut Evaluation,
    head: &Parts,
    document: DocumentFacts<'_>,
) -> Result<(), Box<Refusal>> {
    let method = evaluation.facts().method.clone();
    with_response_facts(&method, head, &media_type(head), |response| {
        evaluation.evaluate_response(PolicyStage::Document, response, Fact::Known(document));
    });
    evaluation
        .ensure_admitted()
        .map_err(|refusal| Box::new(refusal.with_received_status(head)))
}

//! From the origin's response to the client: the stages after the origin, in their order.

use http::HeaderValue;
use http::response::Parts;

pub use crate::ledger::record::ContentHash;
use crate::model::failure_kind::FailureKind;
use crate::model::profile::Conditional;
pub use crate::policy::fact::{DocumentFacts, HeaderView};

use super::admission::AdmissionQueue;
use super::document_rewrite::{self, DocumentRewrite};
use super::evaluation::Evaluation;
use super::failure_class;
use super::refusal::Refusal;
use super::stage::document::DocumentRequirements;
use super::stage::outcome::OutcomeRecorder;
pub use super::stage::recrawl::ContentUse;
use super::stage::{class, document, ledger, recrawl, redirect, response};

/// The proxy's additions to a response that is passed on.
#[derive(Debug)]
pub struct ResponseAnnotations {
    /// The kind of error that the response counts as: `Crawl-Error`.
    pub failure: Option<FailureKind>,
    /// The findings of checks: a `Crawl-Tag` each.
    pub tags: Vec<HeaderValue>,
    /// The reason why the policy would refuse the target of the redirect: `Crawl-Redirect`.
    pub redirect_refusal: Option<HeaderValue>,
}

/// Evaluates the origin's head, before a byte of its body is sent on. `conditional` says if the client's request is
/// conditional. The target of a redirect that is passed on is remembered by the admission queue.
///
/// # Errors
/// The refusal that replaces the origin's response.
pub fn evaluate_response(
    evaluation: &mut Evaluation,
    head: &Parts,
    conditional: Conditional,
    recorder: Option<&mut OutcomeRecorder>,
    admission: &AdmissionQueue,
) -> Result<ResponseAnnotations, Box<Refusal>> {
    let redirect_target = redirect::redirect_target(evaluation, head);
    let failure = failure_class::classify_response(
        head,
        recrawl::effective_conditional(evaluation, conditional),
        &redirect_target,
    );
    let media_type = response::media_type(head);
    let verdict = response::evaluate(evaluation, head, &media_type);
    if let Some(recorder) = recorder {
        recorder.record_head(
            evaluation,
            head,
            &media_type,
            failure,
            ledger::now(admission),
        );
    }
    verdict?;
    let tags = recrawl::evaluate(evaluation, head)?;
    class::record_redirect(evaluation, &redirect_target, admission);
    let redirect_refusal = redirect::redirect_refusal(evaluation, head.status, &redirect_target);
    Ok(ResponseAnnotations {
        failure,
        tags,
        redirect_refusal,
    })
}

/// Returns the part of the body that must be read before the response may be sent on; `None` if no part. Costs nothing
/// if the policy never needs it.
pub fn document_requirements<'e>(
    evaluation: &'e Evaluation,
    head: &Parts,
) -> Option<DocumentRequirements<'e>> {
    document::document_requirements(evaluation, head)
}

/// Evaluates the document, before any of it is sent on. `head` is the origin's.
///
/// # Errors
/// The refusal that replaces the origin's response.
pub fn evaluate_document(
    evaluation: &mut Evaluation,
    head: &Parts,
    document: DocumentFacts<'_>,
) -> Result<(), Box<Refusal>> {
    document::evaluate(evaluation, head, document)
}

/// Returns the changes to the body of a response that passed.
pub fn plan_rewrite(evaluation: &Evaluation, head: &Parts) -> Option<DocumentRewrite> {
    document_rewrite::plan(evaluation, head)
}

/// Returns the use of the content of a response that passed.
pub fn content_use(evaluation: &Evaluation, head: &Parts) -> ContentUse {
    recrawl::content_use(evaluation, head)
}

/// Compares the content of a body by its hash, before any of it is sent on. `hash` is `None` if the content cannot be
/// compared: it is too large, or in an unsupported coding.
///
/// # Errors
/// The refusal that replaces the origin's response.
pub fn check_content(
    evaluation: &mut Evaluation,
    head: &Parts,
    recorder: &OutcomeRecorder,
    hash: Option<&ContentHash>,
) -> Result<(), Box<Refusal>> {
    recrawl::check_content(evaluation, head, recorder, hash)
}
